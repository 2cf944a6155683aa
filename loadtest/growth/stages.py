"""How many nodes there are when, and what they served meanwhile."""

import time
from dataclasses import dataclass, field

from tiers.counters import FALLBACK, IO_FROM_TABLE, IO_ROWS, REQUESTS
from tiers.fault import Failed

from .loopback import Loopback

# What is told of a node, by tier.
TOLD = {"io": {"rows": IO_ROWS, "from_table": IO_FROM_TABLE}, "query": {"requests": REQUESTS, "from_table": FALLBACK}}


@dataclass(frozen=True)
class Size:
    """Of the tiers."""

    io: int
    query: int

    def __str__(self) -> str:
        return f"{self.io}+{self.query}"


# One tier at a time grows.
STAGES = [Size(1, 1), Size(2, 1), Size(2, 2), Size(4, 2)]


@dataclass
class Begun:
    """A stage: since when, on the monotonic clock, and what its nodes had counted by then."""

    size: Size
    since: float
    counted: dict[str, dict[str, float]]


@dataclass
class Stages:
    """Those that have begun, in order."""

    nodes: Loopback
    begun: list[Begun] = field(default_factory=list)

    def begin(self, size: Size) -> None:
        """What nodes serve from here on is of this stage; the one that is on may begin anew."""
        self.begun = [it for it in self.begun if it.size != size] + [self._mark(size)]

    def who(self) -> dict:
        """Who is there to be asked."""
        places = lambda nodes: [node.endpoint.removeprefix("http://") for node in nodes]
        size = self.begun[-1].size
        return {
            "stage": str(size),
            "io": places(self.nodes.ios[: size.io]),
            "query": places(self.nodes.queries[: size.query]),
        }

    def report(self) -> list[dict]:
        """What each node served while the tiers were so large, up to now."""
        begun = list(self.begun)
        ends = [*begun[1:], self._mark(begun[-1].size)]
        return [
            {
                "stage": str(it.size),
                "seconds": end.since - it.since,
                "nodes": {name: _told(name, before, end.counted[name]) for name, before in it.counted.items()},
            }
            for it, end in zip(begun, ends)
        ]

    def verdict(self) -> None:
        """Raises unless the load met tiers of each size, and each node had its share of it in the end."""
        last = self.begun[-1].size
        if last != STAGES[-1]:
            raise Failed(f"the load was over while the tiers were {last}, before they were {STAGES[-1]}")
        idle = [name for name, served in self.report()[-1]["nodes"].items() if not any(served.values())]
        if idle:
            raise Failed(f"served nothing while the tiers were {last}: {', '.join(idle)}")

    def _mark(self, size: Size) -> Begun:
        return Begun(size, time.monotonic(), self.nodes.served(size.io, size.query))


def _told(node: str, before: dict[str, float], after: dict[str, float]) -> dict[str, int]:
    of = TOLD[node.split("-")[0]]
    return {what: round(after.get(counter, 0) - before.get(counter, 0)) for what, counter in of.items()}
