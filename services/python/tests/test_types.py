"""Types, nulls and nested columns: rows are those that pyarrow reads from the file that was ingested."""

import datetime
import decimal
import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bireme
from conftest import run

DAY = datetime.date(2026, 11, 25)
NOON = datetime.datetime(2026, 11, 25, 12, 30, 0, 5)

ROWS = pa.table(
    {
        "id": pa.array([-7, 0, 1 << 40], pa.int64()),
        "flag": pa.array([True, None, False]),
        "small": pa.array([None, -128, 127], pa.int8()),
        "unsigned": pa.array([0, None, (1 << 64) - 1], pa.uint64()),
        "half": pa.array([1.5, None, 2.0], pa.float16()),
        "real": pa.array([1.5, None, float("inf")], pa.float64()),
        "text": pa.array(["", None, "häßlich\u0000x"]),
        "large": pa.array(["a", "", None], pa.large_string()),
        "bytes": pa.array([b"", None, b"\x00\xff"]),
        "fixed": pa.array([b"abcd", None, b"efgh"], pa.binary(4)),
        "uuid": pa.ExtensionArray.from_storage(
            pa.uuid(), pa.array([b"0123456789abcdef", None, b"\xff" * 16], pa.binary(16))
        ),
        "day": pa.array([DAY, None, datetime.date(1900, 1, 1)]),
        "time": pa.array([NOON, None, NOON], pa.timestamp("us")),
        "zoned": pa.array([NOON, None, NOON], pa.timestamp("us", "UTC")),
        "took": pa.array([5, None, -5], pa.duration("ms")),
        "price": pa.array([decimal.Decimal("1.50"), None, decimal.Decimal("-9999.99")], pa.decimal128(10, 2)),
        "list": pa.array([[1, None], None, []], pa.list_(pa.int32())),
        "struct": pa.array([{"a": 1, "b": {"c": "x"}}, None, {"a": None, "b": None}]),
        "nested": pa.array([[{"k": "a", "v": [1.0]}], [], None]),
        "vector": pa.array([[1.0] * 8, [0.5] * 8, [-1.0] * 8], pa.list_(pa.float32(), 8)),
        "category": pa.array(["a", None, "a"]).dictionary_encode(),
    }
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Iterator[bireme.Server]:
    """A server of a table with a column of each type."""
    at = tmp_path_factory.mktemp("types")
    pq.write_table(ROWS, at / "rows.parquet")
    run("ingest", str(at / "rows.parquet"), "--table", str(at / "all.lance"), "--key", "id")
    with bireme.serve(at / "all.lance") as server:
        yield server


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.binary(16)])
def test_uuids_are_keys_of_text_and_of_bytes(tmp_path: Path, kind: pa.DataType) -> None:
    # The bytes of the first one are UTF-8 too.
    keys = [uuid.UUID(bytes=b"0123456789abcdef"), uuid.UUID(int=2**128 - 1)]
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    values = [str(key) if is_text else key.bytes for key in keys]
    rows = pa.table({"id": pa.array(values, kind), "number": [1, 2]})
    pq.write_table(rows, tmp_path / "rows.parquet")
    run("ingest", str(tmp_path / "rows.parquet"), "--table", str(tmp_path / "t.lance"), "--key", "id")
    absent = uuid.UUID(bytes=b"fedcba9876543210")
    with bireme.serve(tmp_path / "t.lance") as db:
        table = db.table("t")
        assert [table.get(key)["number"] for key in keys] == [1, 2]
        assert table.get(absent) is None
        assert [table.exists(key) for key in [*keys, absent]] == [True, True, False]
        wanted = [keys[1], absent, keys[0]]
        array = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([key.bytes for key in wanted], pa.binary(16)))
        assert table.get(array[0])["number"] == 2
        assert [table.exists(key) for key in array] == [True, False, True]
        for given in [wanted, array]:
            assert table.exists(given).to_pylist() == [True, False, True]
            assert table.lookup(given, columns=["number"]).to_pylist() == [{"number": it} for it in [2, None, 1]]
        assert table.lookup([None, keys[0]], columns=["number"])["number"].to_pylist() == [None, 1]
        joined = table.lookup(pa.table({"of": array, "at": [7, 8, 9]}), on="of", columns=["number"])
        assert joined.column_names == ["of", "at", "number"]
        assert (joined["at"].to_pylist(), joined["number"].to_pylist()) == ([7, 8, 9], [2, None, 1])
        every = table.lookup([keys[0], absent], columns=["number"], all_rows=True)
        assert every["number"].to_pylist() == [1, None]
        assert every["id"].to_pylist()[0] == values[0]
        named = table.lookup(pa.table({"of": array}), on="of", columns=["number"], all_rows=True)
        assert (named.column_names, named["number"].to_pylist()) == (["of", "number"], [2, None, 1])
        with pytest.raises(bireme.BadRequestError, match="UUIDs and others, such as 'x'"):
            table.exists([keys[0], "x"])


