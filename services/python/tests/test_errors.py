"""Errors: their classes, and the server's own sentences."""

import os
import pickle
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import bireme
from bireme._errors import _CLASSES
from conftest import run


def test_rows_that_cannot_be_read_leave_the_others(tmp_path: Path) -> None:
    for name, rows, mode in [("one.csv", "k,v\na,1\nb,2\n", "create"), ("two.csv", "k,v\nc,3\nd,4\n", "append")]:
        (tmp_path / name).write_text(rows)
        run("ingest", str(tmp_path / name), "--table", str(tmp_path / "t.lance"), "--mode", mode)
    run("index", "--table", str(tmp_path / "t.lance"), "--key", "k")
    with bireme.serve(str(tmp_path / "t.lance")) as server:
        table = server.table("t")
        assert table.get("a", columns=["v"])["v"] == 1
        last = max((tmp_path / "t.lance/data").iterdir(), key=lambda file: file.stat().st_mtime_ns)
        os.truncate(last, 64)
        with pytest.raises(bireme.Error):
            table.get(["c", "b"])
        found = table.get(["c", "b", "x", "d"], columns=["k", "v"], partial=True)
        assert found.rows.select(["k", "v"]).to_pylist() == [{"k": "b", "v": 2}]
        assert found.failed == [0, 3]
        assert isinstance(found.error, bireme.Error)
        assert found.error.reason == "TABLE_DAMAGED"
        with pytest.raises(bireme.Error, match=re.escape(found.error.message)):
            table.get(["c", "d"], partial=True)
        with pytest.raises(bireme.BadRequestError, match="partial"):
            table.get(["a"], all_rows=True, partial=True)


def test_every_reason_has_a_class() -> None:
    source = (Path(__file__).parents[2] / "wire/src/fault.rs").read_text()
    reasons = re.findall(r'^    \w+ = "([A-Z_]+)" =>', source, re.MULTILINE)
    assert len(reasons) > 20
    assert set(_CLASSES) == set(reasons)


@pytest.mark.parametrize(
    ("ask", "kind", "reason", "says"),
    [
        (lambda t: t.search("x").select("pricee").to_arrow(), ValueError, "COLUMN_NOT_FOUND", '"pricee"'),
        (lambda t: t.search("x").where("pos = ").to_arrow(), bireme.BadRequestError, "BAD_FILTER", "pos ="),
        (lambda t: t.search([1.0, 2.0]).to_arrow(), bireme.BadRequestError, "BAD_VECTOR", "384"),
        (lambda t: t.search(np.full(384, np.nan)).to_arrow(), ValueError, "BAD_VECTOR", "finite"),
        (lambda t: t.search().to_arrow(), ValueError, "BAD_ARGUMENT", "filter"),
        (lambda t: t.search().like("n0").to_arrow(), LookupError, "KEY_NOT_FOUND", "n0"),
        (lambda t: t.take([1 << 40]), bireme.NotFoundError, "ROW_NOT_FOUND", "256:0"),
        (lambda t: t.get([f"n{at}" for at in range(10_001)]), ValueError, "BAD_ARGUMENT", "10,?000"),
        (lambda t: t.lookup(["x"], columns=["pricee"]), ValueError, "COLUMN_NOT_FOUND", '"pricee"'),
        (lambda t: t.lookup(pa.table({"a": ["x"]}), on="b"), ValueError, "COLUMN_NOT_FOUND", "`a`"),
        (lambda t: t.lookup([1.5]), ValueError, "BAD_ARGUMENT", "Float64"),
        (lambda t: t.exists(["a", None]), ValueError, "BAD_ARGUMENT", "1 of the keys are null"),
        (lambda t: t.warm(rows=[(5, 10**9)], progress=False), ValueError, "BAD_ARGUMENT", "rows"),
        (lambda t: t.warm(indexes=True, progress=False), ValueError, "BAD_ARGUMENT", "folder"),
        (lambda t: t.warm(indexes="x", rows=[range(5)], progress=False), ValueError, "BAD_ARGUMENT", "rows"),
    ],
)
def test_the_servers_sentence_is_unchanged(words: bireme.Table, ask, kind, reason: str, says: str) -> None:
    with pytest.raises(kind, match=says) as raised:
        ask(words)
    error = raised.value
    assert isinstance(error, bireme.Error)
    assert error.reason == reason
    assert str(error) == error.message
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.message, again.reason, again.metadata) == (
        type(error),
        error.message,
        error.reason,
        error.metadata,
    )


