"""Applies load to a pair of nodes and measures their CPU time."""

from dataclasses import dataclass
from pathlib import Path

from .bireme import Bireme, Node
from .cpu import children_us
from .profile import Profile

# The share of rows that a full RAM tier may read from the drive.
DRIVE_READS_MAX = 0.005


@dataclass
class Tier:
    """A query node and its I/O node."""

    bireme: Bireme
    io: Node
    query: Node

    @staticmethod
    def start(
        bireme: Bireme,
        profile: Profile,
        tables: list[str],
        slabs: list[Path],
        ram_tier_gib: int = 0,
        keep: bool = False,
        **variables: str,
    ) -> "Tier":
        """Starts both nodes with the same `variables` and the profile's `tables`. Slabs begin empty unless `keep` is
        set."""
        io = bireme.io_node(slabs, profile.slab_gib, ram_tier_gib, keep, **variables)
        query = bireme.query_node(io, {name: profile.table(name) for name in tables}, **variables)
        bireme.ready(query, tables)
        return Tier(bireme, io, query)

    def bench(self, kind: str, table: str, seconds: float, *arguments: str) -> dict:
        """Runs `bireme bench` and adds the CPU of both nodes and of the client to its report."""
        before = (self.io.cpu_us(), self.query.cpu_us(), children_us())
        report = self.bireme.bench(self.query, kind, table, seconds, *arguments)
        after = (self.io.cpu_us(), self.query.cpu_us(), children_us())
        names = ["io_cpu_us", "query_cpu_us", "client_cpu_us"]
        report["cpu"] = {name: b - a for name, a, b in zip(names, before, after, strict=True)}
        return report

    def fetch(self, table: str, seconds: float, *arguments: str) -> dict:
        """Runs `bireme bench fetch` of random rows, from the I/O node."""
        return self.bench("fetch", table, seconds, "--io-endpoint", self.io.endpoint, *arguments)

    def fill_ram(self, table: str, *arguments: str) -> None:
        """Fetches random rows until each core has all of them in its part of the RAM tier. Prints how much of the I/O
        node's memory is in huge pages, because with small ones a row of the RAM tier takes up to a fifth more CPU."""
        for attempt in range(20):
            report = self.fetch(table, 5, *arguments, "--seed", f"{attempt}")
            if report["nodes"]["drive_reads_per_row"] < DRIVE_READS_MAX:
                huge, all_of_it = (self.io.memory_bytes(name) / 2**30 for name in ("AnonHugePages", "Anonymous"))
                print(f"RAM tier: {huge:.1f} of the I/O node's {all_of_it:.1f} GiB of memory are in huge pages", flush=True)
                return
        raise RuntimeError("the RAM tier does not hold the table; give `ram_tier_gib` more, or the table fewer rows")

    def stop(self) -> None:
        """Stops both nodes."""
        for node in [self.query, self.io]:
            node.stop()


def core_seconds(report: dict) -> float:
    """Returns the CPU seconds of both nodes and the client."""
    return sum(report["cpu"].values()) / 1e6
