"""Writes the report: README.md with tables and plots, and results.json."""

import json
from collections.abc import Iterable
from pathlib import Path
from statistics import median

from . import access, attacks, changes, fairness, joins, limits, lookups, publishing, searches, tuned
from .cache import FILLING
from .beside import relative_rate
from .keys import CONCURRENCY, over_pylance
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
TELEMETRY_TITLES = {
    "control": "metrics, as on the nodes beside them: control, shows the noise",
    "untold": "nothing",
    "one_percent": "metrics, and traces of one request in a hundred",
    "all": "metrics, and traces of every request",
}


def write(results: dict, output: Path) -> None:
    """Writes both files."""
    (output / "results.json").write_text(json.dumps(_without_samples(results), indent=1) + "\n")
    parts = [_head(results), _goals(results["goals"])]
    if "rounds" in results:
        steps = results["rounds"]["steps"]
        parts += [_fio(steps["fio"]), _bireme(steps), _peers(steps), _recall(results["rounds"]), _plots()]
    if "limits" in results:
        parts.append("\n".join(limits.section(results["limits"], _machine(results["limits"]["machine"]))))
    if "instructions" in results:
        parts.append(_instructions(results["instructions"]))
    if "keys" in results:
        parts.append(_keys(results["keys"]))
    if "lookups" in results:
        parts.append(_lookups(results["lookups"]))
    if "searches" in results:
        parts.append(_searches(results["searches"]))
    for name, piece in {"publishing": publishing, "changes": changes, "tuned": tuned}.items():
        if name in results:
            parts.append("\n".join(piece.section(results[name], _machine(results[name]["machine"]))))
    if "clients" in results:
        parts.append(_clients(results["clients"]))
    if "store" in results:
        parts.append(_store(results["store"]))
    if "cache" in results:
        parts.append(_cache(results["cache"]))
    if "telemetry" in results:
        parts.append(_telemetry(results["telemetry"]["turns"]))
    if "access" in results:
        parts.append(_access(results["access"]["turns"]))
    if "fairness" in results:
        parts.append(_fairness(results["fairness"]))
    if "attacks" in results:
        parts.append(_attacks(results["attacks"]))
    if "rounds" in results:
        parts.append(_commands(results["rounds"]["steps"]))
    (output / "README.md").write_text("\n".join(parts))


