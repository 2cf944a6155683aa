"""Types, nulls and nested columns: rows are those that pyarrow reads from the file that was ingested."""

import datetime
import decimal
from collections.abc import Iterator
from pathlib import Path

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
    row = table.get(key, columns=[column], key_column=column)
    assert row is not None
    assert row[column] == key
    assert table.exists(key, key_column=column)
    assert table.lookup([key], columns=[column], key_column=column)[column].to_pylist() == [key]
