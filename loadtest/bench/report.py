"""Writes the report: README.md with tables and plots, and results.json."""

import json
from pathlib import Path
from statistics import median

from . import access, attacks, cache, changes, clients, fairness, instructions, keys, limits, lookups, machine, publishing
from . import searches, store, telemetry, tuned
from .figures import rounded
from .rounds import IDLE_POLL

TITLES = {
    "drive_whole": "whole vectors from the drive, 500 per batch",
    "drive_scored": "vectors scored on the node, nearest 50 of 500, drive",
    "one_row_node": "one row, depth 1, from the I/O node",
    "one_row_both": "one row, depth 1, through both tiers",
    "one_row_node_polling": f"one row, depth 1, from the I/O node with `idle_poll` of {IDLE_POLL}",
    "one_row_both_polling": f"one row, depth 1, through both tiers with `idle_poll` of {IDLE_POLL}",
    "rate": "16 rows per batch at 70 % of fio's IOPS",
    "memory_whole": "whole vectors, slab in memory",
    "memory_scored": "vectors scored on the node, slab in memory",
    "ram_scored": "vectors scored on the node, RAM tier",
    "search_cold": "vector search, index warm, rows from the drive",
    "search_warm": "vector search, all warm",
    "payload_drive": "ten payload columns, 500 rows per batch, drive",
    "payload_memory": "ten payload columns, 500 rows per batch, slab in memory",
}
PEERS = {
    "lance_search_cold": "pylance, vector search, page cache dropped",
    "lance_uring_search_cold": "pylance with file+uring://, vector search, page cache dropped",
    "lance_search_warm": "pylance, vector search, all warm",
    "lance_payload": "pylance, ten payload columns of 500 rows, page cache warm",
    "lance_whole": "pylance, vectors of 500 rows, page cache warm",
    "parquet_payload": "pyarrow on Parquet, ten payload columns of 500 rows, page cache warm",
}
# The pieces whose sections follow those of the rounds, in the report's order.
SECTIONS = {
    "limits": limits,
    "instructions": instructions,
    "keys": keys,
    "lookups": lookups,
    "searches": searches,
    "publishing": publishing,
    "changes": changes,
    "tuned": tuned,
    "clients": clients,
    "store": store,
    "cache": cache,
    "telemetry": telemetry,
    "access": access,
    "fairness": fairness,
    "attacks": attacks,
}


def write(results: dict, output: Path) -> None:
    """Writes both files."""
    (output / "results.json").write_text(json.dumps(_without_samples(results), indent=1) + "\n")
    parts = [_head(results), _goals(results["goals"])]
    if "rounds" in results:
        steps = results["rounds"]["steps"]
        parts += [_fio(steps["fio"], _measured(results, "rounds")), _bireme(steps), _peers(steps), _recall(results["rounds"]), _plots()]
    for name, piece in SECTIONS.items():
        if name in results:
            title, *lines = piece.section(results[name])
            parts.append("\n".join([title, "", _measured(results, name), *lines]))
    if "rounds" in results:
        parts.append(_commands(results["rounds"]["steps"]))
    (output / "README.md").write_text("\n".join(parts))


def _without_samples(results: dict) -> dict:
    # The plots show the samples; in results.json they would be most of the file.
    def clean(value: object) -> object:
        if isinstance(value, dict):
            return {key: clean(it) for key, it in value.items() if key != "queues"}
        return [clean(it) for it in value] if isinstance(value, list) else value

    return clean(results)


def _head(results: dict) -> str:
    return f"""# Benchmarks

Written by `make bench` (profile `{results.get("profile", "?")}`): {machine.text(results.get("machine", {}))}.

The load generator, the query node and the I/O node share those cores. fio, Bireme and the peers take turns, round after
round. Each figure is the median of the rounds; each ratio is taken within a round, and the median is shown. Rows are
drawn without repeats. Bireme reads slabs with O_DIRECT, so its reads never come from the page cache, which is dropped
before each cold run of a peer. fio reads the same slab as Bireme, after each of its blocks was written once; fio's best
depth is the best over all rounds. Reads of the drive are those that the block layer counted. "Slab in memory" is a
tmpfs with huge pages, a drive that takes no time.
"""