def _attacks(results: dict) -> str:
    lines = [
        "## Under attack",
        "",
        f"{attacks.GETS_PER_S} gets of one key per second and {attacks.PROBES_PER_S} probes per second (gRPC health of both nodes",
        "over new connections, `/live` of both) during an attack. Nodes are started anew for each attack and round. Latency counts",
        "from the time at which a request was due. The attacker, the load and all nodes share the machine's cores. The control is",
        "the same attack on a second pair of nodes, which the gets do not use: beyond it, callers lose time because they share",
        "a node with the attacker.",
        "",
        "| attack | health p99 by round, ms | gets p50, µs | gets p99, µs | control's p99, µs | p99 relative to the control, by round "
        "| p99 relative to no attack, by round | errors |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, (title, _) in attacks.ATTACKS.items():
        rounds = results["attacks"][name]
        health = ", ".join(f"{it['health_p99_ms']:.1f}" for it in rounds)
        ratios = [it["gets"]["p99"] / none["gets"]["p99"] for it, none in zip(rounds, results["attacks"]["none"])]
        p50, p99 = (median(it["gets"][at] for it in rounds) for at in ("p50", "p99"))
        controls = [it["control"]["p99"] for it in rounds if "control" in it]
        control = _number(median(controls)) if controls else "–"
        beyond = ", ".join(f"{it['gets']['p99'] / c:.2f}" for it, c in zip(rounds, controls)) or "–"
        errors = sum(it["errors"] for it in rounds)
        to_none = ", ".join(f"{it:.2f}" for it in ratios)
        cells = [title, health, _number(p50), _number(p99), control, beyond, to_none, str(errors)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", f"Measured on: {_machine(results['machine'])}", ""])


def _without_samples(results: dict) -> dict:
    # The plots show the samples; in results.json they would be most of the file.
    def clean(value: object) -> object:
        if isinstance(value, dict):
            return {key: clean(it) for key, it in value.items() if key != "queues"}
        return [clean(it) for it in value] if isinstance(value, list) else value

    return clean(results)


def _machine(machine: dict) -> str:
    drives = "; ".join(
        f"{it['device']} ({it['filesystem']}, scheduler {it['scheduler']}, nr_requests {it['nr_requests']})"
        for it in machine.get("drives", [])
    )
    return (
        f"{machine.get('cpu', '?')}, {machine.get('cores', '?')}\ncores, {machine.get('memory_gib', '?')} GiB, "
        f"Linux {machine.get('kernel', '?')}; drive {drives}"
    )


def _head(results: dict) -> str:
    return f"""# Benchmarks

Written by `make bench` (profile `{results.get("profile", "?")}`): {_machine(results.get("machine", {}))}.

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
        lines.append(f"| {it['name']} | {_number(it['value'])} | {it['sign']} {_number(it['goal'])} | {mark} |")
    return "\n".join(lines) + "\n"


def _fio(rounds: list[list[dict]]) -> str:
    lines = ["## The limit: fio", "", "| depth | IOPS | CPU per I/O, µs | p50, µs | p99, µs |", "|---|---|---|---|---|"]
    for at, first in enumerate(rounds[0]):
        mid = lambda name, at=at: median(it[at][name] for it in rounds)
        cells = [_number(mid(name)) for name in ["iops", "cpu_us_per_io", "p50_us", "p99_us"]]
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
        cpu = [_number(mid(lambda run, part=part: run["cpu"][part] / served(run))) for part in ["io_cpu_us", "query_cpu_us", "client_cpu_us"]]
        reads = _number(mid(lambda run: run["nodes"]["drive_reads_per_row"] or 0))
        counted = _number(mid(lambda run: run["disk"]["reads"] / served(run)))
        busy = f"{mid(lambda run: run['disk']['busy']):.0%}"
        cells = [
            _number(mid(lambda run: run["rows_per_s"])),
            _number(mid(lambda run: run["requests_per_s"])),
            _number(mid(lambda run: run["latency_us"]["p50"])),
            _number(mid(lambda run: run["latency_us"]["p99"])),
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
        cells = [_number(median(run[field] for run in runs)) for field in fields]
        reads = median(run["disk"]["reads"] / run["requests"] for run in runs) if "disk" in runs[0] else None
        cells.append("" if reads is None else _number(reads))
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


# An I/O node's threads by name, and their part of a fill.
SCANS = "Lance's plan and decoding, encoding, copies for writing"
FILL_THREADS = {
    "bireme-io-yield": SCANS,
    "bireme-io-insis": SCANS,
    "bireme-io-fill": "reading the folder",
    "bireme-io": "the cores: writes, and their replicas of the directory",
}
OTHER_THREADS = "allocation, the journal, everything else"


def _fill_stages(fill: dict) -> dict[str, float]:
    """Returns each stage's CPU per GB filled, in seconds."""
    stages = dict.fromkeys([*FILL_THREADS.values(), OTHER_THREADS], 0.0)
    for thread, seconds in fill["threads_cpu_s_per_gb"].items():
        stages[FILL_THREADS.get(thread, OTHER_THREADS)] += seconds
    return stages


def _cache(cache: dict) -> str:
    rounds = cache["rounds"]
    mid = lambda value: _number(median(value(it) for it in rounds))
    policies = [it["policy"] for it in cache["eviction"]["traces"][0]["policies"]]
    lines = [
        "## The cache",
        "",
        f"Measured on: {_machine(cache.get('machine', {}))}.",
        "",
        f"Tables are in a folder, and the page cache is warm. For fills of vectors, the I/O node's environment has "
        f"{' '.join(f'`{name}={value}`' for name, value in FILLING.items())}; [performance.md](../performance.md#reads-while-the-cache-fills) says why.",
        "",
        "| what | measured |",
        "|---|---|",
        f"| filling 768-dimensional vectors, MB/s | {mid(lambda it: it['fill']['mb_per_s'])} |",
        f"| CPU of the I/O node per GB of them, seconds | {mid(lambda it: it['fill']['cpu_s_per_gb'])} |",
        *[f"| of that, {stage} | {mid(lambda it, stage=stage: _fill_stages(it['fill'])[stage])} |" for stage in _fill_stages(rounds[0]['fill'])],
        f"| Lance's scan of the same column, page cache warm, MB/s | {mid(lambda it: it['scan']['mb_per_s'])} |",
        f"| fio's writes of 256 KiB at depth 8, MB/s | {mid(lambda it: it['fio_write']['mb_per_s'])} |",
        f"| encoded extents, written and recorded in the journal, MB/s | {mid(lambda it: it['write']['mb_per_s'])} |",
        f"| as many bytes through tokio's file, synced, MB/s | {mid(lambda it: it['write']['tokio_mb_per_s'])} |",
        f"| capacity: most rows/s of those vectors, {rounds[0]['capacity']['request']['rows']} per batch | {mid(lambda it: it['capacity']['rows_per_s'])} |",
        f"| rows/s in time at 3 times that load, deadline of a batch 200 ms | {mid(lambda it: it['overload']['rows_per_s'])} |",
        f"| p99 of reads of 1,600 rows/s, no fill, µs | {mid(lambda it: it['reads_alone']['latency_us']['p99'])} |",
        f"| p99 of such reads while vectors are filled at full speed, µs | {mid(lambda it: it['reads_filling']['latency_us']['p99'])} |",
        f"| p99 of such reads while vectors are filled at 50 MiB/s, µs | {mid(lambda it: it['reads_budgeted']['latency_us']['p99'])} |",
        f"| start with {rounds[0]['recovery']['extents']:,} extents of one sector, ms | {mid(lambda it: median(it['recovery']['start_ms']))} |",
        *[
            f"| start with {fewer['extents']:,} such extents, ms | {mid(lambda it, at=at: median(it['recovery_of_fewer'][at]['start_ms']))} |"
            for at, fewer in enumerate(rounds[0]["recovery_of_fewer"])
        ],
        f"| of the start with the most extents, reading and decoding journals of {rounds[0]['recovery']['journal_bytes'] / 1e6:.0f} MB, ms | {mid(lambda it: median(it['recovery']['read_ms']))} |",
        f"| of that start, filling the directory, ms | {mid(lambda it: median(it['recovery']['place_ms']))} |",
        f"| directory per TB of vectors cached, MB | {mid(lambda it: it['directory']['directory_bytes_per_tb'] / 1e6)} |",
        "",
        f"Share of reads that a full drive serves, and in brackets the bytes written per byte filled, where above 1 "
        f"(`{cache['eviction']['command']}`):",
        "",
        f"| trace | {' | '.join(policies)} |",
        f"|---|{'---|' * len(policies)}",
    ]  # fmt: skip
    for trace in cache["eviction"]["traces"]:
        cells = [
            f"{it['hit_ratio']:.3f}" + (f" ({it['written_ratio']:.2f})" if it["written_ratio"] > 1 else "")
            for it in trace["policies"]
        ]
        lines.append(f"| {trace['trace']} | {' | '.join(cells)} |")
    lines += ["", "![Hit ratios](eviction.svg)", ""]
    return "\n".join(lines)


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


def _instructions(found: dict) -> str:
    lines = [
        f"## Instructions for {found['values']:,} random values of `{found['column']}` of TPC-H's lineitem",
        "",
        "Counted by callgrind, all processes together. Dollars are the price of the CPU for a million such queries at "
        f"{found['core_hour_dollars']:.4f} per core-hour and {found['instructions_per_second']:.1e} instructions per second.",
        "",
        "| | instructions per query | of these | $ per million queries |",
        "|---|---|---|---|",
    ]
    for name, parts in found["instructions_per_query"].items():
        processes = ", ".join(f"{key} {_number(value)}" for key, value in parts.items() if key not in ("sum", "all", "dollars_per_million"))
        lines.append(f"| {name} | {_number(parts['sum'])} | {processes} | {parts['dollars_per_million']:.2f} |")
    return "\n".join(lines) + "\n"


def _keys(found: dict) -> str:
    lines = [
        "## Gets by key",
        "",
        f"Measured on: {_machine(found['machine'])}.",
        "",
        "Gets of one row of ten columns by a key, all in memory. Bireme's go through both tiers, and CPU includes both and the",
        f"client ({CONCURRENCY} callers). `btree` is Bireme with `key_index = 0`, so that keys are looked up through the table's",
        "BTREE index; pylance's gets are filters in one process (2 threads), also through the BTREE.",
        "",
        "| | gets/s | gets per core-second | p50, µs | p99, µs |",
        "|---|---|---|---|---|",
    ]
    own = lambda run: run["latency_us"]
    for name, latency in [("bireme", own), ("btree", own), ("lance", _peer_latency)]:
        runs = found[name]
        mid = lambda value, runs=runs: _number(median(value(run) for run in runs))
        cells = [mid(lambda run, field=field: run[field]) for field in ["requests_per_s", "gets_per_core_s"]]
        cells += [mid(lambda run, part=part, latency=latency: latency(run)[part]) for part in ["p50", "p99"]]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    runs = found["bireme"]
    cpu = {
        part: _number(median(run["cpu"][f"{part}_cpu_us"] / run["requests"] for run in runs))
        for part in ["io", "query", "client"]
    }
    over = _number(over_pylance(found))
    lines += [
        "",
        f"Bireme's gets per core-second, relative to pylance's: {over}. CPU per get of Bireme, µs: I/O node {cpu['io']}, query "
        f"node {cpu['query']}, client {cpu['client']}.",
        "",
        "```console",
        *[f"# {name}\n$ {found[name][0]['command']}" for name in ["bireme", "lance"]],
        "```",
    ]
    return "\n".join(lines) + "\n"


def _lookups(found: dict) -> str:
    lines = [
        "## Look-ups of many keys",
        "",
        f"Measured on: {_machine(found['machine'])}.",
        "",
        "Rows of five columns of 20 bytes by a text key of 16 bytes, in memory unless a line says from the drive. Each",
        "look-up from the drive reads a sector of 4 KiB. A message without work counts as one key. Redis has as many keys as the",
        "table, and values of 100 bytes. CPU includes both tiers and the client.",
        "",
        "| | keys/s | spread | keys per core-second | CPU a key, µs: client, query node, I/O node | p50, µs | p99, µs |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, runs in found["runs"].items():
        rates = [run["keys_per_s"] for run in runs]
        spread = f"{_number(min(rates))} to {_number(max(rates))}"
        parts = ["client_cpu_us", "query_cpu_us", "io_cpu_us"]
        cpu = "–"
        if "cpu_us_per_key" in runs[0]:
            cpu = ", ".join(f"{median(run['cpu_us_per_key'][part] for run in runs):.2f}" for part in parts)
        latency = (lambda run: run["latency_us"]) if "latency_us" in runs[0] else _peer_latency
        times = [_number(median(latency(run)[part] for run in runs)) for part in ["p50", "p99"]]
        per_core = _number(median(run["keys_per_core_s"] for run in runs))
        cells = [lookups.TITLES[name], _number(median(rates)), spread, per_core, cpu, *times]
        lines.append(f"| {' | '.join(cells)} |")
    commands = [f"$ {run[0]['command']}" for run in found["runs"].values()]
    lines += ["", "```console", *commands, "```"]
    # Results of an earlier version of the bench have no joins.
    if "joins" in found:
        lines += ["", *joins.section(found["joins"])]
    return "\n".join(lines) + "\n"


def _clients(found: dict) -> str:
    lines = ["## LanceDB's client, and plain HTTP", "", f"Measured on: {_machine(found['machine'])}.", ""]
    lines += [
        "Searches by vector (k 50, nprobes 20, refine 10) of one column, one after the other, slab in memory. LanceDB's client",
        "and that of plain HTTP are Python; that of gRPC is `bireme bench search`, so only the CPU of the query node compares",
        "plain HTTP with gRPC. Recall is against exact neighbours of 30 questions. Hybrid searches are by vector and two words",
        "(k 10, reciprocal rank fusion); Bireme's recall is the share of LanceDB's rows, of 50 questions.",
        "",
        "| | p50, µs | CPU a search, ms: all processes | client | query node | recall |",
        "|---|---|---|---|---|---|",
    ]
    for name, runs in found["runs"].items():
        of = lambda field, runs=runs: median(run[field] for run in runs)
        node = "–" if name.endswith("local table") else f"{1e3 * of('query_cpu_s'):.2f}"
        recall = f"{found['recall'][name]:.3f}" if name in found["recall"] else "–"
        cpu = [f"{1e3 * of(field):.2f}" for field in ("cpu_s", "client_cpu_s")]
        lines.append(f"| {name} | {_number(of('p50_us'))} | {' | '.join(cpu)} | {node} | {recall} |")
    return "\n".join([*lines, ""])


def _store(found: dict) -> str:
    lines = ["## Over an object store that is far away", "", f"Measured on: {_machine(found['machine'])}.", ""]
    lines += [
        "The tables are in MinIO on the same machine. A relay in front of it delays each request, and sends each answer at",
        "90 MB/s at most: the relay \"30 ms\" by 30 ms, the other one as S3 is said to (median 30 ms, 99th percentile 200 ms).",
        "Searches by vector: k 50, nprobes 20, refine 10, by plain HTTP. \"Get\" is `bireme get`, with the start of its process,",
        "and for pylance a filter by key; \"take\" reads 1,000 random rows of all 16 columns of lineitem. Pylance's first request",
        "includes the opening of the table, Bireme's does not: its query node has opened it when it says that it is ready. The",
        "counts of requests begin with the start of the query node, and of the process with pylance. Of Bireme's three turns,",
        "the table shows the one whose first request took the median time.",
        "",
        "| relay | request, nothing cached | first, ms: Bireme, pylance | second, ms: Bireme, pylance | requests to the store for both: Bireme, pylance |",
        "|---|---|---|---|---|",
    ]
    relays = {name: it for name, it in found.items() if name != "machine"}
    for relay, it in relays.items():
        for kind, of in it["cold"].items():
            peer = lambda number, of=of: 1e3 * median(run["seconds"][number] for run in of["pylance"])
            times = [f"{1e3 * of['bireme']['seconds'][number]:,.0f}, {peer(number):,.0f}" for number in (0, 1)]
            requests = f"{of['bireme']['requests']}, {median(run['requests'] for run in of['pylance']):.0f}"
            lines.append(f"| {relay} | {kind} | {times[0]} | {times[1]} | {requests} |")
    lines += [
        "",
        "First searches of query nodes that have just started, over an I/O node that has the vectors and their index:",
        "",
        "| relay | median, ms | least and most, ms | requests to the store from the start on | pylance's first search, ms | its requests for two |",
        "|---|---|---|---|---|---|",
    ]
    for relay, it in relays.items():
        of = it["restarts"]
        times = [1e3 * seconds for seconds in of["seconds"]]
        peer = [1e3 * run["seconds"][0] for run in of["pylance"]]
        cells = [relay, f"{median(times):.0f}", f"{min(times):.0f}, {max(times):.0f}", f"{min(of['requests'])} to {max(of['requests'])}"]
        lines.append(f"| {' | '.join(cells)} | {median(peer):,.0f} | {median(run['requests'] for run in of['pylance']):.0f} |")
    near = found["30 ms"]
    small, together, takes = near["small_cache"], near["together"], near["takes"]
    rate = lambda title: small[title]["report"]["requests"] / small[title]["report"]["seconds"]
    busy = lambda title: (small[title]["cpu"]["io_cpu_us"] + small[title]["cpu"]["query_cpu_us"]) / 1e6 / small[title]["cpu"]["seconds"]
    pylance = " and ".join(f"{1e3 * seconds:,.0f}" for seconds in takes["pylance"])
    batches = ", ".join(f"{1e3 * seconds:,.0f}" for seconds in takes["seconds"])
    lines += [
        "",
        f"With a cache of a tenth of the index (which has {small['index_bytes'] / 1e6:.0f} MB), a query node answers {rate('tenth'):,.0f} searches/s (both",
        f"nodes use {busy('tenth'):.1f} cores, and the store gets {small['tenth']['requests']} requests); with a cache that holds all of it,",
        f"{rate('whole'):,.0f} ({busy('whole'):.1f} cores). RAM tier off. Four query nodes over empty drives that warm the index at the same time",
        f"cost the store {together['bytes'] / together['index_bytes']:.2f} times its bytes, in {together['requests']} requests. Ten batches of 1,000 random rows of",
        f"lineitem, which is on no drive at first, take {batches} ms, one after the other; pylance's first two {pylance} ms.",
        "",
        "A new version that adds one fragment:",
        "",
        "| fragments before | requests and MB until the query node serves it | of the first row of the new fragment (the I/O node opens the version) |",
        "|---|---|---|",
    ]
    for fragments, of in near["versions"].items():
        cells = [f"{of[step]['requests']}, {of[step]['bytes'] / 1e6:.2f} MB" for step in ("switch", "take")]
        lines.append(f"| {int(fragments):,} | {cells[0]} | {cells[1]} |")
    return "\n".join([*lines, ""])


def _searches(found: dict) -> str:
    search = found["search"]
    lines = [
        "## Searches with filters, and of words",
        "",
        f"Measured on: {_machine(found['machine'])}.",
        "",
        f"Searches by vector (k {search['k']}, nprobes {search['nprobes']}, refine {search['refine']}), slab in memory. A topic has",
        "one row in 2,000, and a BITMAP answers its filter; a BTREE answers the others. Ratios are taken within each round: the",
        "median, with the least and the most. A filter's first use finds the rows that pass it.",
        "",
        "| filter | CPU of both tiers, ms: query node, I/O node | over a plain search's | at a filter's first use | pylance's CPU, ms | pylance's over Bireme's |",
        "|---|---|---|---|---|---|",
    ]
    for name in [searches.PLAIN, *searches.SHARES]:
        runs, peer = found["runs"][name], found["runs"][f"{name}, pylance"]
        tiers = [f"{median(run[part] for run in runs) * 1e3:.2f}" for part in ("query_cpu_s", "io_cpu_s")]
        first = "–" if name == searches.PLAIN else _spread(searches.first_use(found, name))
        over = _spread(searches.relative(found, f"{name}, pylance", name))
        peers_ms = f"{median(run['cpu_s'] for run in peer) * 1e3:.1f}"
        cells = [name, ", ".join(tiers), _spread(searches.relative(found, name, searches.PLAIN)), first, peers_ms, over]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        "Searches of the table with ten payload columns. They return ten rows of two columns unless the table says otherwise:",
        "",
        "| search | CPU of both tiers, ms: query node, I/O node | pylance's CPU, ms | pylance's over Bireme's |",
        "|---|---|---|---|",
    ]
    for name in searches.OTHERS:
        runs, peer = found["runs"][name], found["runs"][f"{name}, pylance"]
        tiers = [f"{median(run[part] for run in runs) * 1e3:.2f}" for part in ("query_cpu_s", "io_cpu_s")]
        over = _spread(searches.relative(found, f"{name}, pylance", name))
        lines.append(f"| {name} | {', '.join(tiers)} | {median(run['cpu_s'] for run in peer) * 1e3:.1f} | {over} |")
    if f"{searches.PLAIN}, no index" in found["runs"]:
        lines += _unindexed(found)
    names = [name for name in found["runs"] if "command" in found["runs"][name][0]]
    commands = [f"$ {found['runs'][name][0]['command']}" for name in names]
    return "\n".join([*lines, "", "```console", *commands, "```"]) + "\n"


def _unindexed(found: dict) -> list[str]:
    lines = [
        "",
        "Searches of the table of documents with a filter by a column that has no index, each filter used once. The nodes' CPU for a",
        "new client is included, as it is in a plain search:",
        "",
        "| rows that pass | CPU of both tiers, ms: query node, I/O node | over a plain search's | pylance's CPU, ms | pylance's over Bireme's |",
        "|---|---|---|---|---|",
    ]
    plain = f"{searches.PLAIN}, no index"
    for name in [f"{title}, no index" for title in searches.UNINDEXED_SHARES]:
        runs, peer = found["runs"][name], found["runs"][f"{name}, pylance"]
        tiers = [f"{median(run[part] for run in runs) * 1e3:.2f}" for part in ("query_cpu_s", "io_cpu_s")]
        over = [_spread(searches.relative(found, *pair)) for pair in [(name, plain), (f"{name}, pylance", name)]]
        peers_ms = f"{median(run['cpu_s'] for run in peer) * 1e3:.1f}"
        lines.append(f"| {name.split(',')[0]} | {', '.join(tiers)} | {over[0]} | {peers_ms} | {over[1]} |")
    return lines


def _spread(ratios: list[float]) -> str:
    """Returns the median of the rounds, with the least and the most."""
    return f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def _peer_latency(run: dict) -> dict[str, float]:
    return {part: run[f"{part}_us"] for part in ["p50", "p99"]}


def _telemetry(turns: dict) -> str:
    count = len(turns["untold"]["search"])
    lines = [
        "## The cost of metrics and traces",
        "",
        "Two pairs of nodes run at the same time under the same load and share the CPUs; slabs are in memory. One pair exports",
        "what the table says, the other its metrics, which are scraped and sent. Rates are relative to the other pair's: the",
        f"median of {count} turns, with the least and the most.",
        "",
        "| exported | searches/s | takes of one row/s |",
        "|---|---|---|",
    ]
    return "\n".join([*lines, *_relative_rates(turns, TELEMETRY_TITLES, ["search", "take"])]) + "\n"


def _access(turns: dict) -> str:
    count = len(turns["control"]["get"])
    lines = [
        "## The cost of access control and TLS",
        "",
        "Two pairs of nodes run at the same time under the same load and share the CPUs; slabs are in memory. Callers of one",
        "pair are checked as the table says; the other pair's access is open, without TLS. Rates are relative to the other",
        f"pair's: the median of {count} turns, with the least and the most.",
        "",
        "| callers | " + " | ".join(load.title for load in access.LOADS.values()) + " |",
        "|---|" + "---|" * len(access.LOADS),
    ]
    return "\n".join([*lines, *_relative_rates(turns, access.TITLES, access.LOADS)]) + "\n"


def _fairness(results: dict) -> str:
    rounds = results["rounds"]
    capacity = _number(median(it["rows_per_s"] for it in rounds))
    lines = [
        "## Fairness between grants",
        "",
        "Two grants of equal weight use one query node and one I/O node, and all rows come from the drive. When both",
        f"send takes of {fairness.ROWS} rows as fast as they can, they reach {capacity} rows/s together. In the",
        "measurement, the other grant asks for half of that, which is its share, and then for ten times as much. The",
        "latency of a request counts from the time at which it was due.",
        "",
        "| the good grant's requests | per second | p50, p99 in µs, other at its share "
        "| p50, p99 in µs, other at ten times its share | ratio of these p99, by round | errors "
        "| the other's rows/s: at its share, at ten times |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, load in fairness.LOADS.items():
        turns = [it[name] for it in rounds]
        mid = lambda value: _number(median(value(it) for it in turns))
        latencies = [
            ", ".join(mid(lambda it, turn=turn, part=part: it[turn]["good"]["latency_us"][part]) for part in ("p50", "p99"))
            for turn in fairness.TIMES
        ]
        rises = ", ".join(f"{fairness.rise(it):.2f}" for it in turns)
        errors = sum(sum(it[turn]["good"]["errors"].values()) for it in turns for turn in fairness.TIMES)
        rows = ", ".join(mid(lambda it, turn=turn: it[turn]["other"]["rows_per_s"]) for turn in fairness.TIMES)
        cells = [load.title, mid(lambda it: it["own"]["good"]["requests_per_s"]), *latencies, rises, str(errors), rows]
        lines.append(f"| {' | '.join(cells)} |")
    commands = rounds[0]["rows"]["flood"]
    shown = [f"# {name}\n$ {commands[name]['command']}" for name in fairness.GRANTS]
    return "\n".join([*lines, "", "```console", *shown, "```", "", f"Measured on: {_machine(results['machine'])}", ""])


def _relative_rates(turns: dict, titles: dict[str, str], loads: Iterable[str]) -> list[str]:
    """Returns a row for each kind of nodes: for each load, the rate relative to the nodes that ran beside them."""
    rows = []
    for name, title in titles.items():
        cells = []
        for load in loads:
            ratios = [relative_rate([turn]) for turn in turns[name][load]]
            cells.append(f"{relative_rate(turns[name][load]):.3f} ({min(ratios):.3f} to {max(ratios):.3f})")
        rows.append(f"| {title} | {' | '.join(cells)} |")
    return rows


def _commands(steps: dict) -> str:
    lines = ["## Commands", "", "```console"]
    for name, runs in steps.items():
        first = runs[0][0] if isinstance(runs[0], list) else runs[0]
        lines.append(f"# {name}\n$ {first.get('command', '')}")
    return "\n".join([*lines, "```", ""])


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    if abs(value) >= 1e7:
        return f"{value:.3g}"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.4g}"
