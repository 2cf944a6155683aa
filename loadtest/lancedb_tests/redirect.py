"""Lets LanceDB's local connections and tables write locally, and read through Bireme.

Their methods that read are replaced by those of a remote connection to a node that serves the folder of the local
database, `lancedb.connect("db://default", host_override=…)`:

    test ──► LanceTable, AsyncTable ──┬─ writes ──► folder ◄── bireme up
                                      └─ reads ───► RemoteTable ──HTTP──┘

Databases in memory become folders. A node is started at the first read of a folder, and again when the folder's tables
have changed. A table that has checked out a version is read at that version.
"""

import functools
import inspect
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from urllib.parse import unquote, urlparse

import lancedb
from lancedb.db import AsyncConnection, LanceDBConnection
from lancedb.remote.table import RemoteTable
from lancedb.table import AsyncBranches, AsyncTable, AsyncTags, LanceTable

from nodes import Node, loop, nodes, scratch

# Reads within a write, such as of the schema, stay local.
is_writing: ContextVar[bool] = ContextVar("is_writing", default=False)


def folder_of(uri: str) -> Path:
    """Returns the folder that a URI names."""
    parsed = urlparse(str(uri))
    return Path(unquote(parsed.path) if parsed.scheme == "file" else str(uri)).resolve()


class Handle:
    """A table that is read remotely, at the branch and version of its local handle."""

    def __init__(self, node: Node, name: str, branch: str | None, version: int | str | None) -> None:
        self.node, self.name, self.branch, self.version = node, name, branch, version
        self.writes = nodes.writes

    def is_current(self, node: Node) -> bool:
        """Returns whether nothing was written since the handle was opened. A handle caches the schema for half a
        minute."""
        return self.node is node and self.writes == nodes.writes

    @functools.cached_property
    def sync(self) -> RemoteTable:
        """The synchronous client's handle of the table."""
        table = self.node.connection.open_table(self.name)
        if self.branch is not None:
            table = table.branches.checkout(self.branch)
        if self.version is not None:
            table.checkout(self.version)
        return table

    @functools.cached_property
    def asynchronous(self) -> AsyncTable:
        """The asyncio client's handle of the table."""
        connection = self.node.async_connection

        async def opened() -> AsyncTable:
            table = await connection.open_table(self.name)
            if self.branch is not None:
                table = await table.branches.checkout(self.branch)
            if self.version is not None:
                await table.checkout(self.version)
            return table

        return loop.run(opened())


def handle_of(table: AsyncTable) -> Handle | None:
    """Returns the remote handle of a local table; None for a table that is remote, or that is being written."""
    if is_writing.get() or is_remote(table):
        return None
    uri = loop.run(table.uri())
    node = nodes.of(folder_of(uri).parent)
    assert node is not None, f"{uri} is not served"
    handle = table.__dict__.get("_bireme")
    if handle is None or not handle.is_current(node):
        branch, version = table.current_branch(), table.__dict__.get("_bireme_version")
        handle = table._bireme = Handle(node, folder_of(uri).stem, branch, version)
    return handle


def is_remote(table: AsyncTable) -> bool:
    """Returns whether a table is one of a remote connection."""
    return not repr(table._inner).startswith("NativeTable")


def replace(kind: type, name: str, replacement: Callable[[Callable], Callable]) -> None:
    """Replaces a method of a class."""
    before = kind.__dict__[name]
    if isinstance(before, (property, functools.cached_property)):
        read = before.fget if isinstance(before, property) else before.func
        setattr(kind, name, property(replacement(read)))
    else:
        setattr(kind, name, functools.wraps(before)(replacement(before)))


@contextmanager
def writing() -> Iterator[None]:
    """Keeps reads local during a `with` block."""
    token = is_writing.set(True)
    try:
        yield
    finally:
        is_writing.reset(token)
        nodes.writes += 1


def called_as(before: Callable, read: Callable) -> Callable:
    """Returns `read`, or, if `before` is a coroutine function, one that awaits the result of `read`."""

    async def read_later(*args: object, **options: object) -> object:
        return await read(*args, **options)

    return read_later if inspect.iscoroutinefunction(before) else read


def written(kind: type, name: str) -> None:
    """Keeps the reads within a method local."""

    def replacement(before: Callable) -> Callable:
        async def write_later(self: object, *args: object, **options: object) -> object:
            with writing():
                return await before(self, *args, **options)

        def write(self: object, *args: object, **options: object) -> object:
            with writing():
                return before(self, *args, **options)

        return write_later if inspect.iscoroutinefunction(before) else write

    replace(kind, name, replacement)


def read_by_sync_table(name: str) -> None:
    """Replaces a method or a property of synchronous tables by the remote table's."""

    def replacement(before: Callable) -> Callable:
        def read(self: LanceTable, *args: object, **options: object) -> object:
            handle = handle_of(self._table)
            if handle is None:
                return before(self, *args, **options)
            found = getattr(handle.sync, name)
            return found(*args, **options) if callable(found) else found

        return read

    replace(LanceTable, name, replacement)


def read_by_async_table(name: str) -> None:
    """Replaces a method of asyncio tables by the remote table's."""

    def replacement(before: Callable) -> Callable:
        def read(self: AsyncTable, *args: object, **options: object) -> object:
            handle = handle_of(self)
            if handle is None:
                return before(self, *args, **options)
            return getattr(handle.asynchronous, name)(*args, **options)

        return called_as(before, read)

    replace(AsyncTable, name, replacement)


