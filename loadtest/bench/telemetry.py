"""What telling of it costs: the same load on nodes that tell nobody, and on nodes whose metrics are scraped and whose
requests are traced."""

import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc

from . import memory
from .bireme import Bireme, free_port
from .profile import Profile

# The share of requests that is traced; None tells nobody anything.
RATIOS = {"untold": None, "metrics": 0.0, "one_percent": 0.01, "all": 1.0}
# As often as a Prometheus that is in a hurry; so that it is within each load.
TOLD_SECONDS = 2
# One whose cost is in its rows, and one whose cost is in its requests.
LOADS = {
    "search": ["search", "-k", "50", "--nprobes", "20", "--refine", "10", "--columns", "_rowaddr"],
    "take": ["take", "--columns", "vector", "--rows", "1", "--concurrency", "64"],
}
# Turns of a round: what is to be seen is less than what two runs differ by.
TURNS = 3
WARM_UP_SECONDS = 1.5


def measure(profile: Profile, binary: Path, logs: Path) -> dict:
    """Each load on each kind of node, in turns; the drive is memory, so that nothing but CPU counts."""
    results: dict = {name: {load: [] for load in LOADS} for name in RATIOS}
    with memory.folder(profile) as folder, _receiver() as (endpoint, received), Bireme(binary, logs) as bireme:
        slab = folder / "slab-0"
        _fill(profile, bireme, slab)
        for turn in range(profile.rounds * TURNS):
            print(f"telemetry, turn {turn + 1} of {profile.rounds * TURNS}", flush=True)
            # Another one goes first each time.
            names = list(RATIOS)
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                for load, report in _loads(profile, bireme, slab, RATIOS[name], endpoint, received, turn).items():
                    results[name][load].append(report)
                told = ", ".join(f"{load} {results[name][load][-1]['requests_per_s']:,.0f}/s" for load in LOADS)
                print(f"  {name}: {told}", flush=True)
        if not all(received.values()):
            raise RuntimeError(f"not all was told that was to be, so this measured something else: {received}")
    return {"turns": results, "received": received}


def _fill(profile: Profile, bireme: Bireme, slab: Path) -> None:
    io = bireme.io_node([slab], profile.slab_gib)
    query = bireme.query_node(io, {"vectors": profile.table("vectors")})
    bireme.ready(query, ["vectors"])
    bireme.warm(query, "vectors", ["vector"])
    query.stop()
    io.stop()


def _loads(
    profile: Profile, bireme: Bireme, slab: Path, ratio: float | None, endpoint: str, received: dict[str, int], turn: int
) -> dict[str, dict]:
    addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    io = bireme.io_node([slab], profile.slab_gib, keep=True, **_told("IO", ratio, addresses[0], endpoint))
    tables = {"vectors": profile.table("vectors")}
    query = bireme.query_node(io, tables, **_told("QUERY", ratio, addresses[1], endpoint))
    done = threading.Event()
    if ratio is not None:
        threading.Thread(target=_scrape, args=(addresses, done, received), daemon=True).start()
    try:
        bireme.ready(query, ["vectors"])
        measured = {}
        for load, (kind, *arguments) in LOADS.items():
            arguments += ["--seed", str(turn)]
            bireme.bench(query, kind, "vectors", WARM_UP_SECONDS, *arguments)
            measured[load] = bireme.bench(query, kind, "vectors", profile.seconds, *arguments)
        return measured
    finally:
        done.set()
        query.stop()
        io.stop()


def _told(tier: str, ratio: float | None, metrics: str, endpoint: str) -> dict[str, str]:
    if ratio is None:
        return {}
    prefix = f"BIREME_{tier}_TELEMETRY"
    return {
        f"{prefix}_METRICS_LISTEN": metrics,
        f"{prefix}_OTLP_ENDPOINT": endpoint,
        f"{prefix}_OTLP_INTERVAL": f"{TOLD_SECONDS}s",
        f"{prefix}_TRACE_RATIO": str(ratio),
    }


def _scrape(addresses: list[str], done: threading.Event, received: dict[str, int]) -> None:
    while not done.wait(TOLD_SECONDS):
        for address in addresses:
            with urllib.request.urlopen(f"http://{address}/metrics", timeout=TOLD_SECONDS) as answer:
                answer.read()
            received["scrapes"] += 1


@contextmanager
def _receiver() -> Iterator[tuple[str, dict[str, int]]]:
    """An OTLP receiver that counts the messages it gets, and forgets them."""
    received = {"spans": 0, "metrics": 0, "scrapes": 0}

    def take(kind: str) -> grpc.RpcMethodHandler:
        def count(_message: bytes, _context: grpc.ServicerContext) -> bytes:
            received[kind] += 1
            # An Export…ServiceResponse that rejects nothing.
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
