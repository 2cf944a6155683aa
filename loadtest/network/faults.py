"""Kills, cuts off, slows, stops, adds and removes an I/O node at a fixed rate of requests."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

from tiers.counters import FALLBACK, IO_FROM_TABLE

from . import load, watch
from .audit import Audit
from .check import Checks, say
from .nodes import REFRESH_SECONDS, TIMEOUT_SECONDS, Make, Nodes, io_name

IO, QUERY = 4, 2
VICTIM = io_name(1)
RATE = 40
# Seconds before the fault, and after it has ended.
CALM_SECONDS, AFTER_SECONDS = 4, 10
# Latency has recovered once its median over BACK_SECONDS is at most BACK_FACTOR times the median before the fault.
BACK_FACTOR, BACK_SECONDS = 2.0, 1.0
DOWN_SECONDS, CUT_SECONDS, SLOW_SECONDS = 6, 12, 10
# All query nodes read the list within this time.
LEAVE_SECONDS = REFRESH_SECONDS + 1
DELAY_MS, JITTER_MS, LOSS = 20, 5, 0.02


@dataclass
class RunningFault:
    """A fault in progress and the times of its events."""

    nodes: Nodes
    watch: watch.Watch
    events: list[tuple[float, str]] = field(default_factory=list)

    def event(self, what: str) -> None:
        """Records an event with the current time."""
        self.events.append((time.monotonic(), what))


def killed(fault: RunningFault) -> None:
    """Kills the node by SIGKILL and starts it again on its slab."""
    fault.event("killed")
    fault.nodes.running[VICTIM].kill()
    time.sleep(DOWN_SECONDS)
    fault.event("started")
    fault.nodes.start_io(VICTIM)


def cut_off(fault: RunningFault) -> None:
    """Takes the node's link down, and up again."""
    fault.event("cut")
    fault.nodes.network.cut(VICTIM)
    time.sleep(CUT_SECONDS)
    fault.event("mended")
    fault.nodes.network.mend(VICTIM)


def delayed(fault: RunningFault) -> None:
    """Slows the node's link in both directions."""
    _slowed(fault, 0.0)


def lossy(fault: RunningFault) -> None:
    """Slows the node's link and loses frames in both directions."""
    _slowed(fault, LOSS)


def _slowed(fault: RunningFault, loss: float) -> None:
    fault.event("slowed")
    fault.nodes.network.slow(VICTIM, DELAY_MS, JITTER_MS, loss)
    time.sleep(SLOW_SECONDS)
    fault.event("at full speed again")
    fault.nodes.network.restore_speed(VICTIM)


def stopped(fault: RunningFault) -> None:
    """Stops the node by SIGTERM and starts it again on its slab."""
    fault.event("SIGTERM sent")
    code = fault.nodes.running[VICTIM].stop()
    fault.event(f"stopped, exit code {code}")
    time.sleep(DOWN_SECONDS)
    fault.event("started")
    fault.nodes.start_io(VICTIM)


def joined(fault: RunningFault) -> None:
    """Starts another node with an empty slab, and lists it once it serves."""
    name = io_name(IO)
    fault.nodes.start_io(name)
    fault.watch.add(name)
    fault.event("listed")
    fault.nodes.write_list(fault.nodes.io_nodes(*map(io_name, range(IO + 1))))


def left(fault: RunningFault) -> None:
    """Takes the node off the list, then stops it."""
    fault.event("taken off the list")
    fault.nodes.write_list(fault.nodes.io_nodes(*(io_name(it) for it in range(IO) if io_name(it) != VICTIM)))
    time.sleep(LEAVE_SECONDS)
    fault.event(f"stopped, exit code {fault.nodes.running[VICTIM].stop()}")


FAULTS: dict[str, Callable[[RunningFault], None]] = {
    "killed": killed,
    "cut off": cut_off,
    "delayed": delayed,
    "lossy": lossy,
    "stopped": stopped,
    "joined": joined,
    "left": left,
}
SLOWED = {"delayed", "lossy"}
INSTEAD = {
    "relay": "a relay in user space delays and loses frames",
    None: "slow links are SKIPPED, because there is no /dev/net/tun for a relay either",
}
# The number of I/O nodes at the end, where the fault changes it.
AFTERWARDS = {"joined": IO + 1, "left": IO - 1}


def measure(make: Make, checks: Checks, rounds: int) -> dict:
    """Runs each fault once per round."""
    runs, by = [], None
    for number in range(rounds):
        for name in FAULTS:
            with make() as nodes:
                by = nodes.network.slows_by
                if name in SLOWED and by != "netem":
                    say(f"   NO NETEM in this kernel: {INSTEAD[by]}")
                    if by is None:
                        continue
                nodes.up(IO, QUERY, relayed=VICTIM if name in SLOWED and by == "relay" else None)
                run = _run(nodes, name, number)
                runs.append(run)
                _check(checks, name, run)
    return {"runs": runs, "rate": RATE, "timeout_s": TIMEOUT_SECONDS, "slowed_by": by}


