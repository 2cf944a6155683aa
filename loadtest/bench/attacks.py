"""Measures the latency of probes and good callers while a node is attacked, and without an attack.

Good callers get rows by key at a fixed rate, with the key's index in memory, and latency counts from the time at which
a request was due. Probes check the health of both nodes by gRPC, each over a new connection, and request `/live`. The
tests in `services/bireme/tests/attacks` check whether an attack is refused, and its cost in memory.

The attacker, the load generator and the nodes share the machine's cores. So each attack is also made on a second pair
of nodes, which no good caller uses: the control. If good callers are slower than in the control, sharing the node with
the attacker is the cause.
"""

import random
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import grpc

from . import machine
from .bireme import Bireme, Node, free_port
from .profile import Profile
from .figures import rounded

ROWS = 200_000
# A light load: the benchmark measures how long callers wait, not the nodes' throughput.
GETS_PER_S = 50
PROBES_PER_S = 20
# At 50 gets per second, the p99 of 10 seconds is the fifth slowest get.
SECONDS_MIN = 10.0
WARM_SECONDS = 2.0
# The attack runs for this long before the measurement begins.
BEGIN_SECONDS = 1.0
PROBE_PATIENCE_SECONDS = 10.0
HEALTH_P99_GOAL_MS = 100
GOOD_CALLERS_GOAL = 2
MEMORY = {"BIREME_IO_MEMORY": "1280MiB", "BIREME_IO_SEGMENT": "16MiB"}


@dataclass
class Tiers:
    """Both nodes, with the ports of their metrics."""

    bireme: Bireme
    io: Node
    query: Node
    io_metrics: int
    query_metrics: int


def port(node: Node) -> int:
    """Returns the port of the node's gRPC endpoint."""
    return int(node.endpoint.rsplit(":", 1)[1])


