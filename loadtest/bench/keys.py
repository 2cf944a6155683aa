"""Measures gets of one row of ten columns by a text key, all warm: through the key index, and through the BTREE."""

import time
from pathlib import Path
from statistics import median

from . import machine, memory, peers
from .bireme import Bireme
from .profile import Profile
from .tables import KEY
from .tier import Tier, core_seconds
from .figures import peer_latency, rounded

TABLE = "payload"
CONCURRENCY = 32
WARM_UP_SECONDS = 1.5
BUILD_SECONDS = 120


def measure(profile: Profile, binary: Path, logs: Path) -> dict:
    """Measures both tiers, with a slab in memory, with and without the key index, and pylance, in turn."""
    results: dict[str, list[dict]] = {"bireme": [], "btree": [], "lance": []}
    with memory.folder(profile) as folder, Bireme(binary, logs, profile.folder) as bireme:
        tier = Tier.start(bireme, profile, [TABLE], [folder / "slab-0"])
        bireme.warm(tier.query, TABLE)
        build_index(tier, TABLE, KEY)
        without = bireme.query_node(tier.io, {TABLE: profile.table(TABLE)}, BIREME_QUERY_KEY_INDEX="0")
        bireme.ready(without, [TABLE])
        btree = Tier(bireme, tier.io, without)
        for number in range(profile.rounds):
            runs = {
                "bireme": lambda: _bireme(tier, profile, number),
                "btree": lambda: _bireme(btree, profile, number),
                "lance": lambda: _lance(profile, number),
            }
            for name in list(runs)[:: -1 if number % 2 else 1]:
                results[name].append(runs[name]())
            print(f"keys, round {number + 1} of {profile.rounds}: relative to pylance {ratio(results, number):.3g}", flush=True)
    return results | {"machine": machine.describe([profile.folder])}


def build_index(tier: Tier, table: str, key: str) -> None:
    """Looks keys up, which starts the build of the key index, and waits until the index covers the table."""
    tier.bench("get", table, WARM_UP_SECONDS, "--key-column", key, "--concurrency", "1")
    until = time.monotonic() + BUILD_SECONDS
    while True:
        [described] = tier.bireme.run(tier.query, "describe", table)
        index = described["key_index"]
        if index and not index["missing_rows"]:
            return
        if time.monotonic() > until:
            raise RuntimeError(f"the key index does not cover {table}: {index}")
        time.sleep(0.1)


def _bireme(tier: Tier, profile: Profile, number: int) -> dict:
    load = ["--key-column", KEY, "--concurrency", str(CONCURRENCY), "--seed", str(number)]
    # A load of the same keys brings their pages of the BTREE into memory.
    tier.bench("get", TABLE, WARM_UP_SECONDS, *load)
    report = tier.bench("get", TABLE, profile.seconds, *load)
    if report["errors"] or report["rows"] != report["requests"]:
        raise RuntimeError(f"some gets did not return their row: {report}")
    return report | {"gets_per_core_s": report["requests"] / core_seconds(report)}


def _lance(profile: Profile, number: int) -> dict:
    load = ["--key", KEY, "--seed", str(number), f"--warm-up={WARM_UP_SECONDS}"]
    report = peers.run(profile.table(TABLE), "get", profile.seconds, *load)
    if "error" in report:
        raise RuntimeError(f"{report['command']}: {report['error']}")
    if report["rows"] != report["requests"]:
        raise RuntimeError(f"some gets did not return their row: {report}")
    return report | {"gets_per_core_s": report["requests_per_core_s"]}


def ratio(results: dict, number: int) -> float:
    """Returns Bireme's gets per core-second in a round, relative to pylance's."""
    return results["bireme"][number]["gets_per_core_s"] / results["lance"][number]["gets_per_core_s"]


def over_pylance(results: dict) -> float:
    """Returns the median of `ratio` over all rounds."""
    return median(ratio(results, number) for number in range(len(results["bireme"])))


def section(found: dict) -> list[str]:
    """Returns the lines of the report's section."""
    lines = [
        "## Gets by key",
        "",
        "Gets of one row of ten columns by a key, all in memory. Bireme's go through both tiers, and CPU includes both and the",
        f"client ({CONCURRENCY} callers). `btree` is Bireme with `key_index = 0`, so that keys are looked up through the table's",
        "BTREE index; pylance's gets are filters in one process (2 threads), also through the BTREE.",
        "",
        "| | gets/s | gets per core-second | p50, µs | p99, µs |",
        "|---|---|---|---|---|",
    ]
    own = lambda run: run["latency_us"]
    for name, latency in [("bireme", own), ("btree", own), ("lance", peer_latency)]:
        runs = found[name]
        mid = lambda value, runs=runs: rounded(median(value(run) for run in runs))
        cells = [mid(lambda run, field=field: run[field]) for field in ["requests_per_s", "gets_per_core_s"]]
        cells += [mid(lambda run, part=part, latency=latency: latency(run)[part]) for part in ["p50", "p99"]]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    runs = found["bireme"]
    cpu = {
        part: rounded(median(run["cpu"][f"{part}_cpu_us"] / run["requests"] for run in runs))
        for part in ["io", "query", "client"]
    }
    over = rounded(over_pylance(found))
    lines += [
        "",
        f"Bireme's gets per core-second, relative to pylance's: {over}. CPU per get of Bireme, µs: I/O node {cpu['io']}, query "
        f"node {cpu['query']}, client {cpu['client']}.",
        "",
        "```console",
        *[f"# {name}\n$ {found[name][0]['command']}" for name in ["bireme", "lance"]],
        "```",
    ]
    return [*lines, ""]