def moved(name: str) -> None:
    """Makes a method that changes the version of a local table change the remote table's too."""

    def replacement(before: Callable) -> Callable:
        async def move(self: AsyncTable, *args: object, **options: object) -> object:
            result = await before(self, *args, **options)
            self.__dict__.pop("_bireme", None)
            self._bireme_version = args[0] if name == "checkout" else None
            return result

        return move

    replace(AsyncTable, name, replacement)


class Tags(AsyncTags):
    """The tags of a local table, which are read remotely."""

    def __init__(self, table: AsyncTable) -> None:
        super().__init__(table._inner)
        self._read = table

    async def list(self) -> dict:
        """Returns all tags."""
        return await handle_of(self._read).asynchronous.tags.list()

    async def get_version(self, tag: str) -> int:
        """Returns the version of a tag."""
        return await handle_of(self._read).asynchronous.tags.get_version(tag)


def of_version(before: Callable) -> Callable:
    """Lets the handle of a branch be read at the version that was asked for."""

    async def checkout(self: AsyncBranches, name: str, version: int | None = None) -> AsyncTable:
        table = await before(self, name, version)
        table._bireme_version = version
        return table

    return checkout


def tags(before: Callable) -> Callable:
    """Replaces the tags of local tables."""
    return lambda self: before(self) if is_remote(self) else Tags(self)


def listed(kind: type, name: str) -> None:
    """Replaces a method that lists tables by the remote connection's."""

    def remote(self: LanceDBConnection | AsyncConnection, namespace_path: object) -> object:
        if is_writing.get() or namespace_path or self.uri.startswith("db://"):
            return None
        node = nodes.of(folder_of(self.uri))
        return node and (node.connection if kind is LanceDBConnection else node.async_connection)

    def replacement(before: Callable) -> Callable:
        def read(self: LanceDBConnection, *args: object, **options: object) -> object:
            connection = remote(self, options.get("namespace_path"))
            if connection is None:
                return before(self, *args, **options)
            return getattr(connection, name)(*args, **options)

        return called_as(before, read)

    replace(kind, name, replacement)


def opened(kind: type) -> None:
    """Opens a table remotely before it is opened locally, so that the node is what refuses a missing table."""

    def replacement(before: Callable) -> Callable:
        def node_of(self: LanceDBConnection | AsyncConnection, options: dict) -> Node | None:
            is_local = is_writing.get() or options.get("namespace_path") or self.uri.startswith("db://")
            return None if is_local else nodes.of(folder_of(self.uri))

        def open_table(self: LanceDBConnection, name: str, **options: object) -> LanceTable:
            node = node_of(self, options)
            if node is not None:
                node.connection.open_table(name)
            # Opening a table reads its version, which is to stay local.
            with writing():
                return before(self, name, **options)

        async def open_table_later(self: AsyncConnection, name: str, **options: object) -> AsyncTable:
            node = node_of(self, options)
            if node is not None:
                await node.async_connection.open_table(name)
            return await before(self, name, **options)

        return open_table_later if kind is AsyncConnection else open_table

    replace(kind, "open_table", replacement)


def in_folder(connect: Callable) -> Callable:
    """Makes connections to databases in memory connect to new folders instead."""

    def in_new_folder(uri: object, *args: object, **options: object) -> object:
        is_memory = str(uri).startswith("memory://")
        return connect(tempfile.mkdtemp(dir=scratch) if is_memory else uri, *args, **options)

    return in_new_folder


READS = """
    take_offsets take_row_ids count_rows head schema version list_versions list_indices index_stats stats tokenize
    embedding_functions blob_columns fetch_blobs fetch_blob_files fetch_blob_ranges
    _execute_query _explain_plan _analyze_plan _output_schema
"""
# These are replaced so for asyncio tables only. `search` of a synchronous table builds a query, which `_execute_query`
# runs remotely. Before that, it may embed words, for which it reads the schema.
READS_OF_ASYNC = "search query vector_search to_arrow to_pandas"
WRITES = """
    add update delete optimize add_columns alter_columns drop_columns update_field_metadata replace_field_metadata
    create_index create_index_async drop_index wait_for_index refresh_column _do_merge
"""
WRITES_OF_SYNC = "create_scalar_index create_fts_index merge cleanup_old_versions compact_files"
MOVES = "checkout checkout_latest restore"

for name in READS.split():
    read_by_sync_table(name)
for name in (READS + READS_OF_ASYNC).split():
    read_by_async_table(name)
for name in (WRITES + WRITES_OF_SYNC).split():
    written(LanceTable, name)
for name in WRITES.split():
    written(AsyncTable, name)
for name in MOVES.split():
    moved(name)
for kind in (LanceDBConnection, AsyncConnection):
    written(kind, "create_table")
    written(kind, "drop_table")
    listed(kind, "table_names")
    listed(kind, "list_tables")
    opened(kind)
replace(AsyncTable, "tags", tags)
replace(AsyncBranches, "checkout", of_version)
# A remote table has no method for all of its rows; its query has.
replace(LanceTable, "to_arrow", lambda before: lambda self: self.search().limit(None).to_arrow())
lancedb.connect, lancedb.connect_async = in_folder(lancedb.connect), in_folder(lancedb.connect_async)
