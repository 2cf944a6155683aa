"""Lists 300 I/O nodes: first 2 real ones and 298 that do not answer, then 300 addresses of 2 real ones."""

import time

from tiers.counters import FALLBACK
from tiers.members import entry

from . import load, watch
from .audit import Audit
from .check import Checks, say
from .nodes import PORT, TIMEOUT_SECONDS, Make, Nodes, address, io_name
from .table import NAME

REAL, LISTED = 2, 300
STRANGER = "stranger-0"
# The load is light: with so many absent members, nearly every row is read from the table one by one.
RATE, ROWS = 10, 10
FEW_ROWS = ["take", NAME, "--rows", str(ROWS), "--columns", "id,number,body"]
AUDIT_PAUSE_SECONDS = 1.0
CALM_SECONDS, STAY_SECONDS = 4, 12
LOAD_SECONDS, CONCURRENCY = 5, 4
# The second query node starts on the long list.
FRESH = "query-1"


def alias(number: int) -> str:
    """Returns another address of a node."""
    return f"10.77.{100 + number // 200}.{number % 200 + 1}"


def nobody(number: int) -> str:
    """Returns an address that no interface has."""
    return f"10.77.{200 + number // 200}.{number % 200 + 1}"


def measure(make: Make, checks: Checks) -> dict:
    """Measures both kinds of lists: with absent members, and with members that all answer."""
    others = [alias(number) for number in range(LISTED - REAL)]
    real = [io_name(number) for number in range(REAL)]
    found = {}
    for kind in ["absent", "answering"]:
        say(f"{LISTED} I/O nodes, of which {LISTED - REAL if kind == 'absent' else 'none'} are absent")
        with make() as nodes:
            mine = lambda number: others[number::REAL] if kind == "answering" else []
            for number, name in enumerate(real):
                nodes.start_io(name, *mine(number))
            nodes.write_list(nodes.io_nodes(*real))
            nodes.start_query("query-0")
            nodes.settled(REAL)
            nodes.run("warm", NAME)
            if kind == "absent":
                # Half of the absent members refuse connections; no interface has the addresses of the others.
                nodes.network.attach(STRANGER, address(STRANGER), *others[::2])
            places = others if kind == "answering" else [
                place if number % 2 == 0 else nobody(number) for number, place in enumerate(others)
            ]  # fmt: skip
            fakes = [entry(f"fake-{number}", f"http://{place}:{PORT}") for number, place in enumerate(places)]
            found[kind] = _grown(nodes, checks, kind, fakes)
            if kind == "absent":
                nodes.network.detach(STRANGER)
    return found


def _grown(nodes: Nodes, checks: Checks, kind: str, fakes: list[str]) -> dict:
    short = nodes.list_file.read_text()
    few = _at(nodes, "query-0") | _cost(nodes)
    with Audit(nodes, pause=AUDIT_PAUSE_SECONDS) as audit:
        callers = load.Load(nodes, FEW_ROWS, CALM_SECONDS + 2 * STAY_SECONDS, rate=RATE)
        time.sleep(CALM_SECONDS)
        nodes.write_list(short + "".join(fakes))
        time.sleep(STAY_SECONDS)
        listed = len(nodes.status()["io_nodes"])
        # One member is removed; all others stay.
        nodes.write_list(short + "".join(fakes[1:]))
        run = callers.end()
    status = nodes.status()
    checks.check(f"{kind}: status shows all members, and one fewer once it is removed", (listed, len(status["io_nodes"])) == (LISTED, LISTED - 1),
                 f"{listed}, {len(status['io_nodes'])}")  # fmt: skip
    failed = run["failed"] + run["unstarted"] + len(audit.failures)
    checks.check(f"{kind}: no request failed", not failed, (run["faults"] + audit.failures or [run["requests"]])[0])
    checks.check(f"{kind}: no row was wrong or missing", audit.rows and not audit.wrong + run["missing_rows"],
                 f"{audit.rows:,} rows compared")  # fmt: skip
    checks.check(f"{kind}: the slowest answer is within the deadline", run["max_ms"] < TIMEOUT_SECONDS * 1e3,
                 f"{run['max_ms']:.0f} ms")  # fmt: skip
    nodes.write_list(short + "".join(fakes))
    if kind == "answering":
        nodes.settled(LISTED)
        nodes.run("warm", NAME)
    many = _at(nodes, "query-0") | _cost(nodes)
    fresh = nodes.start_query(FRESH)
    began = time.monotonic()
    rows = nodes.run("take", NAME, "0:0", query=FRESH)
    answered = time.monotonic() - began + fresh.started_seconds
    checks.check(f"{kind}: a query node that starts on the long list answers", len(rows) == 1, f"{answered:.2f} s")
    say(f"   few: {_summary(few)}")
    say(f"   many: {_summary(many)}")
    return {"few": few, "many": many, "under_load": run, "start_s": answered, "fresh": _at(nodes, FRESH)}


def _at(nodes: Nodes, name: str) -> dict:
    """Returns what the query node uses without load."""
    node = nodes.running[name]
    time.sleep(2)
    cpu, began = node.cpu_us(), time.monotonic()
    time.sleep(4)
    return {
        "idle_cores": (node.cpu_us() - cpu) / 1e6 / (time.monotonic() - began),
        "resident_mib": node.resident_bytes() / 2**20,
        "threads": node.threads(),
        "descriptors": node.descriptors(),
    }


def _cost(nodes: Nodes) -> dict:
    """Measures the cost of a row."""
    load.Load(nodes, load.TAKE, 2, concurrency=CONCURRENCY, seed=2).end()
    cpu = {name: node.cpu_us() for name, node in nodes.running.items()}
    before = watch.counters(nodes, "query-0")
    run = load.Load(nodes, load.TAKE, LOAD_SECONDS, concurrency=CONCURRENCY, seed=3).end()
    fallback = watch.counters(nodes, "query-0").get(FALLBACK, 0) - before.get(FALLBACK, 0)
    spent = {name: (node.cpu_us() - cpu[name]) / run["rows"] for name, node in nodes.running.items()}
    return {
        "rows_per_s": run["rows_per_s"],
        "p50_ms": run["p50_ms"],
        "p99_ms": run["p99_ms"],
        "failed": run["failed"],
        "fallback_share": fallback / run["rows"],
        "query_cpu_us_per_row": spent["query-0"],
        "io_cpu_us_per_row": sum(spent[node.name] for node in nodes.ios()),
    }


def _summary(it: dict) -> str:
    return (
        f"{it['resident_mib']:.0f} MiB, {it['descriptors']} descriptors, {it['idle_cores'] * 100:.1f} % of a core idle; "
        f"{it['rows_per_s']:,.0f} rows/s, p99 {it['p99_ms']:.1f} ms, CPU per row {it['query_cpu_us_per_row']:.2f} + "
        f"{it['io_cpu_us_per_row']:.2f} µs, {it['fallback_share']:.3f} from the tables"
    )