def _run(nodes: Nodes, name: str, seed: int) -> dict:
    say(f"fault: {name}")
    # This short load opens the table, so that the measurement does not include it.
    load.Load(nodes, load.TAKE, 1, rate=RATE, seed=seed + 100).end()
    lasts = {"cut off": CUT_SECONDS, "killed": DOWN_SECONDS, "stopped": DOWN_SECONDS + 1, "joined": LEAVE_SECONDS + 1, "left": LEAVE_SECONDS + 1}
    seconds = CALM_SECONDS + lasts.get(name, SLOW_SECONDS) + AFTER_SECONDS
    with watch.Watch(nodes) as watching, Audit(nodes, seed) as audit:
        began = time.monotonic()
        callers = load.Load(nodes, load.TAKE, seconds, rate=RATE, seed=seed)
        time.sleep(CALM_SECONDS)
        fault = RunningFault(nodes, watching)
        FAULTS[name](fault)
        fault.event("over")
        run = callers.end()
    # After any fault, every query node finds all nodes ready again.
    nodes.settled(AFTERWARDS.get(name, IO))
    mends = name not in AFTERWARDS
    first, last = fault.events[0][0], fault.events[-2 if mends else 0][0]
    return run | {
        "fault": name,
        "events": [[round(at - began, 2), what] for at, what in fault.events[:-1]],
        "before_ms": _mean_ms(watching, began, first),
        "meanwhile_ms": _mean_ms(watching, first, last) if mends else None,
        "back_s": _back(watching, first, last),
        "silence_s": watching.longest_silence(),
        "fallback_rows": sum(watching.grown(node.name, FALLBACK) for node in nodes.queries()),
        "from_table_rows": sum(watching.grown(node, IO_FROM_TABLE) for node in watching.samples),
        "audited_rows": audit.rows,
        "wrong_rows": audit.wrong,
        "audit_failures": audit.failures,
        "latencies": [[round(at - began, 2), round(mean, 5) if mean < float("inf") else None] for at, mean in watching.latencies()],
    }


def _mean_ms(watching: watch.Watch, since: float, until: float) -> float | None:
    """Returns the median over time of the mean latency; None if no request was answered."""
    found = [mean for at, mean in watching.latencies() if since <= at < until and mean != float("inf")]
    return median(found) * 1e3 if found else None


def _back(watching: watch.Watch, fault_at: float, since: float) -> float | None:
    """Returns the seconds from `since` until latency has recovered, or None if it has not."""
    latencies = watching.latencies()
    bound = BACK_FACTOR * median(mean for at, mean in latencies if at < fault_at and mean != float("inf"))
    then = [(at, mean) for at, mean in latencies if at >= since]
    for start, _ in then:
        window = [mean for at, mean in then if start <= at < start + BACK_SECONDS]
        if then[-1][0] - start >= BACK_SECONDS and median(window) <= bound:
            return start - since
    return None


def _check(checks: Checks, name: str, run: dict) -> None:
    shown = lambda value, unit: "–" if value is None else f"{value:.1f} {unit}"
    say(
        f"   {run['requests']} requests; mean latency {shown(run['before_ms'], 'ms')} before, "
        f"{shown(run['meanwhile_ms'], 'ms')} during the fault, recovered after {shown(run['back_s'], 's')}; longest silence "
        f"{shown(run['silence_s'], 's')}; "
        f"{run['fallback_rows']:.0f} rows from the tables by query nodes, {run['from_table_rows']:.0f} by I/O nodes"
    )
    failed = run["failed"] + run["unstarted"] + len(run["audit_failures"])
    ends = [what for _, what in run["events"] if "exit code" in what]
    if ends:
        checks.check(f"{name}: it exits with code 0", ends == ["stopped, exit code 0"], ends[0])
    checks.check(f"{name}: no request failed", not failed, (run["faults"] + run["audit_failures"] or [run["requests"]])[0])
    checks.check(f"{name}: no row was wrong or missing", run["audited_rows"] and not run["wrong_rows"] + run["missing_rows"],
                 f"{run['audited_rows']:,} rows compared")  # fmt: skip
    checks.check(f"{name}: the slowest answer is within the deadline", run["max_ms"] < TIMEOUT_SECONDS * 1e3,
                 f"{run['max_ms']:.0f} ms")  # fmt: skip
