"""Searches, rows by key and by address, and what nodes report, against the rows as pyarrow reads them."""

import array
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import bireme
from conftest import ELEPHANT


def nearest(rows: pa.Table, vector: np.ndarray, count: int) -> list[str]:
    """Returns the keys of the nearest rows by brute force."""
    vectors = np.stack(rows["vector"].to_numpy(zero_copy_only=False))
    similarity = vectors @ vector / np.linalg.norm(vectors, axis=1)
    return [rows["synset"][int(at)].as_py() for at in np.argsort(-similarity, kind="stable")[:count]]


def vector_of(rows: pa.Table, at: int) -> np.ndarray:
    return np.array(rows["vector"][at].as_py(), dtype=np.float32)


def test_a_search_by_vector_finds_the_nearest_rows(words: bireme.Table, rows: pa.Table) -> None:
    for at in range(0, rows.num_rows, 700):
        vector = vector_of(rows, at)
        found = words.search(vector).select("synset").limit(10).nprobes(1000).to_arrow()
        assert found.column_names == ["synset", "_rowaddr", "_distance"]
        expected = nearest(rows, vector, 10)
        assert len(set(found["synset"].to_pylist()) & set(expected)) >= 9
        assert found["synset"][0].as_py() == expected[0]
        distances = found["_distance"].to_pylist()
        assert distances == sorted(distances)


def test_every_kind_of_array_is_a_vector(words: bireme.Table, rows: pa.Table) -> None:
    vector = vector_of(rows, ELEPHANT)
    expected = words.search(vector).limit(3).to_arrow()
    for same in [
        vector.tolist(),
        tuple(vector.tolist()),
        vector.astype(np.float64),
        vector.astype(np.float16),
        np.repeat(vector, 2)[::2],
        array.array("f", vector),
        memoryview(vector),
        pa.array(vector),
        pa.array(np.frombuffer(bytes(2) + vector.tobytes(), np.float32, offset=2)),
        rows["vector"][ELEPHANT].values,
        pl.Series(vector),
        pd.Series(vector),
    ]:
        assert words.search(same).limit(3).to_arrow() == expected, type(same)


def test_several_vectors_are_a_search_each(words: bireme.Table, rows: pa.Table) -> None:
    ats = [ELEPHANT, 0, ELEPHANT]
    vectors = np.stack([vector_of(rows, at) for at in ats])
    each = [words.search(vector).select("synset").limit(3).to_arrow() for vector in vectors]
    expected = pa.concat_tables(each).to_pylist()
    for same in [
        vectors,
        vectors.astype(np.float64),
        vectors.tolist(),
        list(vectors),
        [array.array("f", vector) for vector in vectors],
        rows["vector"].take(ats),
        rows["vector"].take(ats).combine_chunks(),
        pd.Series(list(vectors), index=[7, 8, 9]),
        (vector for vector in vectors),
        map(list, vectors),
    ]:
        found = words.search(same).select("synset").limit(3).to_arrow()
        assert found["query_index"].to_pylist() == [0, 0, 0, 1, 1, 1, 2, 2, 2], type(same)
        assert found.drop_columns("query_index").to_pylist() == expected, type(same)
    with pytest.raises(bireme.BadRequestError, match="`vectors` has 101 vectors"):
        words.search(np.zeros((101, 384), np.float32)).to_arrow()
    with pytest.raises(bireme.BadRequestError, match="fused_with"):
        words.search(vectors).text("elephant").to_arrow()


def test_columns_are_computed(words: bireme.Table) -> None:
    search = words.search().like("n02503517").limit(5)
    plain = search.select("synset", "domain").to_arrow()
    found = search.select("synset", {"near": "1 - _distance", "twice": "domain * 2"}).to_arrow()
    assert found.column_names == ["synset", "near", "twice", "_rowaddr", "_distance"]
    assert found["synset"] == plain["synset"]
    assert found["twice"].to_pylist() == [2 * it for it in plain["domain"].to_pylist()]
    assert found["near"].to_pylist() == pytest.approx([1 - it for it in plain["_distance"].to_pylist()], abs=1e-6)
    only = search.select({"name": "synset"}).to_arrow()
    assert only.column_names == ["name", "_rowaddr", "_distance"]
    assert only["name"].to_pylist() == plain["synset"].to_pylist()
    with pytest.raises(bireme.BadRequestError, match="synsets"):
        search.select({"name": "upper(synsets)"}).to_arrow()


