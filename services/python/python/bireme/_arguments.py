"""Converts arguments: keys, columns, endpoints."""

from __future__ import annotations

import datetime
import decimal
import re
import uuid
from collections.abc import Iterable
from typing import Any, TypeAlias

import pyarrow as pa

from ._errors import BadRequestError

#: The key of a row. `get` and `like` send it as text, which the node reads as a value of the key column. The keys of
#: `exists` and `lookup` must be of the column's kind: integers for integers, and so on; UUIDs for text or bytes.
#: Scalars of pyarrow and NumPy that have such a value are keys too.
Key: TypeAlias = str | int | bytes | decimal.Decimal | datetime.date | uuid.UUID

_KEY_TYPES = (str, int, bytes, decimal.Decimal, datetime.date, uuid.UUID)

#: The port of a query node.
PORT = 7070


def is_key(value: Any) -> bool:
    """Returns whether a value is a single key, not several."""
    if isinstance(value, pa.Scalar):
        return not isinstance(value, pa.ListScalar)
    # NumPy's integers and strings are not all subclasses of Python's, but have the method `item`.
    return isinstance(value, _KEY_TYPES) or (hasattr(value, "item") and getattr(value, "ndim", None) == 0)


def key_text(key: Any) -> str:
    """Returns a key as text, as a node reads it."""
    if isinstance(key, str):
        return key
    if isinstance(key, pa.Scalar):
        try:
            key = key.as_py()
        except (ValueError, OverflowError) as error:
            # Python has no such value, such as a date after the year 9999. The scalar's text may fail in the same way.
            raise _bad(f"a scalar of type {key.type} is no key: {error}") from error
    if not isinstance(key, _KEY_TYPES) and is_key(key):
        value = key.item()
        # NumPy returns a time in nanoseconds as an integer, which is no key of a column of timestamps.
        is_time = getattr(getattr(key, "dtype", None), "kind", None) == "M"
        key = str(key) if is_time and isinstance(value, int) else value
    match key:
        case bool():
            pass
        case str() | uuid.UUID() | int():
            return str(key)
        case bytes():
            return key.hex()
        case decimal.Decimal():
            return format(key, "f")
        case datetime.date():  # also a datetime
            return key.isoformat()
    kinds = "a string, an integer, bytes, a decimal, a date, a datetime or a UUID"
    raise _bad(f"{key!r} is no key; give {kinds}")


def key_array(keys: Any) -> pa.Array:
    """Returns many keys as one array. An array stays as it is."""
    if is_key(keys):
        # The text of a scalar fails if Python has no such value.
        shown = f"a scalar of type {keys.type}" if isinstance(keys, pa.Scalar) else repr(keys)
        raise _bad(f"{shown} is a single key; give a sequence of keys")
    keys = _one_chunk(keys)
    if hasattr(keys, "__arrow_c_array__"):
        return keys
    if hasattr(keys, "__arrow_c_stream__"):  # a series of polars or pandas
        return pa.chunked_array(keys).combine_chunks()
    try:
        if not hasattr(keys, "__array__"):
            keys = list(keys)
            if any(isinstance(key, uuid.UUID) for key in keys):
                return _uuid_array(keys)
        try:
            array = pa.array(keys)
        except OverflowError:  # without a type, pyarrow makes integers int64
            array = pa.array(keys, pa.uint64())
    except (TypeError, OverflowError, pa.ArrowException) as error:
        raise _bad(f"the keys make no array: {error}") from error
    array = _one_chunk(array)  # pandas has arrays of several chunks
    # A list that is empty, or has only None, has the type null, which is not a type of keys. Any type of keys will do.
    return array.cast(pa.string()) if pa.types.is_null(array.type) else array


def is_uuid_array(keys: Any) -> bool:
    """Returns whether an array has UUIDs."""
    return isinstance(keys, pa.Array) and getattr(keys.type, "extension_name", None) == "arrow.uuid"


