"""Measures the latency of one grant's requests while another grant requests ten times its own share.

Both grants use one query node and one I/O node. The I/O node's RAM tier is off, so that the drive is the bottleneck. As
in the simulation (`services/simulation`), the measured grant's requests come at equal intervals, and the other's at
random times.
"""

import dataclasses
import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from . import machine
from .beside import WARM_UP_SECONDS, fill
from .bireme import Bireme, Node
from .keys import TABLE
from .profile import Profile
from .figures import rounded

GRANTS = ["good", "other"]
ROWS = 500
# The other grant's rate, as a multiple of its share.
TIMES = {"own": 1, "flood": 10}
# The time that the I/O node gets to determine how many reads in flight keep the drive busy.
SETTLE_SECONDS = 6.0
# The number of concurrent requests of each grant while the capacity is measured.
CALLERS = 16


@dataclass(frozen=True)
class Load:
    """The good grant's requests: their title, the rows of each, and their rate. The rate is a part (`share`) of the
    rows per second that the grant is entitled to, but at most `per_s_max` requests per second."""

    title: str
    rows: int
    share: float
    per_s_max: float


# Large takes at half of the grant's share, which is a quarter of the drive's capacity; and single rows at a rate that
# needs little CPU.
LOADS = {
    "rows": Load(f"takes of {ROWS} rows", ROWS, 0.5, 1e9),
    "one": Load("takes of one row", 1, 0.5, 200),
}


def measure(profile: Profile, binary: Path, logs: Path) -> dict:
    """Measures each load while the other grant asks for its own share, and while it asks for ten times as much."""
    rounds = []
    slab = profile.folder / "fairness-slab"
    with Bireme(binary, logs, profile.folder) as bireme:
        fill(profile, bireme, slab, TABLE)
        callers = _callers(profile, bireme, slab, logs)
        for number in range(profile.rounds):
            capacity = _capacity(profile, bireme, callers, number)
            results = {"rows_per_s": capacity} | {
                name: _turns(profile, bireme, callers, load, capacity, number) for name, load in LOADS.items()
            }
            rounds.append(results)
            seen = ", ".join(f"{load.title} {rise(results[name]):.2f}" for name, load in LOADS.items())
            print(f"fairness, round {number + 1} of {profile.rounds}: {capacity:,.0f} rows/s; p99 {seen} times", flush=True)
    slab.unlink()
    return {"rounds": rounds, "machine": machine.describe([profile.folder])}


def rise(turns: dict) -> float:
    """Returns the good grant's p99 while the other grant asks for ten times its share, relative to p99 while it asks
    for its own share."""
    return turns["flood"]["good"]["latency_us"]["p99"] / turns["own"]["good"]["latency_us"]["p99"]


def median_rise(results: dict, load: str) -> float:
    """Returns the median of `rise` over all rounds."""
    return median(rise(turns[load]) for turns in results["rounds"])


def _callers(profile: Profile, bireme: Bireme, slab: Path, folder: Path) -> dict[str, Node]:
    """Starts the nodes. Returns the query node with the credentials of each grant."""
    policy = ""
    for grant in GRANTS:
        made = subprocess.run([bireme.binary, "api-key", grant, "--json"], check=True, capture_output=True, text=True)
        key = json.loads(made.stdout)
        (folder / grant).write_text(key["key"])
        policy += (
            f'[keys.{grant}]\nsha256 = ["{key["sha256"]}"]\n'
            f'[[grants]]\nname = "{grant}"\nwho = ["key:{grant}"]\ntables = ["*"]\nmay = ["read", "observe"]\n'
        )
    (folder / "fairness.toml").write_text(policy)
    io = bireme.io_node([slab], profile.slab_gib, keep=True)
    query = bireme.query_node(io, {TABLE: profile.table(TABLE)}, BIREME_QUERY_ACCESS=str(folder / "fairness.toml"))
    callers = {grant: dataclasses.replace(query, credentials=["--token-file", str(folder / grant)]) for grant in GRANTS}
    bireme.ready(callers["good"], [TABLE])
    return callers