def test_a_search_by_words_filter_key_and_both(words: bireme.Table, rows: pa.Table) -> None:
    found = words.search("elephant").where("pos = 'noun'").where("domain = 5").limit(50).to_list()
    assert found
    assert all("elephant" in row["gloss"] and row["pos"] == "noun" and row["domain"] == 5 for row in found)
    nouns = pc.sum(pc.equal(rows["pos"], "verb")).as_py()
    assert len(words.search().where("pos = 'verb'").limit(10_000).to_list()) == nouns
    like = words.search().like("n02503517").limit(5)
    assert like.to_list()[0]["synset"] == "n02503517"
    hybrid = like.text("elephant", weight=2).to_arrow()
    assert "_relevance_score" in hybrid.column_names
    assert words.search("elephant").like("n02503517").text("elephant", weight=2).limit(5).to_arrow() == hybrid
    assert like.refine_factor(0).to_list()[0]["synset"] == "n02503517"
    assert like.offset(1).limit(2).to_list() == like.limit(3).to_list()[1:]
    # Nobody has measured the recall of this table.
    with pytest.raises(bireme.Error, match="bireme tune"):
        like.recall(0.95).to_list()


def test_a_search_is_a_template(words: bireme.Table, rows: pa.Table) -> None:
    base = words.search("wind").select("words")
    two, three = base.limit(2), base.limit(3).where("pos = 'verb'")
    assert (len(two.to_list()), len(three.to_list()), len(base.to_list())) == (2, 3, 10)
    vectors = words.search(iter([vector_of(rows, ELEPHANT), vector_of(rows, 0)]))
    assert vectors.limit(2).to_arrow()["query_index"].to_pylist() == [0, 0, 1, 1]
    assert vectors.limit(1).to_arrow()["query_index"].to_pylist() == [0, 1]


def test_searches_return_frames(words: bireme.Table) -> None:
    search = words.search("wind").select("synset", "domain").limit(4)
    table = search.to_arrow()
    assert search.to_pandas()["synset"].tolist() == table["synset"].to_pylist()
    assert search.to_polars()["domain"].to_list() == table["domain"].to_pylist()


def test_a_search_is_explained(words: bireme.Table) -> None:
    explained = words.search("wind").limit(4).explain()
    assert (explained.rows, explained.exhaustive) == (4, False)
    assert {"search", "fetch"} <= {stage.name for stage in explained.stages}
    assert str(explained).startswith(f"4 rows of version {explained.version}\n")


def test_rows_by_key(words: bireme.Table, rows: pa.Table) -> None:
    row = words.get("n02503517")
    assert row is not None
    expected = rows.filter(pc.equal(rows["synset"], "n02503517")).drop_columns("vector").to_pylist()[0]
    assert {name: value for name, value in row.items() if name != "_rowaddr"} == expected
    assert words.get("n00000000") is None
    keys = rows["synset"].to_pylist()[100:200]
    assert words.get(["n00000000", *keys], columns="synset")["synset"].to_pylist() == keys
    # The elements of pyarrow's columns, arrays and lists are scalars.
    for column in [rows["synset"][100:200], rows["synset"].combine_chunks()[100:200], pa.scalar(keys)]:
        assert words.get(column, columns="synset")["synset"].to_pylist() == keys, type(column)
        assert words.exists(column).to_pylist() == [True] * 100
    assert words.search().like(rows["synset"][ELEPHANT]).limit(1).to_list()[0]["synset"] == "n02503517"
    assert words.get(5, columns="domain", key_column="domain") is not None


def test_all_rows_by_key(words: bireme.Table, rows: pa.Table) -> None:
    keys = rows["domain"].drop_null().unique().to_pylist()[:2]
    of = [[row["synset"] for row in rows.to_pylist() if row["domain"] == key] for key in keys]
    one = words.get(keys[0], columns="synset", key_column="domain", all_rows=True)
    assert one["synset"].to_pylist() == of[0]
    both = words.get([keys[1], -1, keys[0]], columns=["synset"], key_column="domain", all_rows=True)
    assert both["synset"].to_pylist() == [*of[1], *of[0]]
    assert words.get(-1, key_column="domain", all_rows=True).num_rows == 0


def test_whether_keys_exist(words: bireme.Table, rows: pa.Table) -> None:
    assert words.exists("n02503517") is True
    assert words.exists("n00000000") is False
    present = rows["synset"].combine_chunks()
    absent = pa.array([f"x{at}" for at in range(len(present))])
    mixed = pa.array([key for pair in zip(present.to_pylist(), absent.to_pylist(), strict=True) for key in pair])
    for exact in [True, False]:
        assert words.exists(mixed, exact=exact).to_pylist() == [True, False] * len(present)
    assert words.exists([]).to_pylist() == []
    chunks = pd.concat([pd.Series(["n02503517"]), pd.Series(["n00000000"])])
    for keys in [chunks.values, pd.Index(chunks)]:
        assert words.exists(keys).to_pylist() == [True, False], type(keys)
    # More than a message holds.
    assert words.exists(["x" * 3000] * 1024 + ["n02503517"]).to_pylist() == [False] * 1024 + [True]