def _goals(goals: list[dict]) -> str:
    lines = ["## Goals", "", "| what | measured | goal | holds |", "|---|---|---|---|"]
    for it in goals:
        mark = "yes" if it["holds"] else "**no**"
        lines.append(f"| {it['name']} | {rounded(it['value'])} | {it['sign']} {rounded(it['goal'])} | {mark} |")
    return "\n".join(lines) + "\n"


def _measured(results: dict, piece: str) -> str:
    described = results[piece].get("machine")
    when = results.get("measured", {}).get(piece, "an earlier day")
    return f"Measured on {when}" + (f", on {machine.text(described)}." if described else ".")


def _fio(rounds: list[list[dict]], measured: str) -> str:
    lines = ["## The limit: fio", "", f"{measured[:-1]}, as are the next three sections.", "", "| depth | IOPS | CPU per I/O, µs | p50, µs | p99, µs |", "|---|---|---|---|---|"]
    for at, first in enumerate(rounds[0]):
        mid = lambda name, at=at: median(it[at][name] for it in rounds)
        cells = [rounded(mid(name)) for name in ["iops", "cpu_us_per_io", "p50_us", "p99_us"]]
        lines.append(f"| {first['depth']} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _bireme(steps: dict) -> str:
    lines = [
        "## Bireme",
        "",
        "| what | rows/s | requests/s | p50, µs | p99, µs | CPU per row, µs: I/O node, query node, client | reads per row, as the node and the block layer count them | drive busy |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, title in TITLES.items():
        runs = steps[name]
        mid = lambda value, runs=runs: median(value(run) for run in runs)
        served = lambda run: max(1, run["nodes"]["io_rows"])
        cpu = [rounded(mid(lambda run, part=part: run["cpu"][part] / served(run))) for part in ["io_cpu_us", "query_cpu_us", "client_cpu_us"]]
        reads = rounded(mid(lambda run: run["nodes"]["drive_reads_per_row"] or 0))
        counted = rounded(mid(lambda run: run["disk"]["reads"] / served(run)))
        busy = f"{mid(lambda run: run['disk']['busy']):.0%}"
        cells = [
            rounded(mid(lambda run: run["rows_per_s"])),
            rounded(mid(lambda run: run["requests_per_s"])),
            rounded(mid(lambda run: run["latency_us"]["p50"])),
            rounded(mid(lambda run: run["latency_us"]["p99"])),
            ", ".join(cpu),
            f"{reads}, {counted}",
            busy,
        ]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    lines += ["", "For a search, CPU and reads are per candidate that the I/O node scored."]
    return "\n".join(lines) + "\n"


def _peers(steps: dict) -> str:
    lines = [
        "## Peers",
        "",
        "| what | requests/s | rows/s | rows per core-second | p50, µs | p99, µs | the drive's reads per request |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, title in PEERS.items():
        runs = steps[name]
        failed = next((run["error"] for run in runs if "error" in run), None)
        if failed:
            lines.append(f"| {title} | failed: {failed} | | | | | |")
            continue
        fields = ["requests_per_s", "rows_per_s", "rows_per_core_s", "p50_us", "p99_us"]
        cells = [rounded(median(run[field] for run in runs)) for field in fields]
        reads = median(run["disk"]["reads"] / run["requests"] for run in runs) if "disk" in runs[0] else None
        cells.append("" if reads is None else rounded(reads))
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _recall(rounds: dict) -> str:
    found, search = rounds["recall"], rounds["search"]
    return (
        f"Recall@{found['k']} of {found['questions']} questions against brute force (nprobes {search['nprobes']}, "
        f"refine factor {search['refine']}): Bireme {found['bireme']:.4f}, pylance {found['lance']:.4f}.\n"
    )


def _plots() -> str:
    return """## Plots

![IOPS against depth](depth.svg)
![CPU per row](cpu.svg)
![Queues between the stages](queues.svg)
"""


def _commands(steps: dict) -> str:
    lines = ["## Commands", "", "```console"]
    for name, runs in steps.items():
        first = runs[0][0] if isinstance(runs[0], list) else runs[0]
        lines.append(f"# {name}\n$ {first.get('command', '')}")
    return "\n".join([*lines, "```", ""])
