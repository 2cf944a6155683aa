"""Tables: rows by key and by address, searches, and the cache."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, overload

from ._arguments import Key, is_key
from ._descriptions import (
    TableDescription,
    TableVersion,
    Tag,
    WarmProgress,
    description_of,
    tags_of,
    versions_of,
)
from ._errors import Error
from ._event_loop import answer
from ._search import AsyncSearch, Search
from ._target import Target

if TYPE_CHECKING:
    import pyarrow as pa

#: Whether to show a bar, or a function that gets each step.
Progress: TypeAlias = bool | Callable[[WarmProgress], None]


@dataclass(frozen=True, slots=True)
class PartialRows:
    """The rows of several keys, of which some could not be read."""

    #: The rows that were found and could be read, in the order of their keys.
    rows: pa.Table
    #: The positions, ascending, of keys whose rows could not be read. It is not known whether these keys have a row.
    failed: list[int]
    #: Why one of them could not be read; None if all rows could be.
    error: Error | None


class Table(Target):
    """A table of a query node."""

    def search(self, query: Any = None) -> Search:
        """Begins a search: for the rows nearest to a vector, or, if `query` is a string, those that match words best.

        A vector is a sequence or an array of numbers. A sequence or an iterator of vectors, or an array of two
        dimensions, is a search for each of them, up to 100: the rows of the first vector come first, then those of the
        second, and the column `query_index` has the position of each row's vector. For a column of lists of vectors,
        they are one query. If `query` is not given, `like`, `text` or `where` says what to find.

        >>> import bireme
        >>> words = bireme.connect().table("words")
        >>> elephant = words.get("n02503517", columns=["vector"])["vector"]
        >>> words.search(elephant).select("words").limit(1).to_list()[0]["words"]
        ['elephant']
        >>> words.search([elephant, elephant]).select("words").limit(2).to_arrow()["query_index"].to_pylist()
        [0, 0, 1, 1]
        """
        return Search(self._client, self, query)

    @overload
    def get(
        self,
        key: Key,
        *,
        columns: str | Iterable[str] | None = None,
        key_column: str | None = None,
        all_rows: Literal[False] = False,
        partial: Literal[False] = False,
    ) -> dict[str, Any] | None: ...
    @overload
    def get(
        self,
        key: Key,
        *,
        columns: str | Iterable[str] | None = None,
        key_column: str | None = None,
        all_rows: Literal[True],
        partial: Literal[False] = False,
    ) -> pa.Table: ...
    @overload
    def get(
        self,
        key: Iterable[Key],
        *,
        columns: str | Iterable[str] | None = None,
        key_column: str | None = None,
        all_rows: bool = False,
        partial: Literal[False] = False,
    ) -> pa.Table: ...
    @overload
    def get(
        self,
        key: Key | Iterable[Key],
        *,
        columns: str | Iterable[str] | None = None,
        key_column: str | None = None,
        partial: Literal[True],
    ) -> PartialRows: ...
    def get(
        self,
        key: Any,
        *,
        columns: str | Iterable[str] | None = None,
        key_column: str | None = None,
        all_rows: bool = False,
        partial: bool = False,
    ) -> dict[str, Any] | pa.Table | PartialRows | None:
        """Returns the row that has a key, as a dictionary, or None if no row has it.

        For several keys (10,000 at most), returns the rows that were found as a `pyarrow.Table`, in the order of the
        keys; `lookup` is for more keys. All columns are returned except vectors and blobs, unless `columns` names them.

        If several rows have a key, the one with the lowest address is returned. With `all_rows`, all of them are, also
        for a single key as a `pyarrow.Table`: at most 10,000 rows of a key, and 65,536 of all keys.

        If a row can't be read, the call raises an error. With `partial`, it returns the other rows with the error, as
        `PartialRows`. It still raises if no row can be read and no key is known to have none, if keys can't be looked
        up, or if the caller's grant hides rows. `all_rows` can't be set too.

        >>> import bireme
        >>> words = bireme.connect().table("words")
        >>> words.get("n02503517", columns=["words", "pos"])
        {'words': ['elephant'], 'pos': 'noun', '_rowaddr': 3601}
        >>> words.get("n99999999") is None
        True
        >>> words.get(["n02503517", "n99999999"]).num_rows
        1
        >>> words.get(5, key_column="domain", all_rows=True).num_rows > 1
        True
        >>> found = words.get(["n02503517", "n99999999"], partial=True)
        >>> found.rows.num_rows, found.failed, found.error
        (1, [], None)
        """
        if partial:
            return PartialRows(*self._get_partial(key, columns, key_column, all_rows).wait())
        if is_key(key) and not all_rows:
            return self._get_row(key, columns, key_column).wait()
        return self._get(key, columns, key_column, all_rows).wait()

    @overload
    def exists(self, key: Key, *, key_column: str | None = None, exact: bool = True) -> bool: ...
    @overload
    def exists(self, key: Iterable[Key], *, key_column: str | None = None, exact: bool = True) -> pa.BooleanArray: ...
    def exists(self, key: Any, *, key_column: str | None = None, exact: bool = True) -> bool | pa.BooleanArray:
        """Returns whether a row has the key; for several keys, a `pyarrow.BooleanArray`.

        The node answers from its key index. That index wrongly finds some of the keys that no row has: usually fewer
        than 1 in 800 (far fewer in tables of fewer than 2 million keys), but up to 1 in 55 for each part of the index
        that was merged from much smaller ones. So the keys that it finds are compared with their rows, unless `exact`
        is False.

        >>> import bireme
        >>> bireme.connect().table("words").exists(["n02503517", "n99999999"]).to_pylist()
        [True, False]
        """
        if is_key(key):
            return bool(self._exists([key], key_column, exact).wait()[0].as_py())
        return self._exists(key, key_column, exact).wait()

    def take(
        self,
        addresses: Any = None,
        *,
        offsets: Any = None,
        columns: str | Iterable[str] | None = None,
        skip_missing: bool = False,
    ) -> pa.Table:
        """Returns the rows at addresses (`_rowaddr`), in their order; 1,000,000 at most.

        `addresses` is an array or a sequence of integers. With `offsets` in their place, the rows are named by their
        positions in the table, counted without deleted rows. An address or offset without a row raises
        `NotFoundError`, unless `skip_missing` is set.

        >>> import bireme
        >>> words = bireme.connect().table("words")
        >>> found = words.search("elephant").limit(3).to_arrow()
        >>> words.take(found["_rowaddr"], columns=["words"]).num_rows
        3
        >>> words.take(offsets=[0, 0, 1], columns=["words"]).num_rows
        3
        """
        return self._take(addresses, offsets, columns, skip_missing).wait()

    def lookup(
        self,
        keys: Any,
        *,
        on: str | None = None,
        columns: str | Iterable[str] | None = None,
        key_column: str | None = None,
        all_rows: bool = False,
    ) -> pa.Table:
        """Looks up many keys, and returns a row for each, in their order: nulls for a key that no row has.

        `keys` is an array or a sequence of keys. With `on`, it is a table (of pyarrow, polars, or anything else with
        Arrow's stream interface) that has the keys in the column `on`, and the columns that are looked up are appended
        to its own. A stream is read to its end first. All rows are read from one version.

        If several rows have a key, one of them is returned: the one with the lowest address. With `all_rows`, all of
        them are, so that a row of `keys` is repeated for each row that has its key. The result then has the keys too,
        even if `columns` does not name them: without `on`, in a column with the name of the key column.

        >>> import bireme, pyarrow
        >>> words = bireme.connect().table("words")
        >>> words.lookup(["n02503517", "n99999999"], columns=["pos"])["pos"].to_pylist()
        ['noun', None]
        >>> clicks = pyarrow.table({"synset": ["n02503517"], "clicks": [7]})
        >>> words.lookup(clicks, on="synset", columns=["pos"]).to_pylist()
        [{'synset': 'n02503517', 'clicks': 7, 'pos': 'noun'}]
        """
        return self._lookup(keys, on, columns, key_column, all_rows).wait()

    def warm(
        self,
        *,
        columns: str | Iterable[str] | None = None,
        rows: Iterable[range | tuple[int, int]] | None = None,
        indexes: bool | str | Iterable[str] = False,
        bytes_per_s: int = 0,
        progress: Progress = True,
        timeout: float | None = None,
    ) -> WarmProgress:
        """Fills the cache with the table, or with some columns, or with ranges of rows by position.

        With `indexes`, files of indexes and the table's deletion files are filled instead of rows. True fills the files
        of all indexes; a name or several names fill those of the named indexes. `bytes_per_s` limits the writes of all
        I/O nodes; 0 is no limit. `progress` shows a bar on stderr, or is a function that gets each step. There is no
        time limit unless `timeout` sets one in seconds.

        >>> import bireme
        >>> warmed = bireme.connect().table("words").warm(progress=False)
        >>> warmed.extents_done == warmed.extents_total
        True
        """
        call = self._warm(columns, rows, indexes, bytes_per_s, timeout)
        with _Progress(self.name, progress) as shown:
            warm = call.wait()
            try:
                while step := warm.next().wait():
                    shown.step(WarmProgress(*step))
            finally:
                warm.close()
            return shown.end()

    def count_rows(self, filter: str | None = None) -> int:
        """Returns the number of rows for which the SQL expression `filter` is true, or of all rows.

        >>> import bireme
        >>> words = bireme.connect().table("words")
        >>> words.count_rows() == words.count_rows("pos = 'noun'") + words.count_rows("pos <> 'noun'")
        True
        """
        return self._client.count_rows(self, filter or "").wait()

    def describe(self) -> TableDescription:
        """Returns the table's version, schema, size and indexes.

        >>> import bireme
        >>> table = bireme.connect().table("words").describe()
        >>> table.rows, table.key_column, [index.kind for index in table.indexes if index.metric]
        (6927, 'synset', ['IVF_RQ'])
        """
        return description_of(self._client.describe(self).wait())

    def versions(self) -> list[TableVersion]:
        """Returns the versions that the table's branch has now, the latest first.

        >>> import bireme
        >>> words = bireme.connect().table("words")
        >>> latest = words.versions()[0]
        >>> latest.version == words.describe().version, latest.metadata["total_rows"]
        (True, '6927')
        """
        return versions_of(self._client.versions(self).wait())

    def tags(self) -> list[Tag]:
        """Returns the table's tags, in the order of their names.

        >>> import bireme
        >>> bireme.connect().table("words").tags()
        []
        """
        return tags_of(self._client.tags(self).wait())


class AsyncTable(Target):
    """A table of a query node for asyncio. Its methods are those of `Table`, awaited."""

    def search(self, query: Any = None) -> AsyncSearch:
        """Begins a search: for the rows nearest to a vector or each of several, or those that match words best."""
        return AsyncSearch(self._client, self, query)

    @overload
    async def get(
        self,
        key: Key,
        *,
        columns: str | Iterable[str] | None = None,
        key_column: str | None = None,
        all_rows: Literal[False] = False,
        partial: Literal[False] = False,
    ) -> dict[str, Any] | None: ...
    @overload
    async def get(
        self,
        key: Key,
        *,
        columns: str | Iterable[str] | None = None,
        key_column: str | None = None,
        all_rows: Literal[True],
        partial: Literal[False] = False,
    ) -> pa.Table: ...
    @overload
    async def get(
        self,
        key: Iterable[Key],
        *,
        columns: str | Iterable[str] | None = None,
        key_column: str | None = None,
        all_rows: bool = False,
        partial: Literal[False] = False,
    ) -> pa.Table: ...
    @overload
    async def get(
        self,
        key: Key | Iterable[Key],
        *,
        columns: str | Iterable[str] | None = None,
        key_column: str | None = None,
        partial: Literal[True],
    ) -> PartialRows: ...
    async def get(
        self,
        key: Any,
        *,
        columns: str | Iterable[str] | None = None,
        key_column: str | None = None,
        all_rows: bool = False,
        partial: bool = False,
    ) -> dict[str, Any] | pa.Table | PartialRows | None:
        """Returns the row that has a key, as a dictionary, or None; for several keys, the rows that were found."""
        if partial:
            return PartialRows(*await answer(self._get_partial(key, columns, key_column, all_rows)))
        if is_key(key) and not all_rows:
            return await answer(self._get_row(key, columns, key_column))
        return await answer(self._get(key, columns, key_column, all_rows))

    @overload
    async def exists(self, key: Key, *, key_column: str | None = None, exact: bool = True) -> bool: ...
    @overload
    async def exists(
        self, key: Iterable[Key], *, key_column: str | None = None, exact: bool = True
    ) -> pa.BooleanArray: ...
    async def exists(self, key: Any, *, key_column: str | None = None, exact: bool = True) -> bool | pa.BooleanArray:
        """Returns whether a row has the key; for several keys, a `pyarrow.BooleanArray`."""
        if is_key(key):
            return bool((await answer(self._exists([key], key_column, exact)))[0].as_py())
        return await answer(self._exists(key, key_column, exact))

    async def take(
        self,
        addresses: Any = None,
        *,
        offsets: Any = None,
        columns: str | Iterable[str] | None = None,
        skip_missing: bool = False,
    ) -> pa.Table:
        """Returns the rows at addresses (`_rowaddr`) or offsets, in their order; 1,000,000 at most."""
        return await answer(self._take(addresses, offsets, columns, skip_missing))

    async def lookup(
        self,
        keys: Any,
        *,
        on: str | None = None,
        columns: str | Iterable[str] | None = None,
        key_column: str | None = None,
        all_rows: bool = False,
    ) -> pa.Table:
        """Looks up many keys, and returns a row for each, in their order: nulls for a key that no row has.

        With `on`, a thread reads `keys`, so that the event loop runs meanwhile also if they are a stream.
        """
        if on is None:
            return await answer(self._lookup(keys, on, columns, key_column, all_rows))
        return await answer(await asyncio.to_thread(self._lookup, keys, on, columns, key_column, all_rows))

    async def warm(
        self,
        *,
        columns: str | Iterable[str] | None = None,
        rows: Iterable[range | tuple[int, int]] | None = None,
        indexes: bool | str | Iterable[str] = False,
        bytes_per_s: int = 0,
        progress: Progress = True,
        timeout: float | None = None,
    ) -> WarmProgress:
        """Fills the cache with the table, or with some columns, or with ranges of rows by position."""
        call = self._warm(columns, rows, indexes, bytes_per_s, timeout)
        with _Progress(self.name, progress) as shown:
            warm = await answer(call)
            try:
                while step := await answer(warm.next()):
                    shown.step(WarmProgress(*step))
            finally:
                warm.close()
            return shown.end()

    async def count_rows(self, filter: str | None = None) -> int:
        """Returns the number of rows for which the SQL expression `filter` is true, or of all rows."""
        return await answer(self._client.count_rows(self, filter or ""))

    async def describe(self) -> TableDescription:
        """Returns the table's version, schema, size and indexes."""
        return description_of(await answer(self._client.describe(self)))

    async def versions(self) -> list[TableVersion]:
        """Returns the versions that the table's branch has now, the latest first."""
        return versions_of(await answer(self._client.versions(self)))

    async def tags(self) -> list[Tag]:
        """Returns the table's tags, in the order of their names."""
        return tags_of(await answer(self._client.tags(self)))


class _Progress:
    """Shows the steps of a warm."""

    def __init__(self, table: str, progress: Progress) -> None:
        self._table = table
        self._last = WarmProgress(0, 0, 0, 0, 0, "")
        self._report = progress if callable(progress) else None
        self._bar: Any = None
        if progress is True:
            from tqdm import tqdm

            self._bar = tqdm(desc=f"warm {table}", unit=" extents", total=0)

    def step(self, step: WarmProgress) -> None:
        """Shows a step."""
        self._last = step
        if self._bar is not None:
            self._bar.total = step.extents_total
            self._bar.n = step.extents_done
            self._bar.set_postfix_str(f"{step.bytes_written / 1e6:.0f} MB written")
        if self._report is not None:
            self._report(step)

    def end(self) -> WarmProgress:
        """Returns the last step.

        Raises an error if extents could not be filled.
        """
        last = self._last
        if last.extents_failed:
            message = f"{last.extents_failed} extents of table `{self._table}` could not be filled: {last.last_error}"
            raise Error(message, "INTERNAL", {"table": self._table})
        return last

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