def test_rows_by_address(words: bireme.Table, rows: pa.Table) -> None:
    order = np.random.default_rng(7).permutation(rows.num_rows)
    found = words.get(rows["synset"].to_pylist()[:1])["_rowaddr"][0].as_py()
    assert found == 0
    taken = words.take(order, columns=rows.column_names)
    assert taken.drop_columns("_rowaddr").to_pylist() == rows.take(order).to_pylist()
    assert taken["_rowaddr"].to_pylist() == order.tolist()
    chunks = pd.concat([pd.Series([at], dtype="uint64[pyarrow]") for at in [3, 1]])
    for addresses in [
        [3, 1],
        pa.array([3, 1]),
        pa.chunked_array([[3], [1]]),
        np.array([3, 1], np.uint64),
        chunks.values,
        pd.Index(chunks),
    ]:
        assert words.take(addresses, columns=["synset"])["_rowaddr"].to_pylist() == [3, 1], type(addresses)
    assert words.take([1, 1 << 40], skip_missing=True)["_rowaddr"].to_pylist() == [1]
    assert words.take([1 << 40], columns=["synset"], skip_missing=True).column_names == ["synset", "_rowaddr"]


def test_many_keys_are_looked_up_in_their_order(words: bireme.Table, rows: pa.Table) -> None:
    order = np.random.default_rng(8).integers(rows.num_rows, size=20_000)
    keys = rows["synset"].take(order).to_pylist()
    keys[17] = "n00000000"
    keys[18] = None
    found = words.lookup(keys, columns=["synset", "words", "vector"])
    expected = rows.select(["synset", "words", "vector"]).take(order).to_pylist()
    expected[17] = expected[18] = {"synset": None, "words": None, "vector": None}
    assert found.to_pylist() == expected
    assert set(words.lookup(keys[:3]).column_names) == set(rows.column_names) - {"vector"}


@pytest.mark.parametrize("make", [pa.table, pl.DataFrame, lambda it: pa.table(it).to_reader(), pd.DataFrame])
def test_columns_are_appended_to_any_table(words: bireme.Table, make) -> None:
    clicks = make({"click": [1, 2, 3], "key": ["n02503517", "n00000000", "n02121620"]})
    joined = words.lookup(clicks, on="key", columns=["pos", "domain"])
    assert joined.column_names == ["click", "key", "pos", "domain"]
    assert joined["pos"].to_pylist() == ["noun", None, "noun"]
    assert joined["click"].to_pylist() == [1, 2, 3]


def test_columns_are_appended_to_rows_of_files_that_python_opens(tmp_path: Path) -> None:
    for at in range(100):
        pq.write_table(pa.table({"key": ["n02503517"]}), tmp_path / f"{at:02}.parquet")
    script = """
import pathlib, sys
import bireme, pyarrow, pyarrow.dataset
from pyarrow.fs import FileSystemHandler, LocalFileSystem, PyFileSystem
class Files(FileSystemHandler):
    def get_type_name(self):
        return "python"
    def normalize_path(self, path):
        return path
    def get_file_info(self, paths):
        return LocalFileSystem().get_file_info(paths)
    def open_input_file(self, path):
        return pyarrow.PythonFile(open(path, "rb"))
Files.__abstractmethods__ = frozenset()  # the others are not called
paths = sorted(str(path) for path in pathlib.Path(sys.argv[1]).iterdir())
clicks = pyarrow.dataset.dataset(paths, filesystem=PyFileSystem(Files())).scanner().to_reader()
joined = bireme.connect().table("words").lookup(clicks, on="key", columns=["pos"])
print(joined["pos"].to_pylist() == ["noun"] * 100, flush=True)
"""
    # A thread that waits for pyarrow can't be interrupted, but its process can be killed. The exit code is not checked:
    # a process that ends while threads of pyarrow close files may abort.
    arguments = [sys.executable, "-c", script, str(tmp_path)]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=60)
    assert done.stdout == "True\n", done.stderr


def test_a_row_is_repeated_for_each_row_that_has_its_key(words: bireme.Table, rows: pa.Table) -> None:
    clicks = pa.table({"domain": rows["domain"].unique().drop_null().to_pylist()[:3], "number": [1, 2, 3]})
    joined = words.lookup(clicks, on="domain", columns=["synset"], key_column="domain", all_rows=True)
    expected = [
        {"domain": domain, "number": number, "synset": synset}
        for domain, number in zip(clicks["domain"].to_pylist(), clicks["number"].to_pylist(), strict=True)
        for synset, of in zip(rows["synset"].to_pylist(), rows["domain"].to_pylist(), strict=True)
        if of == domain
    ]
    assert joined.to_pylist() == expected