def ends_early() -> pa.RecordBatchReader:
    """Returns a stream that fails after its first rows."""
    rows = pa.record_batch({"synset": ["n02503517"]})

    def batches() -> Iterator[pa.RecordBatch]:
        yield rows
        raise OSError("the file is gone")

    return pa.RecordBatchReader.from_batches(rows.schema, batches())


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda t: t.search(np.zeros((2, 2, 384), np.float32)).to_arrow(), "2 dimensions; it must have one"),
        (lambda t: t.search({"a": 1}).to_arrow(), "sequence or an array of numbers"),
        (lambda t: t.search(["a", "b"]).to_arrow(), "sequence or an array of numbers"),
        (lambda t: t.search(pa.array(["a"])).to_arrow(), "no query vector"),
        (lambda t: t.search(pa.array([1.0, None])).to_arrow(), "1 nulls"),
        (lambda t: t.search("x").limit(0), r"limit\(0\)"),
        (lambda t: t.search([1.0]).like("x"), "already"),
        (lambda t: t.search("x").select([]), "no columns are named"),
        (lambda t: t.get(True), "True is no key"),
        (lambda t: t.get(1.5), "1.5 is no key"),
        (lambda t: t.get(None, partial=True), "None is no key"),
        (lambda t: t.get([1.5]), "1.5 is no key"),
        (lambda t: t.get(pa.scalar(1.5)), "1.5 is no key"),
        (lambda t: t.get(pa.array(["n02503517", None])), "None is no key"),
        (lambda t: t.search().like(pa.scalar(None, pa.string())), "None is no key"),
        (lambda t: t.lookup("n02503517"), "'n02503517' is a single key"),
        (lambda t: t.lookup(pa.scalar("n02503517")), "a scalar of type string is a single key"),
        (lambda t: t.lookup(pa.scalar(2**30, pa.date32())), "a scalar of type date32.* is a single key"),
        (lambda t: t.exists([1 << 70]), "the keys make no array"),
        (lambda t: t.lookup(["n02503517"], on="synset"), "a list has no columns"),
        (lambda t: t.lookup(pa.chunked_array([["x"]]), on="synset"), "can't be read: .*non-struct type"),
        (lambda t: t.lookup(ends_early(), on="synset"), "can't be read: .*the file is gone"),
        (lambda t: t.take(["a"]), "array of integers"),
        (lambda t: t.take([-1]), "array of integers"),
        (lambda t: t.take(pa.array([-1])), "null or negative"),
        (lambda t: t.take(pa.array([1.5])), "Float64"),
        (lambda t: t.take(offsets=[-1]), "array of integers"),
        (lambda t: t.warm(rows=[range(5, 5)]), r"range\(5, 5\)"),
    ],
)
def test_bad_arguments_are_named(words: bireme.Table, ask, says: str) -> None:
    with pytest.raises(bireme.BadRequestError, match=says):
        ask(words)


def test_endpoints_without_a_node() -> None:
    with pytest.raises(ConnectionError, match=r"no query node answers at http://127\.0\.0\.1:1 ") as raised:
        bireme.connect("bireme://127.0.0.1:1")
    assert raised.value.reason == "NODE_UNAVAILABLE"
    for uri, says in [
        ("bireme://a/b", "it has a path"),
        ("ftp://a:1", "`ftp` is not spoken"),
        ("host", "names no port"),
    ]:
        with pytest.raises(bireme.BadRequestError, match=says):
            bireme.connect(uri)
    with pytest.raises(bireme.BadRequestError, match="write it with https://"):
        bireme.connect("bireme://127.0.0.1", tls_name="x")


def test_tables_that_are_not_served(server: bireme.Server) -> None:
    with pytest.raises(bireme.NotFoundError, match="`word`") as raised:
        server.table("word").describe()
    assert raised.value.reason == "TABLE_NOT_FOUND"
    with pytest.raises(bireme.NotFoundError, match="99") as raised:
        server.table("words", version=99).describe()
    assert raised.value.reason == "VERSION_NOT_FOUND"


def test_time_limits() -> None:
    with pytest.raises(TimeoutError, match="allow more time") as raised:
        bireme.connect(timeout=1e-6).table("words").get("n02503517")
    assert raised.value.reason == "DEADLINE_EXCEEDED"
    for timeout in [0, -1, float("nan")]:
        with pytest.raises(bireme.BadRequestError, match="is no time limit"):
            bireme.connect(timeout=timeout).status()
    for timeout in [None, sys.maxsize]:
        assert bireme.connect(timeout=timeout).table("words").exists("n02503517")
