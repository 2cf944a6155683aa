"""Measures look-ups on Lookup streams beside single Gets, the same rows fetched by address, messages that need no work,
pylance and Redis, in the RAM tier; look-ups from the drive beside fio's reads of it; and a look-up of every key beside joins."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median

from . import fio, joins, machine, memory, peers
from .bireme import Bireme
from .keys import build_index
from .profile import Profile
from .redis import Redis
from .tables import PAIR_BYTES
from .tier import Tier, core_seconds
from .figures import peer_latency, rounded

TABLE, KEY = "pairs", "key"
WARM_UP_SECONDS = 1.0
FETCH_ROWS = 500
# The depths at which fio reads the drive; the best one counts.
FIO_DEPTHS = [128, 256, 512]
# The numbers of connections of the same load.
CONNECTIONS = [1, 5, 10, 100]

# One request after the other, on one connection.
ALONE = ["--concurrency", "1", "--threads", "1", "--connections", "1"]

# The loads of `bench get`: title, arguments.
GETS = {
    "lookup_64": ("Lookup, 64 keys a batch", ["--streams", "1", "--keys", "64", "--concurrency", "64"]),
    "lookup_64_zipfian": (
        "Lookup, 64 keys a batch, by Zipf's law",
        ["--streams", "1", "--keys", "64", "--concurrency", "64", "--distribution", "zipfian"],
    ),
    "lookup_64_missing": (
        "Lookup, 64 absent keys a batch",
        ["--streams", "1", "--keys", "64", "--concurrency", "64", "--distribution", "missing"],
    ),
    "lookup_16": ("Lookup, 16 keys a batch", ["--streams", "1", "--keys", "16", "--concurrency", "128"]),
    "lookup_1_alone": (
        "Lookup, one key a batch, one at a time",
        ["--streams", "1", "--keys", "1", *ALONE],
    ),
    "lookup_1": ("Lookup, one key a batch", ["--streams", "1", "--keys", "1", "--concurrency", "512"]),
    **{
        f"lookup_64_on_{count}": (
            f"Lookup, 64 keys a batch, 100 in flight, connections: {count}",
            ["--streams", "1", "--keys", "64", "--concurrency", "100", "--connections", str(count)],
        )
        for count in CONNECTIONS
    },
    "get_64": ("Get, 64 keys", ["--keys", "64", "--concurrency", "32"]),
    "get_1": ("Get, one key, 64 callers", ["--keys", "1", "--concurrency", "64"]),
    "get_1_alone": ("Get, one key, one caller", ["--keys", "1", *ALONE]),
}
# The loads of `bench empty`, which show what server and client cost: title, arguments.
EMPTY = {
    "empty_stream": ("no work, on a stream", ["--streams", "1", "--concurrency", "512"]),
    "empty_stream_alone": (
        "no work, on a stream, one at a time",
        ["--streams", "1", *ALONE],
    ),
    "empty_call": ("no work, unary, 64 callers", ["--concurrency", "64"]),
    "empty_call_alone": ("no work, unary, one caller", ALONE),
}
# The name of a goal, which README.md shows too.
KEYS_PER_S = "keys/s on a Lookup stream, 64 a batch"
FETCH = "fetch"
FETCH_ALONE = "fetch_1_alone"
TAKE = "take_1_alone"
DRIVE = "drive_64"
DRIVE_LOAD = ["--streams", "1", "--keys", "64", "--concurrency", "32"]
FIO = "fio"
# The loads of pylance: title, keys in a get.
PYLANCE = {
    "pylance_64": ("pylance, `IN` of 64 keys, 2 threads", 64),
    "pylance_1": ("pylance, one key, 2 threads", 1),
}
# The loads of Redis: title, requests in flight on each connection, requests for each second of the profile.
REDIS = {
    "redis_get": ("Redis, GET, 50 connections", 1, 50_000),
    "redis_16": ("Redis, GET, 50 connections, 16 pipelined", 16, 400_000),
}
TITLES = {name: title for name, (title, _) in (GETS | EMPTY).items()} | {
    FETCH: f"the same rows by address, {FETCH_ROWS} a batch",
    FETCH_ALONE: "one row by address on a stream to the I/O node, one at a time",
    TAKE: "one row by address through both tiers (Take), one at a time",
    DRIVE: "Lookup, 64 keys a batch, from the drive",
    FIO: "fio, random reads of 4 KiB, best depth",
    **{name: title for name, (title, _) in PYLANCE.items()},
    **{name: title for name, (title, *_) in REDIS.items()},
}


def measure(profile: Profile, binary: Path, logs: Path) -> dict:
    """Measures each load in each round, in turn. Keys without a row count too."""
    nodes = Bireme(binary, logs, profile.folder)
    slabs = [folder / "slab-pairs" for folder in profile.drive_folders]
    try:
        with memory.folder(profile) as folder, nodes as bireme, Redis(profile.pair_rows) as redis:
            tier = Tier.start(bireme, profile, [TABLE], [folder / "slab-0"], profile.ram_tier_gib)
            print("writing the drive's slabs", flush=True)
            fio.write_once(slabs, profile.slab_gib)
            drive = Tier.start(bireme, profile, [TABLE], slabs, keep=True, BIREME_IO_OVERWRITE="true")
            for it in [tier, drive]:
                bireme.warm(it.query, TABLE)
                build_index(it, TABLE, KEY)
            tier.fill_ram(TABLE, "--rows", str(FETCH_ROWS))
            with tempfile.TemporaryDirectory(dir=profile.folder) as files:
                keys = Path(files) / "keys.parquet"
                joins.write_keys(profile, TABLE, KEY, keys)
                whole = joins.run(tier, profile, TABLE, keys, Path(files) / "joined.parquet")
                runs, joined = _rounds(profile, tier, drive, slabs, redis, whole)
    finally:
        for slab in slabs:
            slab.unlink(missing_ok=True)
    return {"runs": runs, "joins": joined, "machine": machine.describe([profile.folder])}


def _rounds(
    profile: Profile, tier: Tier, drive: Tier, slabs: list[Path], redis: Redis, whole: dict[str, Callable[[], dict]]
) -> tuple[dict[str, list[dict]], dict[str, list[dict]]]:
    runs: dict[str, list[dict]] = {name: [] for name in TITLES}
    joined: dict[str, list[dict]] = {name: [] for name in whole}
    for number in range(profile.rounds):
        loads: dict[str, Callable[[], dict]] = {
            name: lambda arguments=arguments: _get(tier, profile, number, arguments)
            for name, (_, arguments) in GETS.items()
        }
        loads |= {
            name: lambda arguments=arguments: _empty(tier, profile, arguments) for name, (_, arguments) in EMPTY.items()
        }
        many, alone = ["--rows", str(FETCH_ROWS), "--concurrency", "16"], ["--rows", "1", "--streams", "1", *ALONE[:4]]
        loads[FETCH] = lambda: _fetch(tier, profile, number, many)
        loads[FETCH_ALONE] = lambda: _fetch(tier, profile, number, alone)
        loads[TAKE] = lambda: _take(tier, profile, number)
        loads[DRIVE] = lambda: _get(drive, profile, number, DRIVE_LOAD)
        loads[FIO] = lambda: _fio(profile, slabs)
        loads |= {name: lambda keys=keys: _pylance(profile, number, keys) for name, (_, keys) in PYLANCE.items()}
        loads |= {
            name: lambda requests=requests, pipelined=pipelined: redis.get(int(requests * profile.seconds), pipelined)
            for name, (_, pipelined, requests) in REDIS.items()
        }
        # Loads of one caller follow each other, because their latencies are compared and depend on what ran before.
        order = sorted(loads, key=lambda name: name.endswith("_alone"))
        for name in order[:: -1 if number % 2 else 1]:
            runs[name].append(loads[name]())
        for name in list(whole)[:: -1 if number % 2 else 1]:
            joined[name].append(whole[name]())
        done = ", ".join(f"{name} {of[-1]['keys_per_s']:,.0f}" for name, of in (runs | joined).items())
        print(f"lookups, round {number + 1} of {profile.rounds}, keys/s: {done}", flush=True)
    return runs, joined


def _get(tier: Tier, profile: Profile, number: int, arguments: list[str]) -> dict:
    load = ["--key-column", KEY, "--seed", str(number), *arguments]
    tier.bench("get", TABLE, WARM_UP_SECONDS, *load)
    report = tier.bench("get", TABLE, profile.seconds, *load)
    keys = report["rows"] + report["missing_rows"]
    is_absent = "missing" in arguments
    if report["errors"] or report["rows" if is_absent else "missing_rows"]:
        raise RuntimeError(f"some keys got another answer than expected: {report}")
    return _rates(report, keys)


def _empty(tier: Tier, profile: Profile, arguments: list[str]) -> dict:
    tier.bench("empty", "", WARM_UP_SECONDS, *arguments)
    report = tier.bench("empty", "", profile.seconds, *arguments)
    if report["errors"]:
        raise RuntimeError(f"some messages failed: {report}")
    return _rates(report, report["requests"])


def _fetch(tier: Tier, profile: Profile, number: int, arguments: list[str]) -> dict:
    load = [*arguments, "--seed", str(number)]
    tier.fetch(TABLE, WARM_UP_SECONDS, *load)
    report = tier.fetch(TABLE, profile.seconds, *load)
    return _rates(report, report["rows"])


def _take(tier: Tier, profile: Profile, number: int) -> dict:
    load = ["--rows", "1", *ALONE, "--seed", str(number)]
    tier.bench("take", TABLE, WARM_UP_SECONDS, *load)
    report = tier.bench("take", TABLE, profile.seconds, *load)
    return _rates(report, report["rows"])


def _fio(profile: Profile, slabs: list[Path]) -> dict:
    slab_bytes = profile.pair_rows * PAIR_BYTES // len(slabs)
    runs = [fio.random_reads(slabs, slab_bytes, depth, profile.jobs, profile.seconds / 2) for depth in FIO_DEPTHS]
    best = max(runs, key=lambda it: it["iops"])
    latency = {part: best[f"{part}_us"] for part in ["p50", "p99"]}
    return best | {
        "keys_per_s": best["iops"],
        "keys_per_core_s": 1e6 / best["cpu_us_per_io"],
        "latency_us": latency,
    }


def _pylance(profile: Profile, number: int, keys: int) -> dict:
    load = ["--key", KEY, "--keys", str(keys), "--seed", str(number), f"--warm-up={WARM_UP_SECONDS}"]
    report = peers.run(profile.table(TABLE), "get", profile.seconds, *load)
    if "error" in report:
        raise RuntimeError(f"{report['command']}: {report['error']}")
    return report | {"keys_per_s": report["rows_per_s"], "keys_per_core_s": report["rows_per_core_s"]}


def _rates(report: dict, keys: int) -> dict:
    return report | {
        "keys_per_s": keys / report["seconds"],
        "keys_per_core_s": keys / core_seconds(report),
        "cpu_us_per_key": {part: us / keys for part, us in report["cpu"].items()},
    }


def ratio(found: dict, name: str, over: str, per: str = "keys_per_s") -> list[float]:
    """Returns the rate of one load relative to another's, in each round."""
    runs = found["runs"]
    return [mine[per] / theirs[per] for mine, theirs in zip(runs[name], runs[over], strict=True)]