def _one_chunk(array: Any) -> Any:
    """Returns the values of a chunked array as one array. Anything else stays as it is."""
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _uuid_array(keys: list[Any]) -> pa.Array:
    for key in keys:
        if key is not None and not isinstance(key, uuid.UUID):
            raise _bad(f"the keys are UUIDs and others, such as {key!r}; give keys of one kind")
    storage = pa.array([key and key.bytes for key in keys], pa.binary(16))
    return pa.ExtensionArray.from_storage(pa.uuid(), storage)


def row_table(rows: Any) -> pa.Table:
    """Returns the rows of a table, a data frame or a stream: of anything that has Arrow's stream interface."""
    if not hasattr(rows, "__arrow_c_stream__"):
        kinds = "a table of pyarrow, or a data frame of polars or pandas"
        raise _bad(f"a {type(rows).__name__} has no columns; give {kinds}")
    try:
        # pyarrow releases Python's lock while it reads. The stream may need that lock, to open files in Python.
        return pa.RecordBatchReader.from_stream(rows).read_all()
    except (OSError, pa.ArrowException) as error:
        raise _bad(f"the rows of the argument can't be read: {error}") from error


def taken_rows(addresses: Any, offsets: Any) -> tuple[pa.Array, bool]:
    """Returns the addresses or offsets of rows, whichever are given, as one array, and whether they are offsets."""
    if (addresses is None) == (offsets is None):
        raise _bad("give either `addresses` or `offsets`")
    rows, name = (addresses, "addresses") if offsets is None else (offsets, "offsets")
    if not isinstance(rows, pa.ChunkedArray) and not hasattr(rows, "__arrow_c_array__"):
        try:
            rows = pa.array(rows, pa.uint64())
        except (TypeError, OverflowError, pa.ArrowException) as error:
            raise _bad(f"the row {name} are no array of integers: {error}") from error
    # An array of pandas may have several chunks too.
    return _one_chunk(rows), offsets is not None


def column_list(columns: str | Iterable[str] | None) -> list[str]:
    """Returns names of columns as a list. An empty list stands for the columns that are returned by default."""
    if columns is None:
        return []
    names = [columns] if isinstance(columns, str) else list(columns)
    if not names:
        raise _bad("no columns are named; name at least one, or leave the argument out")
    return names


def row_ranges(rows: Iterable[range | tuple[int, int]] | None) -> list[tuple[int, int]]:
    """Returns half-open ranges of positions."""
    ranges = []
    for it in rows or ():
        first, end = (it.start, it.stop) if isinstance(it, range) else it
        if (isinstance(it, range) and it.step != 1) or not 0 <= first < end:
            raise _bad(f"{it!r} is no range of rows; give range(first, end) with 0 <= first < end")
        ranges.append((first, end))
    return ranges


def index_names(indexes: bool | str | Iterable[str]) -> list[str] | None:
    """Returns names of indexes as a list. An empty list stands for all indexes, and None for no index."""
    if isinstance(indexes, bool):
        return [] if indexes else None
    return [indexes] if isinstance(indexes, str) else list(indexes)


def endpoint(uri: str) -> str:
    """Returns the endpoint that a URI names. `bireme://host` is unencrypted, at port 7070 unless the URI names another.

    >>> from bireme._arguments import endpoint
    >>> endpoint("bireme://query-0"), endpoint("bireme://[::1]:1"), endpoint("https://query-0:7070")
    ('http://query-0:7070', 'http://[::1]:1', 'https://query-0:7070')
    """
    if not uri.startswith("bireme://"):
        return uri
    host, slash, path = uri.removeprefix("bireme://").partition("/")
    has_port = re.search(r":[^\]]*$", host)
    return f"http://{host}{'' if has_port else f':{PORT}'}{slash}{path}"


def _bad(message: str) -> BadRequestError:
    return BadRequestError(message, "BAD_ARGUMENT")