def _take(bireme: Bireme, caller: Node, seconds: float, rows: int, number: int, *load: str) -> dict:
    report = bireme.bench(caller, "take", TABLE, seconds, "--rows", str(rows), "--seed", str(number), *load)
    return {name: report[name] for name in ("command", "requests_per_s", "rows_per_s", "latency_us", "errors")}


def _capacity(profile: Profile, bireme: Bireme, callers: dict[str, Node], number: int) -> float:
    """Returns the rows per second that both grants together reach without a fixed rate."""

    def both(seconds: float) -> float:
        with ThreadPoolExecutor(len(callers)) as threads:
            take = lambda caller: _take(bireme, caller, seconds, ROWS, number, "--concurrency", str(CALLERS))
            return sum(report["rows_per_s"] for report in threads.map(take, callers.values()))

    both(SETTLE_SECONDS)
    return both(profile.seconds)


def _turns(profile: Profile, bireme: Bireme, callers: dict[str, Node], load: Load, capacity: float, number: int) -> dict:
    share = capacity / len(GRANTS)
    rate = min(share * load.share / load.rows, load.per_s_max)
    turns = {}
    # Every second round measures in the opposite order.
    for turn in list(TIMES)[:: -1 if number % 2 else 1]:
        other_rate = share * TIMES[turn] / ROWS
        with ThreadPoolExecutor(1) as threads:
            seconds = WARM_UP_SECONDS + profile.seconds + 1
            other = threads.submit(_take, bireme, callers["other"], seconds, ROWS, number, "--poisson", "--rate", f"{other_rate:.3f}")
            # The good grant is measured after a warm-up, while the other grant's load is running.
            _take(bireme, callers["good"], WARM_UP_SECONDS, load.rows, number, "--rate", f"{rate:.3f}")
            good = _take(bireme, callers["good"], profile.seconds, load.rows, number, "--rate", f"{rate:.3f}")
            turns[turn] = {"good": good, "other": other.result()}
    return turns


def section(found: dict) -> list[str]:
    """Returns the lines of the report's section."""
    rounds = found["rounds"]
    capacity = rounded(median(it["rows_per_s"] for it in rounds))
    lines = [
        "## Fairness between grants",
        "",
        "Two grants of equal weight use one query node and one I/O node, and all rows come from the drive. When both",
        f"send takes of {ROWS} rows as fast as they can, they reach {capacity} rows/s together. In the",
        "measurement, the other grant asks for half of that, which is its share, and then for ten times as much. The",
        "latency of a request counts from the time at which it was due.",
        "",
        "| the good grant's requests | per second | p50, p99 in µs, other at its share "
        "| p50, p99 in µs, other at ten times its share | ratio of these p99, by round | errors "
        "| the other's rows/s: at its share, at ten times |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, load in LOADS.items():
        turns = [it[name] for it in rounds]
        mid = lambda value: rounded(median(value(it) for it in turns))
        latencies = [
            ", ".join(mid(lambda it, turn=turn, part=part: it[turn]["good"]["latency_us"][part]) for part in ("p50", "p99"))
            for turn in TIMES
        ]
        rises = ", ".join(f"{rise(it):.2f}" for it in turns)
        errors = sum(sum(it[turn]["good"]["errors"].values()) for it in turns for turn in TIMES)
        rows = ", ".join(mid(lambda it, turn=turn: it[turn]["other"]["rows_per_s"]) for turn in TIMES)
        cells = [load.title, mid(lambda it: it["own"]["good"]["requests_per_s"]), *latencies, rises, str(errors), rows]
        lines.append(f"| {' | '.join(cells)} |")
    commands = rounds[0]["rows"]["flood"]
    shown = [f"# {name}\n$ {commands[name]['command']}" for name in GRANTS]
    return [*lines, "", "```console", *shown, "```", ""]
