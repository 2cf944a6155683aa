"""Samples the hit ratio with `bireme status`: the share of rows that did not come from the table."""

from .check import say
from .process import until
from .release import Release
from .samples import Samples

EVERY_SECONDS = 2
IN_LINE = 10

# The number of rows, and how many of them came from the table.
Counts = tuple[int, int]


class Hits(Samples):
    """`with Hits(release) as hits: …`, then `hits.show()`."""

    def __init__(self, release: Release):
        super().__init__(EVERY_SECONDS, lambda: counters(release))

    def intervals(self) -> list[tuple[float, int, int]]:
        """Returns for each sample its second, the rows since the last sample, and how many came from the table."""
        last, found = None, []
        for second, now in list(self.taken):
            if last is not None:
                grown = [growth(last.get(node), counts, node) for node, counts in now.items()]
                found.append((second, sum(rows for rows, _ in grown), sum(table for _, table in grown)))
            last = {**(last or {}), **now}
        return found

    def until(self, ratio: float, timeout: float = 60) -> None:
        """Waits until two successive intervals from now on have at least this ratio."""
        begun = len(self.intervals())

        def holds() -> bool:
            latest = [it for it in self.intervals()[begun:] if it[1]][-2:]
            return len(latest) == 2 and all(share(*it[1:]) >= ratio for it in latest)

        until(f"a hit ratio of {ratio:.0%}", holds, timeout)

    def rows(self) -> int:
        return sum(rows for _, rows, _ in self.intervals())

    def missed(self) -> int:
        return sum(table for _, _, table in self.intervals())

    def last(self) -> float:
        return next(share(rows, table) for _, rows, table in reversed(self.intervals()) if rows)

    def show(self) -> None:
        seen = [f"{second:.0f} s {share(rows, table):.1%}" for second, rows, table in self.intervals() if rows]
        say(f"   {self.missed()} of {self.rows()} rows came from the table; the hit ratio over time:")
        for begin in range(0, len(seen), IN_LINE):
            say(f"      {', '.join(seen[begin:begin + IN_LINE])}")


def share(rows: int, table: int) -> float:
    return 1 - table / rows


def counters(release: Release) -> dict[tuple[str, str], Counts]:
    """Returns the counts of the I/O nodes that answer, and of the query node that answers, because rows that the query
    node itself reads from a table are counted by no I/O node."""
    # The exit code is 4 while an I/O node does not answer.
    status = release.ask("status", accept=(0, 4))[0]
    found = {("io", it["name"]): (it["rows"], it["table_rows"]) for it in status["io_nodes"] if it["reachable"]}
    return found | {("query", status["node"]): (status["fallback_rows"], status["fallback_rows"])}


def growth(before: Counts | None, now: Counts, node: tuple[str, str]) -> Counts:
    """Returns the growth of counts, which begin at 0 in each process. A query node seen for the first time may have
    counted long before, so its growth is 0."""
    if before is None:
        before = now if node[0] == "query" else (0, 0)
    if now < before:
        before = (0, 0)
    return now[0] - before[0], now[1] - before[1]
