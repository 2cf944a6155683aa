"""Runs two kinds of nodes at the same time under the same load. They share the CPUs, so a disturbance hits both. Two
runs one after the other would differ by 15 %."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

from .bireme import Bireme, Node
from .profile import Profile

WARM_UP_SECONDS = 1.5


def fill(profile: Profile, bireme: Bireme, slab: Path, table: str, columns: list[str] | None = None) -> None:
    """Fills a slab with a table."""
    io = bireme.io_node([slab], profile.slab_gib)
    query = bireme.query_node(io, {table: profile.table(table)})
    bireme.ready(query, [table])
    bireme.warm(query, table, columns)
    query.stop()
    io.stop()


def run(
    bireme: Bireme, queries: dict[str, Node], arguments: list[str], seconds: float, turn: int, table: str = "vectors"
) -> dict[str, dict]:
    """Runs a load on all kinds at the same time, after a short warm-up. Returns their reports by kind."""
    kind, *options = arguments

    def bench(query: Node, seconds: float) -> dict:
        report = bireme.bench(query, kind, table, seconds, *options, "--seed", str(turn))
        return {name: report[name] for name in ("command", "requests_per_s", "latency_us", "errors", "nodes")}

    with ThreadPoolExecutor(len(queries)) as threads:
        list(threads.map(lambda query: bench(query, WARM_UP_SECONDS), queries.values()))
        return dict(zip(queries, threads.map(lambda query: bench(query, seconds), queries.values())))


def relative_rate(turns: list[dict]) -> float:
    """Returns the request rate of nodes relative to those that ran beside them: the median of all turns."""
    return median(turn["measured"]["requests_per_s"] / turn["beside"]["requests_per_s"] for turn in turns)


def relative_rates(turns: dict, titles: dict[str, str], loads: Iterable[str]) -> list[str]:
    """Returns a row for each kind of nodes: for each load, the rate relative to the nodes that ran beside them."""
    rows = []
    for name, title in titles.items():
        cells = []
        for load in loads:
            ratios = [relative_rate([turn]) for turn in turns[name][load]]
            cells.append(f"{relative_rate(turns[name][load]):.3f} ({min(ratios):.3f} to {max(ratios):.3f})")
        rows.append(f"| {title} | {' | '.join(cells)} |")
    return rows