def test_all_rows_of_keys_come_with_the_keys(words: bireme.Table, rows: pa.Table) -> None:
    domain = rows["domain"].drop_null()[0].as_py()
    synsets = [row["synset"] for row in rows.to_pylist() if row["domain"] == domain]
    keys = [domain, -1, None, domain]
    expected = [(key, synset) for key in keys for synset in (synsets if key == domain else [None])]
    for columns, names in [
        (["synset"], ["domain", "synset"]),
        (["synset", "domain"], ["synset", "domain"]),
        (None, [name for name in rows.column_names if name != "vector"]),
    ]:
        found = words.lookup(keys, columns=columns, key_column="domain", all_rows=True)
        assert found.column_names == names
        assert list(zip(found["domain"].to_pylist(), found["synset"].to_pylist(), strict=True)) == expected
    absent = words.lookup([-1], columns=["domain"], key_column="domain", all_rows=True)
    assert absent.to_pylist() == [{"domain": -1}]


def test_a_lookup_of_nothing_has_the_columns(words: bireme.Table) -> None:
    found = words.lookup([], columns=["synset", "words"])
    assert (found.num_rows, found.column_names) == (0, ["synset", "words"])
    assert words.lookup(pa.array(["n02503517"]).dictionary_encode())["pos"].to_pylist() == ["noun"]
    assert words.lookup(pl.Series(["n02503517"]))["pos"].to_pylist() == ["noun"]
    assert words.lookup(pd.Series(["n02503517"]))["pos"].to_pylist() == ["noun"]


def test_rows_are_not_copied(words: bireme.Table) -> None:
    before = pa.total_allocated_bytes()
    taken = words.take(np.arange(5000), columns=["vector"])
    assert taken.nbytes > 5000 * 384 * 4
    assert pa.total_allocated_bytes() - before < 100_000, "pyarrow allocated memory for the rows"


def test_what_nodes_report(server: bireme.Server, words: bireme.Table, rows: pa.Table) -> None:
    described = words.describe()
    assert (described.rows, described.key_column) == (rows.num_rows, "synset")
    assert described.schema.names == rows.column_names
    assert described.schema.field("vector").type == rows.schema.field("vector").type
    assert "vector" not in described.default_columns
    assert {index.metric for index in described.indexes if index.metric} == {"cosine"}
    [summary] = server.tables()
    assert (summary.name, summary.rows, summary.version, summary.error) == ("words", 6927, described.version, "")
    old = server.table("words", version=1)
    assert (old.describe().version, repr(old)) == (1, "Table('words', version=1)")
    [node] = server.status().io_nodes
    assert (node.reachable, node.state) == (True, "ready")


def test_a_warm_shows_its_progress(words: bireme.Table, capsys: pytest.CaptureFixture[str]) -> None:
    steps: list[bireme.WarmProgress] = []
    warmed = words.warm(progress=steps.append)
    assert warmed == steps[-1]
    assert warmed.extents_done == warmed.extents_total > 0
    assert words.warm(columns="vector", rows=[range(0, 10)]).extents_found == 1
    assert "warm words: 100%" in capsys.readouterr().err


def test_background_requests_are_answered(server: bireme.Server) -> None:
    assert len(server.table("words", background=True).search("wind").to_list()) == 10


def test_threads_share_a_connection(words: bireme.Table, rows: pa.Table) -> None:
    keys = rows["synset"].to_pylist()
    wrong: list[str] = []

    def get(first: int) -> None:
        for key in keys[first : first + 200]:
            row = words.get(key, columns=["synset"])
            if row is None or row["synset"] != key:
                wrong.append(key)

    threads = [threading.Thread(target=get, args=(first,)) for first in range(0, 1600, 200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_fork_connects_again(server: bireme.Server) -> None:
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        said = ""
        try:
            server.table("words").get("n02503517")
        except bireme.BadRequestError as error:
            said = error.message
        with bireme.connect() as db:
            found = db.table("words").get("n02503517", columns=["pos"])
        os.write(writing, pickle.dumps((said, found and found["pos"])))
        os._exit(0)
    os.waitpid(child, 0)
    said, pos = pickle.loads(os.read(reading, 1 << 16))
    assert "can't be used in its fork; connect again" in said
    assert pos == "noun"
    assert server.table("words").exists("n02503517")
