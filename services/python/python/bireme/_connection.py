"""Connections to a query node."""

from __future__ import annotations

import os
from types import TracebackType

from . import _bireme
from ._arguments import endpoint
from ._descriptions import Status, TableSummary, status_of, summary_of
from ._event_loop import answer
from ._table import AsyncTable, Table

#: The endpoint if neither an argument nor BIREME_ENDPOINT names one.
_ENDPOINT_DEFAULT = "bireme://127.0.0.1"

#: The time limit of a request in seconds.
_TIMEOUT_DEFAULT = 30.0

_Path = str | os.PathLike[str]


class _Connection:
    """The part that both kinds of connection have in common."""

    def __init__(self, client: _bireme.Client, timeout: float | None) -> None:
        self._client = client
        #: The time limit of a request in seconds; None for no limit.
        self.timeout = timeout

    @property
    def endpoint(self) -> str:
        """The query node's endpoint."""
        return self._client.endpoint

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.endpoint!r})"


class Connection(_Connection):
    """A connection to a query node. Threads may share it."""

    def table(self, name: str, *, version: int = 0, branch: str = "", background: bool = False) -> Table:
        """Returns a table. Nothing is sent before it is used.

        With `version` 0, each request reads the version that the node serves then: the latest that it knows, or the
        one that its configuration pins. With `branch`, the table is read on this branch, whose versions have numbers
        of their own. Requests with `background` wait while requests without it are waiting.

        >>> import bireme
        >>> bireme.connect().table("words")
        Table('words')
        """
        return Table(self, self._client, name, version, branch, background, self.timeout)

    def tables(self) -> list[TableSummary]:
        """Returns the tables that the node serves.

        >>> import bireme
        >>> [(table.name, table.rows) for table in bireme.connect().tables() if table.name == "words"]
        [('words', 6927)]
        """
        return [summary_of(table) for table in self._client.tables(self.timeout).wait()]

    def status(self) -> Status:
        """Returns the state of the query node and of its I/O nodes.

        >>> import bireme
        >>> [node.state for node in bireme.connect().status().io_nodes]
        ['ready']
        """
        return status_of(self._client.status(self.timeout).wait())

    def close(self) -> None:
        """Ends the nodes that `bireme.serve` started. Does nothing to a connection that `bireme.connect` made."""

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class AsyncConnection(_Connection):
    """A connection to a query node for asyncio. Its methods are those of `Connection`, awaited."""

    def table(self, name: str, *, version: int = 0, branch: str = "", background: bool = False) -> AsyncTable:
        """Returns a table. Nothing is sent before it is used.

        >>> import asyncio, bireme
        >>> async def synset(key):
        ...     db = await bireme.connect_async()
        ...     return await db.table("words").get(key, columns=["words"])
        >>> asyncio.run(synset("n02503517"))["words"]
        ['elephant']
        """
        return AsyncTable(self, self._client, name, version, branch, background, self.timeout)

    async def tables(self) -> list[TableSummary]:
        """Returns the tables that the node serves."""
        return [summary_of(table) for table in await answer(self._client.tables(self.timeout))]

    async def status(self) -> Status:
        """Returns the state of the query node and of its I/O nodes."""
        return status_of(await answer(self._client.status(self.timeout)))


def connect(
    uri: str | None = None,
    *,
    timeout: float | None = _TIMEOUT_DEFAULT,
    token: str | None = None,
    tls_ca: _Path | None = None,
    tls_cert: _Path | None = None,
    tls_key: _Path | None = None,
    tls_name: str | None = None,
) -> Connection:
    """Connects to a query node.

    `uri` is `bireme://host` or `bireme://host:port`, or an endpoint as the command line takes it: `host:port`,
    `http://host:port`, or `https://host:port` for TLS. If it is not given, the endpoint is that of BIREME_ENDPOINT, or
    `bireme://127.0.0.1` if this is not set.

    `timeout` is the time limit of each request in seconds; None for no limit. `token` is a JSON Web Token or an API
    key. `tls_ca` is a file of the authorities (PEM) that vouch for the node's certificate, if they are not the
    system's. `tls_cert` and `tls_key` are the files of the client's certificate and its key. `tls_name` is the name in
    the node's certificate, if it is not the endpoint's host.

    >>> import bireme
    >>> with bireme.connect(timeout=5) as db:
    ...     db.table("words").exists("n02503517")
    True
    """
    call = _bireme.connect(_endpoint(uri), token, tls_ca, tls_cert, tls_key, tls_name)
    return Connection(call.wait(), timeout)


async def connect_async(
    uri: str | None = None,
    *,
    timeout: float | None = _TIMEOUT_DEFAULT,
    token: str | None = None,
    tls_ca: _Path | None = None,
    tls_cert: _Path | None = None,
    tls_key: _Path | None = None,
    tls_name: str | None = None,
) -> AsyncConnection:
    """Connects to a query node from asyncio. The arguments are those of `connect`.

    >>> import asyncio, bireme
    >>> async def count():
    ...     db = await bireme.connect_async()
    ...     return len(await db.table("words").search("wind").limit(3).to_list())
    >>> asyncio.run(count())
    3
    """
    call = _bireme.connect(_endpoint(uri), token, tls_ca, tls_cert, tls_key, tls_name)
    return AsyncConnection(await answer(call), timeout)


def _endpoint(uri: str | None) -> str:
    return endpoint(uri or os.environ.get("BIREME_ENDPOINT") or _ENDPOINT_DEFAULT)
