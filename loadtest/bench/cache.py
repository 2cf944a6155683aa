"""Measures the cache: the speed of fills and their cost to reads, hit ratios, restarts, and overload."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from statistics import median

from . import disk, fio, machine
from .bireme import Bireme, tool
from .profile import Profile
from .figures import rounded

RECOVERED_EXTENTS = 1_000_000
# The numbers of extents with which starts are measured, besides the profile's.
FEWER_EXTENTS = [10_000, 100_000, 300_000]
# Extents of 4 MiB, the usual size, to measure the directory's size.
FULL_EXTENTS = 50_000
FULL_SECTORS = 1024
# Both Bireme and fio write this much in each round.
WRITTEN_GIB = 4
# Batches per second while the cache fills: far below what the drive can serve.
RATE = 100
RATE_BATCH = 16
BUDGET = "50MiB"
# Reads without a full-speed fill are measured for this many times the profile's seconds: the p99 of 400 requests rests
# on the slowest four.
PATIENCE = 3
# The table is in a folder. A kernel without preemption keeps the CPU while it copies one read's bytes from the page
# cache, and Lance reads up to 16 MiB at a time by default. Reads from an object store do not have this problem.
FILLING = {"LANCE_MAX_IOP_SIZE": str(256 << 10)}
# Filling the vectors once takes less time than measuring the reads beside it, so half of them are filled again as
# another table.
AGAIN = "vectors-again"
# The overload is this many times the capacity. A batch would spend about its whole time limit in the drive's queue.
OVERLOAD = 3
OVERLOAD_BATCH = 50
OVERLOAD_TIMEOUT = "200ms"


def measure(profile: Profile, binary: Path, logs: Path) -> dict:
    """Runs every step once per round, except the eviction simulation, which uses no drive."""
    results: dict = {
        "machine": machine.describe(profile.drive_folders),
        "eviction": tool(binary, "bench", "eviction"),
    }
    _make_again(profile)
    rounds: list[dict] = []
    for number in range(profile.rounds):
        print(f"cache, round {number + 1} of {profile.rounds}", flush=True)
        rounds.append(_round(profile, binary, logs, number))
        print("  " + ", ".join(f"{name} {value:.3g}" for name, value in _summary(rounds[-1]).items()), flush=True)
    return results | {"rounds": rounds}


def _make_again(profile: Profile) -> None:
    """Copies the table of vectors under another name, by hard links, which take no space."""
    shutil.rmtree(profile.table(AGAIN), ignore_errors=True)
    shutil.copytree(profile.table("vectors"), profile.table(AGAIN), copy_function=os.link)


def _round(profile: Profile, binary: Path, logs: Path, number: int) -> dict:
    trial = profile.drive_folders[0] / "recovery-trial"
    slabs = [folder / "slab-cache" for folder in profile.drive_folders]
    measured: dict = {}
    writes = {
        "write": lambda: tool(binary, "bench", "write", "--drive", str(trial), "--size", f"{WRITTEN_GIB}GiB"),
        "fio_write": lambda: fio.sequential_writes(slabs, WRITTEN_GIB),
    }
    # Writes come first, and their order alternates: a drive may still be busy with data that was written before and
    # has been removed since.
    for name in list(writes)[:: -1 if number % 2 else 1]:
        os.sync()
        measured[name] = writes[name]()
    measured |= {
        "recovery": tool(binary, "bench", "recovery", "--drive", str(trial), "--extents", str(RECOVERED_EXTENTS)),
        "recovery_of_fewer": [
            tool(binary, "bench", "recovery", "--drive", str(trial), "--extents", str(extents)) for extents in FEWER_EXTENTS
        ],
        "directory": tool(
            binary, "bench", "recovery", "--drive", str(trial), "--starts", "1",
            "--extents", str(FULL_EXTENTS), "--sectors", str(FULL_SECTORS),
        ),
    }  # fmt: skip
    try:
        with Bireme(binary, logs, profile.folder) as bireme:
            measured["scan"] = _scan(profile)
            measured["fill"] = _fill(profile, bireme, slabs)
            measured |= _overload(profile, bireme, slabs, number)
            for name, rate in [("alone", None), ("filling", "0"), ("budgeted", BUDGET)]:
                measured[f"reads_{name}"] = _reads(profile, bireme, slabs, rate, number)
    finally:
        for slab in slabs:
            slab.unlink(missing_ok=True)
    return measured


def _summary(measured: dict) -> dict[str, float]:
    return {
        "recovery ms": min(measured["recovery"]["start_ms"]),
        "fill MB/s": measured["fill"]["mb_per_s"],
        "scan MB/s": measured["scan"]["mb_per_s"],
        "p99 alone us": measured["reads_alone"]["latency_us"]["p99"],
        "filling": measured["reads_filling"]["latency_us"]["p99"],
        "budgeted": measured["reads_budgeted"]["latency_us"]["p99"],
        "rows/s at capacity": measured["capacity"]["rows_per_s"],
        "at 3 times that": measured["overload"]["rows_per_s"],
    }


def _scan(profile: Profile) -> dict:
    command = [sys.executable, "-m", "bench.scan", profile.table("vectors"), "vector"]
    # The first run brings the files into the page cache; the second counts.
    for _ in range(2):
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout) | {"command": " ".join(command[2:])}


def _fill(profile: Profile, bireme: Bireme, slabs: list[Path]) -> dict:
    io = bireme.io_node(slabs, profile.slab_gib, **FILLING)
    query = bireme.query_node(io, {"vectors": profile.table("vectors")})
    bireme.ready(query, ["vectors"])
    watch = disk.Watch(profile.drive_folders)
    began, cpu, threads = time.monotonic(), io.cpu_us(), io.cpu_us_by_threads()
    steps = bireme.run(query, "warm", "vectors", "--columns", "vector")
    seconds, cpu, threads = time.monotonic() - began, io.cpu_us() - cpu, io.cpu_us_by_threads() - threads
    written = steps[-1]["bytes_written"]
    query.stop()
    io.stop()
    # The bytes that a scan of the column returns: padding to sectors does not count as throughput.
    useful = profile.rows * profile.dimension * 4
    return {
        "seconds": seconds,
        "mb_per_s": useful / seconds / 1e6,
        "bytes_written": written,
        "cpu_s_per_gb": cpu / 1e6 / (useful / 1e9),
        "threads_cpu_s_per_gb": {name: us / 1e6 / (useful / 1e9) for name, us in threads.items()},
        "disk_reads": watch.counted().reads,
        "command": "bireme warm vectors --columns vector",
    }


def _overload(profile: Profile, bireme: Bireme, slabs: list[Path], number: int) -> dict[str, dict]:
    """Measures the capacity in rows/s of cached vectors, and the rows/s answered at a multiple of that load."""
    io = bireme.io_node(slabs, profile.slab_gib, keep=True)
    query = bireme.query_node(io, {"vectors": profile.table("vectors")})
    bireme.ready(query, ["vectors"])
    arguments = ["--io-endpoint", io.endpoint, "--columns", "vector", "--rows", str(OVERLOAD_BATCH), "--seed", str(number)]
    bireme.bench(query, "fetch", "vectors", 1, *arguments)
    capacity = bireme.bench(query, "fetch", "vectors", profile.seconds, *arguments, "--concurrency", "64")
    rate = OVERLOAD * capacity["requests_per_s"]
    load = ["--rate", f"{rate:.0f}", "--concurrency", "4096", "--timeout", OVERLOAD_TIMEOUT]
    overload = bireme.bench(query, "fetch", "vectors", profile.seconds, *arguments, *load)
    query.stop()
    io.stop()
    return {"capacity": capacity, "overload": overload}


def _reads(profile: Profile, bireme: Bireme, slabs: list[Path], fill_rate: str | None, number: int) -> dict:
    """Measures reads of the payload at a fixed rate, while vectors are filled at `fill_rate`, or not at all if None."""
    io = bireme.io_node(slabs, profile.slab_gib, BIREME_IO_FILL_RATE="0")
    tables = {name: profile.table(name) for name in ["vectors", AGAIN, "payload"]}
    query = bireme.query_node(io, tables)
    bireme.ready(query, list(tables))
    bireme.warm(query, "payload")
    query.stop()
    io.stop()
    # The restarted node finds the cached payload again, and has the requested fill rate.
    io = bireme.io_node(slabs, profile.slab_gib, keep=True, BIREME_IO_FILL_RATE=fill_rate or "0", **FILLING)
    query = bireme.query_node(io, tables)
    bireme.ready(query, list(tables))
    arguments = ["--io-endpoint", io.endpoint, "--rows", str(RATE_BATCH), "--rate", str(RATE), "--seed", str(number)]
    # This short load opens the table, so that the measurement does not include it.
    bireme.bench(query, "fetch", "payload", 1, *arguments)
    filling = threading.Thread(target=_warm_while_it_lasts, args=(profile, bireme, query), daemon=True)
    if fill_rate is not None:
        filling.start()
        time.sleep(0.5)
    at_full_speed = fill_rate == "0"
    seconds = profile.seconds if at_full_speed else PATIENCE * profile.seconds
    report = bireme.bench(query, "fetch", "payload", seconds, *arguments)
    if fill_rate is not None and not filling.is_alive():
        raise RuntimeError("the fill ended before the reads beside it did: give it more rows, or the reads fewer seconds")
    query.process.kill()
    io.process.kill()
    query.process.wait()
    io.process.wait()
    return report


def _warm_while_it_lasts(profile: Profile, bireme: Bireme, query: object) -> None:
    try:
        bireme.run(query, "warm", "vectors", "--columns", "vector")
        bireme.run(query, "warm", AGAIN, "--columns", "vector", "--rows", f"0..{profile.rows // 2}")
    except RuntimeError:
        # The nodes are killed once the reads are measured.
        return


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


def section(found: dict) -> list[str]:
    """Returns the lines of the report's section."""
    rounds = found["rounds"]
    mid = lambda value: rounded(median(value(it) for it in rounds))
    policies = [it["policy"] for it in found["eviction"]["traces"][0]["policies"]]
    lines = [
        "## The cache",
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
        f"(`{found['eviction']['command']}`):",
        "",
        f"| trace | {' | '.join(policies)} |",
        f"|---|{'---|' * len(policies)}",
    ]  # fmt: skip
    for trace in found["eviction"]["traces"]:
        cells = [
            f"{it['hit_ratio']:.3f}" + (f" ({it['written_ratio']:.2f})" if it["written_ratio"] > 1 else "")
            for it in trace["policies"]
        ]
        lines.append(f"| {trace['trace']} | {' | '.join(cells)} |")
    return [*lines, "", "![Hit ratios](eviction.svg)", ""]
