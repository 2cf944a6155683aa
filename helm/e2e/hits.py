"""The hit ratio while something is done: what share of the rows did not come from the table, by `bireme status`."""

from .check import say
from .process import until
from .release import Release
from .samples import Samples

EVERY_SECONDS = 2
IN_LINE = 10

# Rows, and those of them that came from the table.
Counts = tuple[int, int]


class Hits(Samples):
    """`with Hits(release) as hits: …`, then `hits.show()`."""

    def __init__(self, release: Release):
        super().__init__(EVERY_SECONDS, lambda: counters(release))

    def intervals(self) -> list[tuple[float, int, int]]:
        """The second, the rows since the last one, and how many of them came from the table."""
        last, found = None, []
        for second, now in list(self.taken):
            if last is not None:
                grown = [growth(last.get(node), counts, node) for node, counts in now.items()]
                found.append((second, sum(rows for rows, _ in grown), sum(table for _, table in grown)))
            last = {**(last or {}), **now}
        return found

    def until(self, ratio: float, timeout: float = 60) -> None:
        """Waits for a ratio of at least so much, in two intervals from now on."""
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
    """Of the I/O nodes that answer, and of the query node that is asked: what that read from a table itself, no I/O
    node has counted."""
    # 4 while an I/O node does not answer.
    status = release.ask("status", accept=(0, 4))[0]
    found = {("io", it["name"]): (it["rows"], it["table_rows"]) for it in status["io_nodes"] if it["reachable"]}
    return found | {("query", status["node"]): (status["fallback_rows"], status["fallback_rows"])}


def growth(before: Counts | None, now: Counts, node: tuple[str, str]) -> Counts:
    """Counts begin at 0 with each process. A query node that was not asked before may have counted long since."""
    if before is None:
        before = now if node[0] == "query" else (0, 0)
    if now < before:
        before = (0, 0)
    return now[0] - before[0], now[1] - before[1]
