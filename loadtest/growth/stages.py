"""Keeps the stages of growth, and the counts of what each node served in each stage."""

import time
from dataclasses import dataclass, field

from tiers.counters import FALLBACK, IO_FROM_TABLE, IO_ROWS, REQUESTS
from tiers.fault import Failed

from .loopback import Loopback

# The counters that are reported for a node, by tier.
REPORTED = {"io": {"rows": IO_ROWS, "from_table": IO_FROM_TABLE}, "query": {"requests": REQUESTS, "from_table": FALLBACK}}


@dataclass(frozen=True)
class Size:
    """The number of nodes in each tier."""

    io: int
    query: int

    def __str__(self) -> str:
        return f"{self.io}+{self.query}"


# Each stage grows one tier.
STAGES = [Size(1, 1), Size(2, 1), Size(2, 2), Size(4, 2)]


@dataclass
class StageStart:
    """The start of a stage: its time on the monotonic clock, and the nodes' counters at that time."""

    size: Size
    since: float
    counted: dict[str, dict[str, float]]


@dataclass
class Stages:
    """The stages that have begun, in order."""

    nodes: Loopback
    begun: list[StageStart] = field(default_factory=list)

    def begin(self, size: Size) -> None:
        """Begins a stage: requests that nodes serve from now on count towards it. The current stage may begin again."""
        self.begun = [it for it in self.begun if it.size != size] + [self._mark(size)]

    def endpoints(self) -> dict:
        """Returns the current stage and its nodes' addresses."""
        addresses = lambda nodes: [node.endpoint.removeprefix("http://") for node in nodes]
        size = self.begun[-1].size
        return {
            "stage": str(size),
            "io": addresses(self.nodes.ios[: size.io]),
            "query": addresses(self.nodes.queries[: size.query]),
        }

    def report(self) -> list[dict]:
        """Returns what each node has served in each stage, up to now."""
        begun = list(self.begun)
        ends = [*begun[1:], self._mark(begun[-1].size)]
        return [
            {
                "stage": str(it.size),
                "seconds": end.since - it.since,
                "nodes": {name: _served(name, before, end.counted[name]) for name, before in it.counted.items()},
            }
            for it, end in zip(begun, ends)
        ]

    def verdict(self) -> None:
        """Raises `Failed` unless the load reached the last stage and every node served requests in it."""
        last = self.begun[-1].size
        if last != STAGES[-1]:
            raise Failed(f"the load ended in stage {last}, before stage {STAGES[-1]}")
        idle = [name for name, served in self.report()[-1]["nodes"].items() if not any(served.values())]
        if idle:
            raise Failed(f"these nodes served nothing in stage {last}: {', '.join(idle)}")

    def _mark(self, size: Size) -> StageStart:
        return StageStart(size, time.monotonic(), self.nodes.served(size.io, size.query))


def _served(node: str, before: dict[str, float], after: dict[str, float]) -> dict[str, int]:
    reported = REPORTED[node.split("-")[0]]
    return {what: round(after.get(counter, 0) - before.get(counter, 0)) for what, counter in reported.items()}
