"""A table, and how it is asked: what tables and searches of both kinds share."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ._arguments import (
    column_list,
    index_names,
    is_key,
    is_uuid_array,
    key_array,
    key_text,
    row_ranges,
    row_table,
    taken_rows,
)
from ._bireme import Call, Client, Warm
from ._errors import Error

if TYPE_CHECKING:
    import pyarrow as pa


class Target:
    """A table and how it is asked. The native module reads these attributes."""

    def __init__(
        self,
        connection: object,
        client: Client,
        name: str,
        version: int,
        branch: str,
        background: bool,
        timeout: float | None,
    ) -> None:
        # The nodes that `bireme.serve` started end when their connection is no longer used.
        self._connection = connection
        self._client = client
        self.name = name
        #: The version that is read; 0 for the one that the node serves at each request.
        self.version = version
        #: The branch that is read; empty for the main one.
        self.branch = branch
        #: Whether requests have batch priority: interactive requests that wait are served first.
        self.background = background
        #: The time limit of a request in seconds; None for no limit.
        self.timeout = timeout

    def __repr__(self) -> str:
        branch = f", branch={self.branch!r}" if self.branch else ""
        version = f", version={self.version}" if self.version else ""
        return f"{type(self).__name__}({self.name!r}{branch}{version})"

    def _get(
        self, key: Any, columns: str | Iterable[str] | None, key_column: str | None, all_rows: bool
    ) -> Call[pa.Table]:
        return self._client.get(self, _key_texts(key), column_list(columns), key_column, all_rows)

    def _get_partial(
        self, key: Any, columns: str | Iterable[str] | None, key_column: str | None, all_rows: bool
    ) -> Call[tuple[pa.Table, list[int], Error | None]]:
        return self._client.get_partial(self, _key_texts(key), column_list(columns), key_column, all_rows)

    def _get_row(
        self, key: Any, columns: str | Iterable[str] | None, key_column: str | None
    ) -> Call[dict[str, Any] | None]:
        return self._client.get_row(self, key_text(key), column_list(columns), key_column)

    def _exists(self, keys: Any, key_column: str | None, exact: bool) -> Call[pa.BooleanArray]:
        array = key_array(keys)
        return self._client.exists(self, array, is_uuid_array(array), key_column, exact)

    def _take(
        self, addresses: Any, offsets: Any, columns: str | Iterable[str] | None, skip_missing: bool
    ) -> Call[pa.Table]:
        rows, are_offsets = taken_rows(addresses, offsets)
        return self._client.take(self, rows, are_offsets, column_list(columns), skip_missing)

    def _lookup(
        self, keys: Any, on: str | None, columns: str | Iterable[str] | None, key_column: str | None, all_rows: bool
    ) -> Call[pa.Table]:
        import pyarrow as pa

        rows = row_table(keys) if on is not None else pa.table({"keys": key_array(keys)})
        return self._client.lookup(self, rows, on, column_list(columns), key_column, all_rows)

    def _warm(
        self,
        columns: str | Iterable[str] | None,
        rows: Iterable[range | tuple[int, int]] | None,
        indexes: bool | str | Iterable[str],
        bytes_per_s: int,
        timeout: float | None,
    ) -> Call[Warm]:
        target = self._with_timeout(timeout)
        return self._client.warm(target, column_list(columns), row_ranges(rows), index_names(indexes), bytes_per_s)

    def _with_timeout(self, timeout: float | None) -> Target:
        target = copy.copy(self)
        target.timeout = timeout
        return target


def _key_texts(key: Any) -> list[str]:
    is_single = is_key(key) or not isinstance(key, Iterable)
    return [key_text(it) for it in ([key] if is_single else key)]