def plain(table: pa.Table) -> list[dict]:
    """Returns rows without their addresses."""
    return [{name: value for name, value in row.items() if name != "_rowaddr"} for row in table.to_pylist()]


def test_every_way_to_read_returns_the_same_rows(server: bireme.Server) -> None:
    table = server.table("all")
    names = ROWS.column_names
    expected = ROWS.to_pylist()
    keys = ROWS["id"].to_pylist()
    for _ in range(2):  # from the table, then from the cache
        assert plain(table.take([0, 1, 2], columns=names)) == expected
        assert plain(table.get(keys, columns=names)) == expected
        assert plain(table.lookup(keys, columns=names)) == expected
        assert plain(table.search().where("id IS NOT NULL").select(names).to_arrow()) == expected
        for key, row in zip(keys, expected, strict=True):
            assert table.get(key, columns=names) == {**row, "_rowaddr": keys.index(key)}
        table.warm(progress=False)


def test_types_are_those_of_the_table(server: bireme.Server) -> None:
    table = server.table("all")
    taken = table.take([0], columns=ROWS.column_names).schema
    looked_up = table.lookup([0], columns=ROWS.column_names).schema
    for field in ROWS.schema:
        assert taken.field(field.name).type == field.type, field.name
        # Look-ups return plain values in place of dictionaries.
        expected = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        assert looked_up.field(field.name).type == expected, field.name
    assert table.describe().schema.field("struct").type == ROWS.schema.field("struct").type
    assert table.lookup([], columns=["nested"]).schema.field("nested").type == ROWS.schema.field("nested").type


@pytest.mark.parametrize(
    ("column", "key"),
    [
        ("id", 1 << 40),
        ("unsigned", (1 << 64) - 1),
        ("text", "häßlich\u0000x"),
        ("bytes", b"\x00\xff"),
        ("day", DAY),
        ("time", NOON),
        ("zoned", NOON.replace(tzinfo=datetime.UTC)),
        ("zoned", NOON.replace(tzinfo=datetime.UTC).astimezone(datetime.timezone(datetime.timedelta(hours=2)))),
        ("price", decimal.Decimal("1.50")),
        ("price", decimal.Decimal("1.5E+0")),
    ],
)
def test_keys_of_every_type(server: bireme.Server, column: str, key: bireme._arguments.Key) -> None:
    table = server.table("all")
    for given in [key, pa.scalar(key, ROWS.schema.field(column).type)]:
        row = table.get(given, columns=[column], key_column=column)
        assert row is not None
        assert row[column] == key
        assert table.exists(given, key_column=column) is True
        assert table.lookup([given], columns=[column], key_column=column)[column].to_pylist() == [key]


def test_keys_of_pandas_in_several_chunks(server: bireme.Server) -> None:
    keys = [(1 << 64) - 1, 1]
    chunks = pd.concat([pd.Series([key], dtype="uint64[pyarrow]") for key in keys]).values
    assert server.table("all").exists(chunks, key_column="unsigned").to_pylist() == [True, False]


def test_arrays_need_not_be_aligned(server: bireme.Server) -> None:
    table = server.table("all")
    numbers = np.frombuffer(bytes(4) + np.arange(3).tobytes(), "<i8", offset=4)
    array = pa.array(numbers)
    assert array.buffers()[1].address % 8 == 4
    for keys in [numbers, array]:
        assert table.exists(keys).to_pylist() == [True, False, False]
        assert table.lookup(keys, columns=["small"])["small"].to_pylist() == [-128, None, None]
    assert plain(table.take(array, columns=["id"])) == ROWS.select(["id"]).to_pylist()
    joined = table.lookup(pa.table({"key": array}), on="key", columns=["id"])
    assert joined.to_pylist() == [{"key": 0, "id": 0}, {"key": 1, "id": None}, {"key": 2, "id": None}]


def test_times_in_nanoseconds_are_keys(server: bireme.Server) -> None:
    noon = np.datetime64(NOON, "ns")
    for key in [noon, pa.scalar(noon)]:
        row = server.table("all").get(key, columns=["time"], key_column="time")
        assert row is not None
        assert row["time"] == NOON


@pytest.mark.parametrize("key", [pa.scalar(2**62, pa.timestamp("us")), pa.scalar(2**30, pa.date32())])
def test_scalars_that_python_has_no_value_for_are_no_keys(server: bireme.Server, key: pa.Scalar) -> None:
    with pytest.raises(bireme.BadRequestError, match="is no key"):
        server.table("all").get(key, columns=["id"], key_column="time")
