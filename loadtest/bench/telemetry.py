"""Measures the cost of metrics and traces. Two pairs of nodes run under the same load at the same time, and one exports
more than the other."""

import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc

from . import beside, memory
from .bireme import Bireme, free_port
from .beside import relative_rate, relative_rates
from .profile import Profile

# The share of requests that are traced; with None, nodes export neither traces nor metrics. The control exports as much
# as the nodes that it runs beside, so the difference between them is noise.
RATIOS = {"untold": None, "control": 0.0, "metrics": 0.0, "one_percent": 0.01, "all": 1.0}
# The kind of nodes that every other kind is compared with.
BESIDE = "metrics"
# The kinds of nodes in the report, and what they export.
TITLES = {
    "control": "metrics, as on the nodes beside them: control, shows the noise",
    "untold": "nothing",
    "one_percent": "metrics, and traces of one request in a hundred",
    "all": "metrics, and traces of every request",
}
# Shorter than a usual scrape interval, so that exports happen during each load.
EXPORT_SECONDS = 2
# Most of a search's cost is in its rows; most of the cost of a take of one row is in the request.
LOADS = {
    "search": ["search", "-k", "50", "--nprobes", "20", "--refine", "10", "--columns", "_rowaddr"],
    "take": ["take", "--columns", "vector", "--rows", "1", "--concurrency", "64"],
}
# Turns per round.
TURNS = 3


def measure(profile: Profile, binary: Path, logs: Path) -> dict:
    """Measures each load on each kind of nodes, beside `BESIDE`. Slabs are in memory, so that only CPU counts."""
    names = [name for name in RATIOS if name != BESIDE]
    results: dict = {name: {load: [] for load in LOADS} for name in names}
    with (
        memory.folder(profile, slabs=2) as folder,
        _receiver() as (endpoint, received),
        Bireme(binary, logs, profile.folder) as bireme,
    ):
        slabs = [folder / f"slab-{number}" for number in range(2)]
        for slab in slabs:
            beside.fill(profile, bireme, slab, "vectors", ["vector"])
        for turn in range(profile.rounds * TURNS):
            print(f"telemetry, turn {turn + 1} of {profile.rounds * TURNS}", flush=True)
            # Each turn begins with another kind, and the pairs swap their slabs.
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                kinds = [name, BESIDE] if turn % 2 else [BESIDE, name]
                for load, reports in _loads(profile, bireme, list(zip(kinds, slabs)), endpoint, received, turn).items():
                    results[name][load].append({"measured": reports[name], "beside": reports[BESIDE]})
                ratios = ", ".join(f"{load} {relative_rate(results[name][load][-1:]):.3f}" for load in LOADS)
                print(f"  {name}, relative to {BESIDE}: {ratios}", flush=True)
        if not all(received.values()):
            raise RuntimeError(f"the nodes did not export everything that they should, so the figures are void: {received}")
    return {"turns": results, "beside": BESIDE, "received": received}


def _loads(
    profile: Profile, bireme: Bireme, kinds: list[tuple[str, Path]], endpoint: str, received: dict[str, int], turn: int
) -> dict[str, dict[str, dict]]:
    """Runs all kinds at the same time. Returns their reports by load and kind."""
    queries, nodes, scraped = {}, [], []
    done = threading.Event()
    try:
        for kind, slab in kinds:
            metrics = [f"127.0.0.1:{free_port()}" for _ in range(2)]
            io = bireme.io_node([slab], profile.slab_gib, keep=True, **_telemetry_settings("IO", RATIOS[kind], metrics[0], endpoint))
            nodes.append(io)
            tables = {"vectors": profile.table("vectors")}
            queries[kind] = bireme.query_node(io, tables, **_telemetry_settings("QUERY", RATIOS[kind], metrics[1], endpoint))
            nodes.append(queries[kind])
            if RATIOS[kind] is not None:
                scraped += metrics
        threading.Thread(target=_scrape, args=(scraped, done, received), daemon=True).start()
        for query in queries.values():
            bireme.ready(query, ["vectors"])
        measured = {}
        for load, arguments in LOADS.items():
            measured[load] = beside.run(bireme, queries, arguments, profile.seconds, turn)
        return measured
    finally:
        done.set()
        for node in reversed(nodes):
            node.stop()


def _telemetry_settings(tier: str, ratio: float | None, metrics: str, endpoint: str) -> dict[str, str]:
    if ratio is None:
        return {}
    prefix = f"BIREME_{tier}_TELEMETRY"
    return {
        f"{prefix}_METRICS_LISTEN": metrics,
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        "OTEL_METRIC_EXPORT_INTERVAL": str(EXPORT_SECONDS * 1000),
        f"{prefix}_TRACE_RATIO": str(ratio),
    }


def _scrape(addresses: list[str], done: threading.Event, received: dict[str, int]) -> None:
    while not done.wait(EXPORT_SECONDS):
        for address in addresses:
            with urllib.request.urlopen(f"http://{address}/metrics", timeout=EXPORT_SECONDS) as answer:
                answer.read()
            received["scrapes"] += 1


@contextmanager
def _receiver() -> Iterator[tuple[str, dict[str, int]]]:
    """Runs an OTLP receiver that counts messages and discards them."""
    received = {"spans": 0, "metrics": 0, "scrapes": 0}

    def take(kind: str) -> grpc.RpcMethodHandler:
        def count(_message: bytes, _context: grpc.ServicerContext) -> bytes:
            received[kind] += 1
            # An empty Export…ServiceResponse rejects nothing.
            return b""

        return grpc.unary_unary_rpc_method_handler(count)

    server = grpc.server(ThreadPoolExecutor(1))
    for service, kind in [("trace.v1.TraceService", "spans"), ("metrics.v1.MetricsService", "metrics")]:
        handlers = {"Export": take(kind)}
        name = f"opentelemetry.proto.collector.{service}"
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(name, handlers)])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"http://127.0.0.1:{port}", received
    finally:
        server.stop(None)


def section(found: dict) -> list[str]:
    """Returns the lines of the report's section."""
    turns = found["turns"]
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
    return [*lines, *relative_rates(turns, TITLES, ["search", "take"]), ""]
