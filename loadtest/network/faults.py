"""Nodes killed, cut off, slowed, stopped, added and taken away, at a fixed rate of requests."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

from tiers.counters import FALLBACK, IO_FROM_TABLE

from . import load, watch
from .audit import Audit
from .check import Checks, say
from .nodes import TIMEOUT_SECONDS, Make, Nodes, io_name

IO, QUERY = 4, 2
VICTIM = io_name(1)
RATE = 40
# Before anything is done to a node, and after it is well again.
CALM_SECONDS, AFTER_SECONDS = 4, 10
# Latency counts as back when it stays below so many times what it was, for so long.
BACK_FACTOR, BACK_SECONDS = 2.0, 1.0
DOWN_SECONDS, CUT_SECONDS, SLOW_SECONDS = 6, 12, 10
DELAY_MS, JITTER_MS, LOSS = 20, 5, 0.02


@dataclass
class Under:
    """A fault that is under way: when what was done."""

    nodes: Nodes
    watch: watch.Watch
    events: list[tuple[float, str]] = field(default_factory=list)

    def event(self, what: str) -> None:
        """Now."""
        self.events.append((time.monotonic(), what))


def killed(under: Under) -> None:
    """SIGKILL, and a new start on the same slab."""
    under.event("killed")
    under.nodes.running[VICTIM].kill()
    time.sleep(DOWN_SECONDS)
    under.event("started")
    under.nodes.start_io(VICTIM)


def cut_off(under: Under) -> None:
    """Its cable is cut, and mended."""
    under.event("cut")
    under.nodes.network.cut(VICTIM)
    time.sleep(CUT_SECONDS)
    under.event("mended")
    under.nodes.network.mend(VICTIM)


def delayed(under: Under) -> None:
    """Its cable is slow, both ways."""
    _slowed(under, 0.0)


def lossy(under: Under) -> None:
    """The same, and frames are lost."""
    _slowed(under, LOSS)


def _slowed(under: Under, loss: float) -> None:
    under.event("slowed")
    under.nodes.network.slow(VICTIM, DELAY_MS, JITTER_MS, loss)
    time.sleep(SLOW_SECONDS)
    under.event("even again")
    under.nodes.network.even(VICTIM)


def stopped(under: Under) -> None:
    """SIGTERM, and a new start on the same slab."""
    under.event("told to stop")
    code = under.nodes.running[VICTIM].stop()
    under.event(f"stopped, exit code {code}")
    time.sleep(DOWN_SECONDS)
    under.event("started")
    under.nodes.start_io(VICTIM)


def joined(under: Under) -> None:
    """One more, with an empty slab, listed once it serves."""
    name = io_name(IO)
    under.nodes.start_io(name)
    under.watch.add(name)
    under.event("listed")
    under.nodes.write_list(under.nodes.io_nodes(*map(io_name, range(IO + 1))))


def left(under: Under) -> None:
    """Taken off the list, then stopped."""
    under.event("taken off the list")
    under.nodes.write_list(under.nodes.io_nodes(*(io_name(it) for it in range(IO) if io_name(it) != VICTIM)))
    time.sleep(1)
    under.event(f"stopped, exit code {under.nodes.running[VICTIM].stop()}")


FAULTS: dict[str, Callable[[Under], None]] = {
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
    "relay": "frames are delayed and lost by a relay in user space",
    None: "slow links are SKIPPED, as there is no /dev/net/tun for a relay either",
}
# How many I/O nodes there are in the end.
AFTERWARDS = {"joined": IO + 1, "left": IO - 1}


def measure(make: Make, checks: Checks, rounds: int) -> dict:
    """Each fault once a round."""
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
    # What is opened at the first request is not measured.
    load.Load(nodes, load.TAKE, 1, rate=RATE, seed=seed + 100).end()
    lasts = {"cut off": CUT_SECONDS, "killed": DOWN_SECONDS, "stopped": DOWN_SECONDS + 1, "joined": 2, "left": 2}
    seconds = CALM_SECONDS + lasts.get(name, SLOW_SECONDS) + AFTER_SECONDS
    with watch.Watch(nodes) as watching, Audit(nodes, seed) as audit:
        began = time.monotonic()
        callers = load.Load(nodes, load.TAKE, seconds, rate=RATE, seed=seed)
        time.sleep(CALM_SECONDS)
        under = Under(nodes, watching)
        FAULTS[name](under)
        under.event("over")
        run = callers.end()
    # Whatever it was, all nodes are back in their places in the end.
    nodes.settled(AFTERWARDS.get(name, IO))
    mends = name not in AFTERWARDS
    first, last = under.events[0][0], under.events[-2 if mends else 0][0]
    return run | {
        "fault": name,
        "events": [[round(at - began, 2), what] for at, what in under.events[:-1]],
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
    """The median over time of what requests took in the mean."""
    found = [mean for at, mean in watching.latencies() if since <= at < until and mean != float("inf")]
    return median(found) * 1e3 if found else None


def _back(watching: watch.Watch, fault: float, since: float) -> float | None:
    """Seconds from `since` until requests take no longer than before the fault, and go on so; none if they don't."""
    latencies = watching.latencies()
    bound = BACK_FACTOR * median(mean for at, mean in latencies if at < fault and mean != float("inf"))
    then = [(at, mean) for at, mean in latencies if at >= since]
    for start, _ in then:
        window = [mean for at, mean in then if start <= at < start + BACK_SECONDS]
        if then[-1][0] - start >= BACK_SECONDS and median(window) <= bound:
            return start - since
    return None


def _check(checks: Checks, name: str, run: dict) -> None:
    shown = lambda value, unit: "–" if value is None else f"{value:.1f} {unit}"
    say(
        f"   {run['requests']} requests; in the mean {shown(run['before_ms'], 'ms')} before, "
        f"{shown(run['meanwhile_ms'], 'ms')} meanwhile, back after {shown(run['back_s'], 's')}; silent for "
        f"{shown(run['silence_s'], 's')} at most; "
        f"{run['fallback_rows']:.0f} rows from the tables by query nodes, {run['from_table_rows']:.0f} by I/O nodes"
    )
    failed = run["failed"] + run["unstarted"] + len(run["audit_failures"])
    ends = [what for _, what in run["events"] if "exit code" in what]
    if ends:
        checks.check(f"{name}: it ends well", ends == ["stopped, exit code 0"], ends[0])
    checks.check(f"{name}: no request failed", not failed, (run["faults"] + run["audit_failures"] or [run["requests"]])[0])
    checks.check(f"{name}: no row was wrong or missing", run["audited_rows"] and not run["wrong_rows"] + run["missing_rows"],
                 f"{run['audited_rows']:,} rows compared")  # fmt: skip
    checks.check(f"{name}: the slowest answer is within the deadline", run["max_ms"] < TIMEOUT_SECONDS * 1e3,
                 f"{run['max_ms']:.0f} ms")  # fmt: skip
