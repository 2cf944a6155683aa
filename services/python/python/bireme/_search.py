"""Searches: built step by step, and sent when their rows are asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self

from ._arguments import Key, column_list, key_text
from ._bireme import Client
from ._descriptions import Explanation, explanation_of
from ._errors import BadRequestError
from ._event_loop import answer
from ._target import Target

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa


class _Search:
    """The part that both kinds of search have in common.

    Each step returns a new search, so that a search can be used as a template.
    """

    _client: Client
    # The native module reads the attributes below.
    _target: Target
    _vector: Any = None
    _like: str | None = None
    _key_column: str | None = None
    _words: str | None = None
    _text_column: str | None = None
    _text_weight: float | None = None
    _filter: str | None = None
    _limit: int = 10
    _columns: list[str] = []
    _expressions: list[tuple[str, str]] = []
    _vector_column: str | None = None
    _nprobes: int | None = None
    _nprobes_max: int | None = None
    _refine_factor: int | None = None
    _recall: float | None = None
    _offset: int = 0
    _order: list[tuple[str, bool, bool]] = []

    def __init__(self, client: Client, target: Target, query: Any) -> None:
        self._client = client
        self._target = target
        if isinstance(query, str):
            self._words = query
        elif query is not None:
            # An iterator has its vectors only once, but a template is sent more than once.
            self._vector = list(query) if isinstance(query, Iterator) else query

    def _with(self, **changes: Any) -> Self:
        copy = object.__new__(type(self))
        copy.__dict__ = {**self.__dict__, **changes}
        return copy

    def like(self, key: Key, *, key_column: str | None = None) -> Self:
        """Finds the rows nearest to the vector of the row that has `key`."""
        if self._vector is not None:
            raise BadRequestError("the search is for a vector already; leave out the vector or like()", "BAD_ARGUMENT")
        return self._with(_like=key_text(key), _key_column=key_column)

    def text(self, words: str, *, column: str | None = None, weight: float | None = None) -> Self:
        """Finds the rows that match words best.

        With a vector or `like` it is a hybrid search: both lists of rows are fused by their ranks, and `weight` (1 by
        default) is the weight of the words' ranks.
        """
        return self._with(_words=words, _text_column=column, _text_weight=weight)

    def where(self, predicate: str) -> Self:
        """Finds only rows that pass a SQL predicate, which is applied before the search.

        If this is called more than once, rows must pass all of the predicates.
        """
        return self._with(_filter=f"({self._filter}) AND ({predicate})" if self._filter else predicate)

    def select(self, *columns: str | Iterable[str] | Mapping[str, str]) -> Self:
        """Returns these columns, in this order, and then the row's address and its distance or score.

        Without it, all columns are returned except vectors and blobs. A mapping has names of columns that are computed,
        each with its SQL expression; they come after the others.

        >>> import bireme
        >>> words = bireme.connect().table("words").search().like("n02503517")
        >>> words.select("synset", {"near": "1 - _distance"}).limit(3).to_arrow().column_names
        ['synset', 'near', '_rowaddr', '_distance']
        """
        expressions = [item for it in columns if isinstance(it, Mapping) for item in it.items()]
        others: list[Any] = [it for it in columns if not isinstance(it, Mapping)]
        if expressions and not others:
            return self._with(_columns=[], _expressions=expressions)
        return self._with(_columns=column_list(others[0] if len(others) == 1 else others), _expressions=expressions)

    def limit(self, rows: int) -> Self:
        """Returns at most this many rows: 10 by default, and never more than 10,000."""
        if not 0 < rows < 1 << 32:
            raise BadRequestError(f"limit({rows}) is no number of rows; give at least 1", "BAD_ARGUMENT")
        return self._with(_limit=rows)

    def vector_column(self, column: str) -> Self:
        """Searches this vector column, if the table has several."""
        return self._with(_vector_column=column)

    def nprobes(self, partitions: int, max: int | None = None) -> Self:
        """Searches this many partitions of the index: 20 by default.

        A search of more partitions costs more, and finds more of the nearest rows. With a filter, more partitions are
        searched until enough rows pass, but at most `max` of them if it is given.
        """
        for number in (partitions, partitions if max is None else max):
            if not 0 < number < 1 << 32:
                raise BadRequestError(f"nprobes({number}) is no number of partitions; give at least 1", "BAD_ARGUMENT")
        return self._with(_nprobes=partitions, _nprobes_max=max)

    def refine_factor(self, factor: int) -> Self:
        """Scores this many candidates exactly for each row returned: 10 by default.

        With 0, no candidates are scored, and distances are those of the index.
        """
        if not 0 <= factor < 1 << 32:
            raise BadRequestError(f"refine_factor({factor}) is no factor; give 0 or more", "BAD_ARGUMENT")
        return self._with(_refine_factor=factor)

    def recall(self, share: float) -> Self:
        """Finds this share of the nearest rows, such as 0.95, at the lowest cost.

        It replaces nprobes and refine_factor, and needs the curve that `bireme tune` measures.
        """
        return self._with(_recall=float(share))

    def offset(self, rows: int) -> Self:
        """Leaves out this many of the best rows, so that further ones can be asked for."""
        if not 0 <= rows < 1 << 32:
            raise BadRequestError(f"offset({rows}) is no number of rows; give 0 or more", "BAD_ARGUMENT")
        return self._with(_offset=rows)

    def order_by(self, *columns: str, descending: bool = False, nulls_first: bool = False) -> Self:
        """Returns the rows in the order of these columns' values, instead of the best ones first.

        If this is called more than once, the columns of a later call order rows that tie in those of earlier calls, and
        may have another direction. A search for a predicate alone puts all rows that pass it in order, and returns the
        first of them. Any other search finds the best `limit + offset` rows and puts these in order; it may name
        `_distance`, `_score` or `_relevance_score` too.

        >>> import bireme
        >>> winds = bireme.connect().table("words").search().where("gloss LIKE '%wind%' AND pos = 'noun'")
        >>> winds = winds.order_by("domain", descending=True).order_by("synset")
        >>> winds.select("words").limit(2).to_arrow()["words"].to_pylist()
        [['wind'], ['airstream']]
        """
        if not columns:
            raise BadRequestError("order_by() names no column; name at least one", "BAD_ARGUMENT")
        return self._with(_order=[*self._order, *((column, descending, nulls_first) for column in columns)])


class Search(_Search):
    """A search of a table: by a vector, words, a row's key, a predicate, or several of them.

    The best rows come first. They have `_rowaddr`, and `_distance` (smaller is nearer) for vectors, `_score` (larger is
    better) for words, or `_relevance_score` (larger is better) for both.

    >>> import bireme
    >>> words = bireme.connect().table("words")
    >>> table = words.search().like("n02503517").where("pos = 'noun'").select("words").limit(3).to_arrow()
    >>> table.column_names
    ['words', '_rowaddr', '_distance']
    >>> words.search("elephant").like("n02503517").select("words").limit(3).to_arrow().column_names
    ['words', '_rowaddr', '_relevance_score']
    """

    def to_arrow(self) -> pa.Table:
        """Searches, and returns the rows as a `pyarrow.Table`."""
        return self._client.search(self).wait()

    def to_pandas(self) -> pd.DataFrame:
        """Searches, and returns the rows as a pandas data frame."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> pl.DataFrame:
        """Searches, and returns the rows as a polars data frame. Needs `bireme[polars]`."""
        return _polars(self.to_arrow())

    def to_list(self) -> list[dict[str, Any]]:
        """Searches, and returns each row as a dictionary."""
        rows: list[dict[str, Any]] = self.to_arrow().to_pylist()
        return rows

    def explain(self) -> Explanation:
        """Searches, and returns the time that each stage took instead of the rows.

        >>> import bireme
        >>> print(bireme.connect().table("words").search("wind").explain())  # doctest: +ELLIPSIS
        10 rows of version ...
        """
        return explanation_of(self._client.explain(self).wait())


class AsyncSearch(_Search):
    """A search of a table, as `Search` describes it, for asyncio."""

    async def to_arrow(self) -> pa.Table:
        """Searches, and returns the rows as a `pyarrow.Table`."""
        return await answer(self._client.search(self))

    async def to_pandas(self) -> pd.DataFrame:
        """Searches, and returns the rows as a pandas data frame."""
        return (await self.to_arrow()).to_pandas()

    async def to_polars(self) -> pl.DataFrame:
        """Searches, and returns the rows as a polars data frame. Needs `bireme[polars]`."""
        return _polars(await self.to_arrow())

    async def to_list(self) -> list[dict[str, Any]]:
        """Searches, and returns each row as a dictionary."""
        rows: list[dict[str, Any]] = (await self.to_arrow()).to_pylist()
        return rows

    async def explain(self) -> Explanation:
        """Searches, and returns the time that each stage took instead of the rows."""
        return explanation_of(await answer(self._client.explain(self)))


def _polars(table: pa.Table) -> pl.DataFrame:
    import polars as pl

    return pl.DataFrame(table)
