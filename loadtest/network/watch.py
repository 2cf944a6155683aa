"""Samples the nodes' counters from their /metrics, inside their namespaces, so that cut links do not matter."""

import http.client
import threading
import time
from dataclasses import dataclass, field

from tiers.counters import REQUESTS, SECONDS, scrape

from .namespaces import in_namespace
from .nodes import METRICS_PORT, Nodes

EVERY_SECONDS = 0.2


def counters(nodes: Nodes, name: str) -> dict[str, float]:
    """Reads a node's counters once."""
    found: list[dict[str, float]] = []
    thread = in_namespace(nodes.network.namespace(name), lambda: found.append(_scrape()))
    thread.join()
    return found[0] if found else {}


def _scrape() -> dict[str, float]:
    """Reads the counters of the node whose namespace this thread is in."""
    return scrape("127.0.0.1", METRICS_PORT)


@dataclass
class Watch:
    """`with Watch(nodes) as watch: …` samples each node's counters, with the times of the samples."""

    nodes: Nodes
    samples: dict[str, list[tuple[float, dict[str, float]]]] = field(default_factory=dict)

    def __enter__(self) -> "Watch":
        self.over = threading.Event()
        self.threads: list[threading.Thread] = []
        for name in list(self.nodes.running):
            self.add(name)
        return self

    def add(self, name: str) -> None:
        """Begins to sample another node."""
        samples = self.samples[name] = []

        def follow() -> None:
            while not self.over.wait(EVERY_SECONDS):
                try:
                    samples.append((time.monotonic(), _scrape()))
                except (OSError, http.client.HTTPException):
                    # The node is down.
                    continue

        self.threads.append(in_namespace(self.nodes.network.namespace(name), follow))

    def __exit__(self, *_: object) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join()

    def grown(self, name: str, counter: str) -> float:
        """Returns a counter's growth from the first sample to the last. A restarted node counts from 0."""
        sum, last = 0.0, None
        for _, sample in self.samples.get(name, []):
            value = sample.get(counter, 0.0)
            if last is not None:
                sum += value - last if value >= last else value
            last = value
        return sum

    def latencies(self) -> list[tuple[float, float]]:
        """Returns the requests' mean latency in seconds, by the time of the sample, for all query nodes."""
        found = []
        for name, samples in self.samples.items():
            if not name.startswith("query-"):
                continue
            for (_, before), (at, after) in zip(samples, samples[1:]):
                requests = after.get(REQUESTS, 0) - before.get(REQUESTS, 0)
                # Without any answer, the latency counts as infinite.
                spent = after.get(SECONDS, 0) - before.get(SECONDS, 0)
                found.append((at, spent / requests if requests else float("inf")))
        return sorted(found)

    def longest_silence(self) -> float:
        """Returns the longest time in which a query node answered no request."""
        longest = 0.0
        for name, samples in self.samples.items():
            last = None
            for (_, before), (at, after) in zip(samples, samples[1:]):
                if after.get(REQUESTS, 0) == before.get(REQUESTS, 0) or not name.startswith("query-"):
                    continue
                longest = max(longest, at - (last or at))
                last = at
        return longest
