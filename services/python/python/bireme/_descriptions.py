"""The classes in which a node's reports about itself and its tables are returned."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class TableSummary:
    """A table that a node serves."""

    name: str
    #: The latest version that the node knows; 0 if the table is not open.
    version: int
    #: The number of rows, without deleted rows.
    rows: int
    #: Why the table is unavailable; empty if it is available.
    error: str


@dataclass(frozen=True, slots=True)
class Index:
    """An index of a table."""

    name: str
    columns: list[str]
    #: The kind, such as `IVF_RQ`, `Inverted` or `BTree`.
    kind: str
    #: The metric of a vector index: `l2`, `cosine` or `dot`.
    metric: str
    #: Rows that were added after the index was built. They are searched without it.
    unindexed_rows: int


@dataclass(frozen=True, slots=True)
class TableDescription:
    """A version of a table."""

    name: str
    version: int
    rows: int
    deleted_rows: int
    fragments: int
    schema: pa.Schema
    #: The columns that are returned if a request names none: all except vectors and blobs.
    default_columns: list[str]
    #: The key column; empty if none is declared.
    key_column: str
    indexes: list[Index]
    #: Why the table is unavailable now; empty if it is available.
    error: str


@dataclass(frozen=True, slots=True)
class TableVersion:
    """A version of a table, in a list."""

    version: int
    #: The time when it was committed, in UTC.
    created_at: datetime
    #: Numbers that the version records as text, such as `total_rows`.
    metadata: dict[str, str]


@dataclass(frozen=True, slots=True)
class Tag:
    """A name for a version of a table."""

    name: str
    version: int
    #: The branch that the version belongs to; empty for the main one.
    branch: str


@dataclass(frozen=True, slots=True)
class IoNode:
    """An I/O node as the query node sees it. Counters begin at 0 when it starts."""

    name: str
    endpoint: str
    #: Its location, such as an availability zone; empty if the list of nodes has none.
    zone: str
    #: `ready`, `joining`, `draining`, `away` or `ejected`.
    state: str
    weight: float
    #: The weight that placement uses now; less than `weight` while the node joins.
    share: float
    reachable: bool
    ready: bool
    #: Why it does not answer; empty if it does.
    error: str
    #: `io_uring`, `pread`, or `in place` if the drives are memory.
    engine: str
    capacity_bytes: int
    used_bytes: int
    extents: int
    #: Rows served.
    rows: int
    drive_reads: int
    drive_read_bytes: int
    #: Sectors found in its RAM.
    ram_hits: int
    #: Rows that it read from tables.
    table_rows: int
    cpu_us: int
    resident_bytes: int
    #: Drives that are no longer written to, because writes failed.
    read_only_drives: list[str]
    #: Drives that are no longer used, because they failed.
    retired_drives: list[str]


@dataclass(frozen=True, slots=True)
class Status:
    """The state of a query node and of its I/O nodes. Counters begin at 0 when the node starts."""

    node: str
    version: str
    cpu_us: int
    resident_bytes: int
    #: Requests that wait now in the longest of the node's admission queues.
    search_queue: int
    #: Requests that have ended, with or without an answer.
    requests: int
    #: The requests among them that were answered with an error.
    errors: int
    #: Rows that this node read from tables because their I/O node could not answer.
    fallback_rows: int
    #: Whether other machines can reach the node and it has no access policy.
    open_access: bool
    tables: list[TableSummary]
    io_nodes: list[IoNode]


@dataclass(frozen=True, slots=True)
class WarmProgress:
    """The progress of a warm, over all I/O nodes."""

    #: Extents that will be on the drives at the end.
    extents_total: int
    #: Extents that are on the drives now.
    extents_done: int
    #: The extents of `extents_done` that were on the drives before the warm.
    extents_found: int
    #: Extents that could not be filled.
    extents_failed: int
    bytes_written: int
    #: The last failure; empty if none.
    last_error: str


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of a search."""

    name: str
    time_us: int
    #: Counts of candidates, reads, bytes.
    detail: str
    #: 0 for a stage on the query node, 1 for a part of it on an I/O node.
    depth: int


@dataclass(frozen=True, slots=True)
class Explanation:
    """How a search was done."""

    version: int
    #: Whether the vector was compared with every row that passes the filter, because there is no index, or the request
    #: wants none.
    exhaustive: bool
    #: The number of rows found.
    rows: int
    stages: list[Stage]

    def __str__(self) -> str:
        lines = [f"{self.rows} rows of version {self.version}{', exhaustive' if self.exhaustive else ''}"]
        for stage in self.stages:
            name = "  " * stage.depth + stage.name
            lines.append(f"{name:<12}{stage.time_us:>9} us  {stage.detail}".rstrip())
        return "\n".join(lines)


def summary_of(table: dict[str, Any]) -> TableSummary:
    """Returns the summary that the native module gives as a dictionary."""
    return TableSummary(**table)


def description_of(table: dict[str, Any]) -> TableDescription:
    """Returns the description that the native module gives as a dictionary."""
    return TableDescription(**{**table, "indexes": [Index(**index) for index in table["indexes"]]})


def versions_of(versions: list[tuple[int, int, dict[str, str]]]) -> list[TableVersion]:
    """Returns the versions that the native module gives as tuples."""
    begin = datetime(1970, 1, 1, tzinfo=UTC)
    return [TableVersion(version, begin + timedelta(milliseconds=ms), of) for version, ms, of in versions]


def tags_of(tags: list[tuple[str, int, str]]) -> list[Tag]:
    """Returns the tags that the native module gives as tuples."""
    return [Tag(*tag) for tag in tags]


def status_of(status: dict[str, Any]) -> Status:
    """Returns the status that the native module gives as a dictionary."""
    tables = [summary_of(table) for table in status["tables"]]
    return Status(**{**status, "tables": tables, "io_nodes": [IoNode(**node) for node in status["io_nodes"]]})


def explanation_of(explained: tuple[int, bool, int, list[tuple[str, int, str, int]]]) -> Explanation:
    """Returns the explanation that the native module gives as a tuple."""
    version, exhaustive, rows, stages = explained
    return Explanation(version, exhaustive, rows, [Stage(*stage) for stage in stages])