def goals(found: dict) -> list[tuple[str, float, float, bool]]:
    """Returns the name, the median of the rounds and the goal of each ratio, and whether more is better. Leaves out the
    ratios of loads that `found` does not have, because it is of an earlier version of the bench."""
    rate, cpu = "keys_per_s", "keys_per_core_s"
    wanted = [
        ("keys/s on a Lookup stream, 64 a batch, relative to the same rows by address", "lookup_64", FETCH, rate, 0.6),
        ("keys/s on a Lookup stream, 64 a batch, from the drive, relative to fio's reads/s", DRIVE, FIO, rate, 0.95),
        ("absent keys/s on a Lookup stream, relative to present ones", "lookup_64_missing", "lookup_64", rate, 2),
        ("keys/s on a Lookup stream, one a batch, relative to messages without work", "lookup_1", "empty_stream", rate, 0.4),
        ("gets/s of one key, 64 callers, relative to calls without work", "get_1", "empty_call", rate, 0.6),
        ("gets/s of one key, one caller, relative to calls without work", "get_1_alone", "empty_call_alone", rate, 0.6),
        ("keys on a Lookup stream per core-second, 16 a batch, relative to Redis's GET, 16 pipelined", "lookup_16", "redis_16", cpu, 1),
        ("keys on a Lookup stream per core-second, relative to pylance's `IN` of 64", "lookup_64", "pylance_64", cpu, 10),
        ("keys on a Lookup stream per core-second, 64 a batch, relative to pylance's gets of one key", "lookup_64", "pylance_1", cpu, 100),
    ]
    has = lambda *names: all(name in found["runs"] for name in names)
    judged = [
        (name, median(ratio(found, mine, over, per)), goal, True)
        for name, mine, over, per, goal in wanted
        if has(mine, over)
    ]
    judged.insert(0, (KEYS_PER_S, median(run[rate] for run in found["runs"]["lookup_64"]), 1_000_000, True))
    if has("lookup_1_alone", "empty_stream_alone"):
        # A batch of one key is alone in each process, so its CPU is the fixed cost of a batch.
        batch = median(1 / it for it in ratio(found, "lookup_1_alone", "empty_stream_alone", cpu))
        name = "CPU of a batch of one key, alone, in all processes, relative to a message without work on a stream"
        judged.append((name, batch, 3, False))
    if has("get_1_alone", TAKE):
        pairs = zip(found["runs"]["get_1_alone"], found["runs"][TAKE], strict=True)
        above = median(get["latency_us"]["p50"] - take["latency_us"]["p50"] for get, take in pairs)
        judged.append(("p50 of a Get of one key above that of a Take of one row by address, one at a time, µs", above, 15, False))
    if "joins" in found and has(FETCH):
        whole = zip(found["joins"]["bireme"], found["runs"][FETCH], strict=True)
        name = "keys/s of `bireme lookup` of every key, relative to the same rows by address"
        judged.append((name, median(a[rate] / b[rate] for a, b in whole), 0.5, True))
    return judged


