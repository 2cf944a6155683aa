"""Measures the cost per row by the number of nodes: 1, 2 and 4 I/O nodes with 1 and 2 query nodes, in turn."""

from statistics import median

from tiers.counters import FALLBACK, IO_FROM_TABLE, IO_ROWS

from . import load, watch
from .check import Checks, say
from .nodes import Make, Nodes

IO, QUERY = [1, 2, 4], [1, 2]
CONCURRENCY = 16
WORKLOADS = {"take": load.TAKE, "take-1000": load.TAKE_MANY, "search": load.SEARCH}
# The highest allowed cost of a row with the largest number of nodes, relative to the smallest, for all processes
# together. A request sends a message to each I/O node that owns some of its rows, which costs more per row in requests
# of few rows.
COST_RATIO_MAX = {"take": 2.0, "take-1000": 1.5, "search": 2.0}


def measure(make: Make, rounds: int, seconds: float) -> dict:
    """Measures each configuration once per round. The order rotates, so that none is always first."""
    configurations = [(io, query) for io in IO for query in QUERY]
    runs: list[dict] = []
    for number in range(rounds):
        turned = configurations[number % len(configurations) :] + configurations[: number % len(configurations)]
        for io, query in turned:
            with make() as nodes:
                nodes.up(io, query)
                for name, words in WORKLOADS.items():
                    run = _run(nodes, words, seconds, number)
                    runs.append({"round": number, "io": io, "query": query, "workload": name} | run)
                    say(f"   {name}, {io} × {query}: {_summary(runs[-1])}")
    return {"runs": runs, "callers": CONCURRENCY, "seconds": seconds}


def _run(nodes: Nodes, words: list[str], seconds: float, seed: int) -> dict:
    # This short load opens the table, so that the measurement does not include it.
    load.Load(nodes, words, 1, concurrency=CONCURRENCY, seed=seed + 100).end()
    before = {name: watch.counters(nodes, name) for name in nodes.running}
    cpu = {name: node.cpu_us() for name, node in nodes.running.items()}
    run = load.Load(nodes, words, seconds, concurrency=CONCURRENCY, seed=seed).end()
    cpu = {name: node.cpu_us() - cpu[name] for name, node in nodes.running.items()}
    after = {name: watch.counters(nodes, name) for name in nodes.running}
    grown = lambda name, counter: after[name].get(counter, 0) - before[name].get(counter, 0)
    served = {node.name: grown(node.name, IO_ROWS) for node in nodes.ios()}
    rows = sum(served.values())
    from_table = sum(grown(name, IO_FROM_TABLE) for name in served)
    fallback = sum(grown(node.name, FALLBACK) for node in nodes.queries())
    return run | {
        "io_rows": rows,
        "io_cpu_us_per_row": sum(cpu[name] for name in served) / rows,
        "query_cpu_us_per_row": sum(cpu[node.name] for node in nodes.queries()) / rows,
        "client_cpu_us_per_row": run["client_cpu_us"] / rows,
        "hit_share": 1 - (from_table + fallback) / (rows + fallback),
        "balance": max(served.values()) / (rows / len(served)),
    }


def cost(run: dict) -> float:
    """Returns the CPU of all processes per row that the I/O tier served, in microseconds."""
    return run["io_cpu_us_per_row"] + run["query_cpu_us_per_row"] + run["client_cpu_us_per_row"]


def ratio(runs: list[dict], workload: str, io: int, query: int) -> float:
    """Returns a row's cost with these numbers of nodes, relative to one of each in the same round: the median of the
    rounds."""
    configuration = lambda it: (it["round"], it["io"], it["query"])
    costs = {configuration(it): cost(it) for it in runs if it["workload"] == workload}
    rounds = {it["round"] for it in runs}
    return median(costs[number, io, query] / costs[number, 1, 1] for number in rounds)


def check(checks: Checks, measured: dict) -> None:
    """Checks that no request failed, that all rows were cached, and that a row costs little more with more nodes."""
    runs = measured["runs"]
    checks.check("no request failed", not any(it["failed"] for it in runs), sum(it["failed"] for it in runs))
    checks.check("all rows came from the I/O nodes' drives", all(it["hit_share"] == 1 for it in runs))
    for workload in WORKLOADS:
        found = ratio(runs, workload, max(IO), max(QUERY))
        checks.check(
            f"{workload}: a row with {max(IO)} I/O nodes and {max(QUERY)} query nodes costs at most "
            f"{COST_RATIO_MAX[workload]:g} times a row with 1 and 1",
            found <= COST_RATIO_MAX[workload], f"{found:.2f}",
        )  # fmt: skip


def _summary(run: dict) -> str:
    return (
        f"{run['rows_per_s']:,.0f} rows/s, p50 {run['p50_ms']:.1f} ms, p99 {run['p99_ms']:.1f} ms, CPU per row "
        f"{run['query_cpu_us_per_row']:.2f} + {run['io_cpu_us_per_row']:.2f} + {run['client_cpu_us_per_row']:.2f} µs, "
        f"hits {run['hit_share']:.4f}, max/mean {run['balance']:.2f}"
    )