@contextmanager
def _sockets(attack: str, at: int, count: int, seconds: float) -> Iterator[None]:
    command = [sys.executable, "-m", "bench.attacker", attack, str(at), str(count), str(seconds)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield
    finally:
        process.kill()
        process.wait()


@contextmanager
def _searches(tiers: Tiers, seconds: float, count: int, *arguments: str) -> Iterator[None]:
    """Runs `count` callers, each of which repeats its search as soon as it is answered or refused."""
    done = threading.Event()

    def caller() -> None:
        command = [tiers.bireme.binary, "search", "rows", *arguments, "--endpoint", tiers.query.endpoint, "--timeout", "1s"]
        while not done.is_set():
            subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    threads = [threading.Thread(target=caller) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join()


# A permitted filter of linear cost that needs as much work as its size allows: no index answers any part of it.
FILTER = " OR ".join(f"lower(text) LIKE '%{word}%{word}%'" for word in ["qa", "qb", "qc", "qd", "qe", "qf", "qg", "qh"])

ATTACKS: dict[str, tuple[str, Callable[[Tiers, float], object]]] = {
    "none": ("nothing", lambda tiers, seconds: ExitStack()),
    "idle_io": (
        "2,043 idle connections to the I/O node",
        lambda tiers, seconds: _sockets("idle", port(tiers.io), 2043, seconds),
    ),
    "idle_query": (
        "2,043 idle connections to the query node",
        lambda tiers, seconds: _sockets("idle", port(tiers.query), 2043, seconds),
    ),
    "silent": (
        "700 silent connections a second to the query node",
        lambda tiers, seconds: _sockets("silent", port(tiers.query), 700, seconds),
    ),
    "scrape_io": (
        "64 clients that scrape the I/O node five times a second each",
        lambda tiers, seconds: _sockets("scrape", tiers.io_metrics, 64, seconds),
    ),
    "scrape_query": (
        "64 clients that scrape the query node five times a second each",
        lambda tiers, seconds: _sockets("scrape", tiers.query_metrics, 64, seconds),
    ),
    "filters": (
        "two callers with a filter that reads all rows, deadline 1 s",
        lambda tiers, seconds: _searches(tiers, seconds, 2, "--filter", FILTER, "-k", "1", "--columns", "key"),
    ),
}


def measure(profile: Profile, binary: Path, logs: Path) -> dict:
    """Runs all attacks once per round, each on newly started nodes."""
    folder = profile.folder / "attacks"
    folder.mkdir(parents=True, exist_ok=True)
    results: dict = {name: [] for name in ATTACKS}
    table = _table(binary, folder)
    for number in range(profile.rounds):
        for name in ATTACKS:
            results[name].append(_round(profile, binary, logs, folder, table, name, number))
            seen = results[name][-1]
            print(
                f"attacks, round {number + 1} of {profile.rounds}, {name}: health p99 {seen['health_p99_ms']:.1f} ms, "
                f"gets p50 {seen['gets']['p50']:.0f}, p99 {seen['gets']['p99']:.0f} µs, {seen['errors']} errors",
                flush=True,
            )
    return {"attacks": results, "machine": machine.describe([profile.folder])}


def _table(binary: Path, folder: Path) -> Path:
    table = folder / "rows"
    if table.exists():
        return table
    print("attacks: making a table", flush=True)
    rows, source = folder / "rows.csv", random.Random(1)
    with rows.open("w") as file:
        file.write("key,text\n")
        for key in range(ROWS):
            file.write(f"{key},{source.randbytes(50).hex()}\n")
    for command in [["ingest", rows, "--table", table, "--key", "key"], ["index", "--table", table, "--key", "key"]]:
        subprocess.run([binary, *command], check=True, stdout=subprocess.DEVNULL)
    return table


def _round(profile: Profile, binary: Path, logs: Path, folder: Path, table: Path, name: str, number: int) -> dict:
    seen = _attacked(profile, binary, logs, folder, table, name, number, is_control=False)
    if name != "none":
        seen["control"] = _attacked(profile, binary, logs, folder, table, name, number, is_control=True)["gets"]
    return seen


def _attacked(
    profile: Profile, binary: Path, logs: Path, folder: Path, table: Path, name: str, number: int, is_control: bool
) -> dict:
    with Bireme(binary, logs, folder) as bireme:
        tiers, others = (_tiers(bireme, folder / slab, table, number) for slab in ("slab", "slab-of-others"))
        seconds = max(profile.seconds, SECONDS_MIN)
        _, attack = ATTACKS[name]
        with attack(others if is_control else tiers, seconds + BEGIN_SECONDS + 10):
            time.sleep(BEGIN_SECONDS)
            probes = Probes(tiers)
            gets = bireme.bench(tiers.query, "get", "rows", seconds, "--rate", str(GETS_PER_S), "--seed", str(number))
            waited = probes.stop()
        return {
            "gets": gets["latency_us"],
            "command": gets["command"],
            "errors": sum(gets["errors"].values()),
            "probes": len(waited),
            "health_p99_ms": sorted(waited)[int(len(waited) * 0.99)],
        }


def _tiers(bireme: Bireme, slab: Path, table: Path, number: int) -> Tiers:
    """Starts a node of each tier, with the table's rows and the pages of its key's index cached."""
    ports = [free_port(), free_port()]
    io_variables = MEMORY | {"BIREME_IO_TELEMETRY_METRICS_LISTEN": f"127.0.0.1:{ports[0]}"}
    io = bireme.io_node([slab], 1, **io_variables)
    query = bireme.query_node(io, {"rows": str(table)}, BIREME_QUERY_TELEMETRY_METRICS_LISTEN=f"127.0.0.1:{ports[1]}")
    bireme.ready(query, ["rows"])
    bireme.warm(query, "rows")
    # Reads every page of the index, so that no measured get loads one: the first read of a page needs the threads that
    # evaluate filters.
    bireme.bench(query, "get", "rows", WARM_SECONDS, "--concurrency", "8", "--seed", str(number))
    return Tiers(bireme, io, query, *ports)


class Probes:
    """Probes both nodes at a fixed rate. A probe's latency counts from the time at which it was due."""

    def __init__(self, tiers: Tiers) -> None:
        health = [tiers.io.endpoint, tiers.query.endpoint]
        asks = [lambda endpoint=endpoint: _health(endpoint) for endpoint in health]
        asks += [lambda at=at: _live(at) for at in (tiers.io_metrics, tiers.query_metrics)]
        self.done = threading.Event()
        self.waited_ms: list[float] = []
        self.threads = [threading.Thread(target=self._probe, args=(ask,)) for ask in asks]
        for thread in self.threads:
            thread.start()

    def _probe(self, ask: Callable[[], None]) -> None:
        due = time.monotonic()
        while not self.done.is_set():
            ask()
            self.waited_ms.append((time.monotonic() - due) * 1e3)
            due += len(self.threads) / PROBES_PER_S
            time.sleep(max(0.0, due - time.monotonic()))

    def stop(self) -> list[float]:
        """Returns each probe's latency in milliseconds; an unanswered one has at least `PROBE_PATIENCE_SECONDS`."""
        self.done.set()
        for thread in self.threads:
            thread.join()
        return self.waited_ms


def _health(endpoint: str) -> None:
    target = endpoint.removeprefix("http://")
    # Each probe has a connection of its own, as kubelet's have.
    options = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(target, options) as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        try:
            check(b"", timeout=PROBE_PATIENCE_SECONDS, wait_for_ready=True)
        except grpc.RpcError:
            time.sleep(PROBE_PATIENCE_SECONDS)


def _live(at: int) -> None:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{at}/live", timeout=PROBE_PATIENCE_SECONDS) as answer:
            answer.read()
    except (OSError, socket.timeout):
        time.sleep(PROBE_PATIENCE_SECONDS)


def health_p99_ms(results: dict, name: str) -> float:
    """Returns the health probes' p99: the median of the rounds."""
    return median(it["health_p99_ms"] for it in results["attacks"][name])


def slowdown(results: dict, name: str) -> float:
    """Returns good callers' p99 relative to that of the control: the median of the rounds."""
    return median(it["gets"]["p99"] / it["control"]["p99"] for it in results["attacks"][name])


def section(found: dict) -> list[str]:
    """Returns the lines of the report's section."""
    lines = [
        "## Under attack",
        "",
        f"{GETS_PER_S} gets of one key per second and {PROBES_PER_S} probes per second (gRPC health of both nodes",
        "over new connections, `/live` of both) during an attack. Nodes are started anew for each attack and round. Latency counts",
        "from the time at which a request was due. The attacker, the load and all nodes share the machine's cores. The control is",
        "the same attack on a second pair of nodes, which the gets do not use: beyond it, callers lose time because they share",
        "a node with the attacker.",
        "",
        "| attack | health p99 by round, ms | gets p50, µs | gets p99, µs | control's p99, µs | p99 relative to the control, by round "
        "| p99 relative to no attack, by round | errors |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, (title, _) in ATTACKS.items():
        rounds = found["attacks"][name]
        health = ", ".join(f"{it['health_p99_ms']:.1f}" for it in rounds)
        ratios = [it["gets"]["p99"] / none["gets"]["p99"] for it, none in zip(rounds, found["attacks"]["none"])]
        p50, p99 = (median(it["gets"][at] for it in rounds) for at in ("p50", "p99"))
        controls = [it["control"]["p99"] for it in rounds if "control" in it]
        control = rounded(median(controls)) if controls else "–"
        beyond = ", ".join(f"{it['gets']['p99'] / c:.2f}" for it, c in zip(rounds, controls)) or "–"
        errors = sum(it["errors"] for it in rounds)
        to_none = ", ".join(f"{it:.2f}" for it in ratios)
        cells = [title, health, rounded(p50), rounded(p99), control, beyond, to_none, str(errors)]
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, ""]