def section(found: dict) -> list[str]:
    """Returns the lines of the report's section."""
    lines = [
        "## Look-ups of many keys",
        "",
        "Rows of five columns of 20 bytes by a text key of 16 bytes, in the RAM tier unless a line says from the drive. Each",
        "look-up from the drive reads a sector of 4 KiB. A message without work counts as one key. Redis has as many keys as the",
        "table, and values of 100 bytes. CPU includes both tiers and the client.",
        "",
        "| | keys/s | spread | keys per core-second | CPU a key, µs: client, query node, I/O node | p50, µs | p99, µs |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, runs in found["runs"].items():
        rates = [run["keys_per_s"] for run in runs]
        spread = f"{rounded(min(rates))} to {rounded(max(rates))}"
        parts = ["client_cpu_us", "query_cpu_us", "io_cpu_us"]
        cpu = "–"
        if "cpu_us_per_key" in runs[0]:
            cpu = ", ".join(f"{median(run['cpu_us_per_key'][part] for run in runs):.2f}" for part in parts)
        latency = (lambda run: run["latency_us"]) if "latency_us" in runs[0] else peer_latency
        times = [rounded(median(latency(run)[part] for run in runs)) for part in ["p50", "p99"]]
        per_core = rounded(median(run["keys_per_core_s"] for run in runs))
        cells = [TITLES[name], rounded(median(rates)), spread, per_core, cpu, *times]
        lines.append(f"| {' | '.join(cells)} |")
    commands = [f"$ {run[0]['command']}" for run in found["runs"].values()]
    lines += ["", "```console", *commands, "```"]
    # Results of an earlier version of the bench have no joins.
    if "joins" in found:
        lines += ["", *joins.section(found["joins"])]
    return [*lines, ""]
