"""Measures Bireme beside the limits of the machine, in turns: copies of rows, distances and a bare HTTP/2 stream of the
same rows, calls that need no work, and the drive's latency. Rates of different machines can't be compared, but their
ratios to these limits can."""

from collections.abc import Callable
from pathlib import Path
from statistics import median

from . import fio, machine, memory
from .bireme import Bireme, tool
from .profile import Profile
from .tier import Tier

TABLE = "vectors"
WARM_UP_SECONDS = 1.0
VECTORS, SCORED = ["--columns", "vector"], ["--rerank", "50"]
ALONE = ["--concurrency", "1", "--threads", "1"]
TITLES = {
    "copies": "rows copied in memory",
    "distances": "rows compared with a vector in memory",
    "stream": "rows over a bare HTTP/2 stream",
    "whole": "whole rows, slab in memory",
    "whole_ram": "whole rows, RAM tier",
    "scored_ram": "rows scored on the node, RAM tier",
    "fio": "fio, one read of 4 KiB at a time",
    "empty": "no work, unary, one caller",
    "one_row": "one row through both tiers from the drive, one at a time",
}


def measure(profile: Profile, binary: Path, logs: Path) -> dict:
    """Measures everything in each round, in turn."""
    slabs = {name: [folder / name for folder in profile.drive_folders] for name in ["slab-limits", "slab-limits-ram"]}
    try:
        with memory.folder(profile) as folder, Bireme(binary, logs, profile.folder) as bireme:
            print("writing the drive's slabs", flush=True)
            drive_slabs, ram_slabs = slabs.values()
            fio.write_once(drive_slabs, profile.slab_gib)
            drive = Tier.start(bireme, profile, [TABLE], drive_slabs, keep=True, BIREME_IO_OVERWRITE="true")
            in_memory = Tier.start(bireme, profile, [TABLE], [folder / "slab-0"])
            ram = Tier.start(bireme, profile, [TABLE], ram_slabs, profile.ram_tier_gib)
            for tier in [drive, in_memory, ram]:
                bireme.warm(tier.query, TABLE, ["vector"])
            ram.fill_ram(TABLE, *VECTORS, *SCORED)
            runs = _rounds(profile, binary, drive, drive_slabs, in_memory, ram)
    finally:
        for slab in sum(slabs.values(), []):
            slab.unlink(missing_ok=True)
    return {"runs": runs, "machine": machine.describe(profile.drive_folders)}


def _rounds(profile: Profile, binary: Path, drive: Tier, slabs: list[Path], in_memory: Tier, ram: Tier) -> dict:
    runs: dict[str, list[dict]] = {name: [] for name in TITLES}
    rows = ["--rows", str(profile.rows), "--dimension", str(profile.dimension)]
    slab_bytes = profile.rows * 4096 // len(slabs)
    for number in range(profile.rounds):
        seconds, seed = profile.seconds, ["--seed", str(number + 100)]
        one = [*ALONE, "--connections", "1", *seed]
        loads: dict[str, Callable[[], dict]] = {
            "limits": lambda: tool(binary, "bench", "limits", *rows, "--seconds", str(seconds)),
            "whole": lambda: in_memory.fetch(TABLE, seconds, *VECTORS, *seed),
            "whole_ram": lambda: ram.fetch(TABLE, seconds, *VECTORS, *seed),
            "scored_ram": lambda: ram.fetch(TABLE, seconds, *VECTORS, *SCORED, *seed),
            "fio": lambda: fio.random_reads(slabs, slab_bytes, 1, 1, max(2.0, seconds / 2)),
            "empty": lambda: _warm(drive, "empty", "", seconds, *one),
            "one_row": lambda: _warm(drive, "take", TABLE, seconds, "--columns", "vector", *one),
        }
        for name in list(loads)[:: -1 if number % 2 else 1]:
            report = loads[name]()
            if name == "limits":
                for limit in ["copies", "distances", "stream"]:
                    runs[limit].append(report[limit] | {"command": report["command"]})
            else:
                runs[name].append(report)
        done = ", ".join(f"{name} {_rate(of[-1]):,.0f}/s" for name, of in runs.items())
        print(f"limits, round {number + 1} of {profile.rounds}: {done}", flush=True)
    return runs


def _warm(tier: Tier, kind: str, table: str, seconds: float, *arguments: str) -> dict:
    tier.bench(kind, table, WARM_UP_SECONDS, *arguments)
    report = tier.bench(kind, table, seconds, *arguments)
    if report["errors"]:
        raise RuntimeError(f"some requests failed: {report}")
    return report


def _rate(run: dict) -> float:
    return run.get("iops") or run.get("rows_per_s") or run["requests_per_s"]


def _p50(run: dict) -> float | None:
    return run["latency_us"]["p50"] if "latency_us" in run else run.get("p50_us")


def goals(found: dict) -> list[tuple[str, float, float, bool]]:
    """Returns each goal's name, the median of the rounds, the wanted value, and whether more is better."""
    runs = found["runs"]
    over = lambda mine, limit: median(_rate(a) / _rate(b) for a, b in zip(runs[mine], runs[limit], strict=True))
    above = [
        _p50(row) - _p50(read) - 2 * _p50(call)
        for row, read, call in zip(runs["one_row"], runs["fio"], runs["empty"], strict=True)
    ]
    return [
        ("whole vectors, slab in memory: rows/s, relative to a bare HTTP/2 stream of as many bytes", over("whole", "stream"), 0.45, True),
        ("whole vectors, RAM tier: rows/s, relative to a bare HTTP/2 stream of as many bytes", over("whole_ram", "stream"), 0.7, True),
        ("vectors scored on the node, RAM tier: rows/s, relative to distances alone", over("scored_ram", "distances"), 0.5, True),
        ("one row through both tiers: p50 above fio's at depth 1 and two calls without work, µs", median(above), 20, False),
    ]


def section(found: dict) -> list[str]:
    """Returns the lines of the report's section."""
    lines = [
        "## Beside the machine's limits",
        "",
        "Rows are vectors, in batches of 500. Copies, distances and the bare stream are of one process without nodes (`bireme",
        "bench limits`). The stream sends neighbouring rows from memory, with the library, windows and frames of Bireme's",
        "streams, to as many client threads as there are cores.",
        "",
        "| | per second | spread | p50, µs |",
        "|---|---|---|---|",
    ]
    for name, runs in found["runs"].items():
        rates, times = [_rate(run) for run in runs], [_p50(run) for run in runs]
        p50 = "–" if None in times else f"{median(times):,.1f}"
        lines.append(f"| {TITLES[name]} | {median(rates):,.0f} | {min(rates):,.0f} to {max(rates):,.0f} | {p50} |")
    commands = dict.fromkeys(f"$ {runs[0]['command']}" for runs in found["runs"].values())
    return [*lines, "", "```console", *commands, "```", ""]
