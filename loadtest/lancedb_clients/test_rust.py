"""LanceDB's client for Rust reads through Bireme. LANCEDB_RUST is the program that does so (`make lancedb-rust`)."""

import base64
import json
import os
import subprocess

import numpy as np
import pyarrow as pa
import pytest
from lancedb.query import (
    BooleanQuery,
    BoostQuery,
    ColumnOrdering,
    FullTextOperator,
    MatchQuery,
    MultiMatchQuery,
    Occur,
    PhraseQuery,
)
from lancedb.rerankers import RRFReranker

from conftest import DIMENSION, ROWS, plain_rows, rows

pytestmark = pytest.mark.skipif("LANCEDB_RUST" not in os.environ, reason="make lancedb-rust runs it")

FILTER = "id < 900 AND price > 3"
OFFSETS = [2500, 7, 7, 0, 2979]
# The places, among the exact answers, of the first and last row in the range of distances.
FIRST, LAST = 10, 20


class Found:
    """What the program found."""

    def __init__(self, values: dict[str, object]) -> None:
        self.values = values

    def __getitem__(self, name: str) -> object:
        return self.values[name]

    def rows(self, name: str) -> pa.Table:
        """Returns the rows of a query."""
        return pa.ipc.open_stream(base64.b64decode(self.values[name])).read_all()

    def ids(self, name: str) -> list[int]:
        """Returns the ids of a query's rows."""
        return self.rows(name)["id"].to_pylist()


@pytest.fixture(scope="module")
def question() -> dict[str, list[float]]:
    """The vectors to ask for."""
    random = np.random.default_rng(99)
    vector, other = (random.normal(size=DIMENSION).astype(np.float32).tolist() for _ in range(2))
    return {"vector": vector, "other": other, "unindexed": rows(ROWS, 40)["vector"][5].as_py()}


@pytest.fixture(scope="module")
def exact(local, question) -> pa.Table:
    """The nearest rows, by distance."""
    search = local.open_table("items").search(question["vector"]).bypass_vector_index()
    return search.with_row_id(True).limit(50).to_arrow()


@pytest.fixture(scope="module")
def found(served, local, question, exact) -> Found:
    """What the program finds. Just before, the tables get a tag, a branch and more rows."""
    local.open_table("items").tags.create("rust", 1)
    plain = local.open_table("plain")
    plain.branches.create("draft").add(plain_rows(5000, 3))
    plain.add(plain_rows(6000, 10))
    distances = exact["_distance"].to_pylist()
    bounds = {"lower": distances[FIRST] - 1e-3, "upper": distances[LAST] + 1e-3}
    taken = {"row_ids": exact["_rowid"].to_pylist()[:3], "offsets": OFFSETS}
    asked = question | bounds | taken | {"folder": str(served.folder)}
    command = [os.environ["LANCEDB_RUST"], served.url, json.dumps(asked)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    return Found(json.loads(ran.stdout))


@pytest.fixture(scope="module")
def oracle(local):
    """The local table."""
    return local.open_table("items")


def same(found: pa.Table, expected: pa.Table) -> None:
    """Asserts that both have the same columns and rows, in the same order."""
    assert found.column_names == expected.column_names
    assert found.to_pylist() == expected.to_pylist()


def test_lists_and_descriptions(found, oracle, local):
    assert found["tables"] == found["listed_tables"] == ["items", "pages", "plain"]
    assert (found["first_table"], found["later_tables"]) == (["items"], ["plain"])
    assert found.rows("schema").schema == oracle.schema
    assert (found["rows"], found["rows_counted"]) == (oracle.count_rows(), oracle.count_rows("id < 100"))
    assert found["statistics"] == [oracle.count_rows(), ROWS // 50]
    assert found["plain_rows"] == local.open_table("plain").count_rows() >= 210
    expected = {(it.name, it.index_type.upper().replace("_", ""), *it.columns) for it in oracle.list_indices()}
    described = {(name, kind.upper().replace("_", ""), *columns) for name, kind, columns in found["indexes"]}
    assert described == expected and len(expected) == 3
    assert found["index"] == {"type": "IVF_PQ", "distance_type": "l2", "unindexed": 40}
    assert found["index_that_is_not_there"] is False
    assert found["tokens"] == ["oak"]
    assert "row" in found["plan"] and "row" in found["analyzed"]


@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
def test_exact_vector_search(found, oracle, question, metric):
    search = oracle.search(question["vector"]).bypass_vector_index().distance_type(metric)
    expected = search.select(["id", "text"]).limit(17).to_arrow()
    answer = found.rows(f"exact_{metric}")
    assert answer.column_names == ["id", "text", "_distance"]
    assert answer["id"].to_pylist() == expected["id"].to_pylist()
    assert np.allclose(answer["_distance"], expected["_distance"], rtol=1e-4)


def test_vector_search_by_the_index_finds_the_nearest(found, exact):
    answer, expected = found.rows("by_index"), exact.drop_columns(["_rowid"])[:10]
    assert answer.column_names == expected.column_names
    same(answer.drop_columns(["_distance"]), expected.drop_columns(["_distance"]))
    assert np.allclose(answer["_distance"], expected["_distance"], rtol=1e-4)
    nearest = expected["id"].to_pylist()
    assert found.ids("page") == nearest[6:]
    assert found.ids("refined") == found.ids("by_minimum") == nearest


def test_vector_search_with_a_filter(found, oracle, question):
    for name, prefilter in [("filtered", True), ("filtered_after", False)]:
        search = oracle.search(question["vector"]).bypass_vector_index().where(FILTER, prefilter=prefilter)
        expected = search.limit(40).to_arrow()["id"].to_pylist()
        assert found.ids(name) == expected, name
    assert len(found.ids("filtered")) == 40 > len(found.ids("filtered_after")) > 0


def test_a_range_of_distances(found, exact):
    for name in ["range", "range_by_index"]:
        answer = found.rows(name)
        assert answer.column_names == ["id", "_distance", "_rowid"]
        assert answer["_rowid"].to_pylist() == exact["_rowid"].to_pylist()[FIRST : LAST + 1], name


def test_several_vectors(found, exact):
    several = found.rows("several")
    assert several["query_index"].to_pylist() == [0, 0, 0, 1, 1, 1]
    assert several["id"].to_pylist() == exact["id"].to_pylist()[:3] + found.ids("other")


def test_only_indexed_rows(found):
    assert found.ids("unindexed") == [ROWS + 5] != found.ids("only_indexed")
    assert len(found.ids("only_indexed")) == 1


def test_found_rows_in_another_order(found, oracle, question):
    order = [
        ColumnOrdering(column_name="price", ascending=False, nulls_first=True),
        ColumnOrdering(column_name="id", ascending=True, nulls_first=False),
    ]
    search = oracle.search(question["vector"]).bypass_vector_index().limit(40).offset(7)
    assert found.ids("ordered") == search.order_by(order).to_arrow()["id"].to_pylist()


def test_late_interaction(found, local, question):
    search = local.open_table("pages").search([question["vector"], question["other"]]).distance_type("cosine")
    expected = search.bypass_vector_index().limit(12).to_arrow()
    answer = found.rows("late_interaction")
    assert answer.column_names == expected.column_names
    assert answer["id"].to_pylist() == expected["id"].to_pylist()
    assert np.allclose(answer["_distance"], expected["_distance"], rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "query"),
    [
        ("words", MatchQuery("oak river", "text")),
        ("words_of_any_column", "puppy"),
        ("all_words", MatchQuery("oak river", "text", operator=FullTextOperator.AND)),
        ("fuzzy", MatchQuery("garde", "text", fuzziness=1)),
        ("phrase", PhraseQuery("oak river", "text")),
        ("sloppy_phrase", PhraseQuery("oak river", "text", slop=1)),
        ("demoted", BoostQuery(MatchQuery("oak", "text"), MatchQuery("river", "text"), negative_boost=0.3)),
        (
            "oak_without_river",
            BooleanQuery([(Occur.MUST, MatchQuery("oak", "text")), (Occur.MUST_NOT, MatchQuery("river", "text"))]),
        ),
        (
            "either",
            BooleanQuery(
                [(Occur.SHOULD, PhraseQuery("oak river", "text")), (Occur.SHOULD, MatchQuery("number13", "text"))]
            ),
        ),
        ("several_columns", MultiMatchQuery("garden number5", ["text"])),
    ],
)
def test_words(found, oracle, name, query):
    expected = oracle.search(query, query_type="fts").limit(30).select(["id", "text"]).to_arrow()
    answer = found.rows(name)
    assert answer.column_names == ["id", "text", "_score"]
    assert len(expected) > 0 and np.allclose(answer["_score"], expected["_score"], rtol=1e-5)
    # Rows that tie with the last one may be others.
    worst = min(expected["_score"].to_pylist())
    scores = zip(answer["id"].to_pylist(), answer["_score"].to_pylist(), strict=True)
    assert {id for id, score in scores if score > worst * 1.0001} <= set(expected["id"].to_pylist())


def test_words_in_columns_as_one(found):
    # Python's client has no such query, so that for Rust reads locally too.
    answer, expected = found.rows("combined_columns"), found.rows("combined_columns_locally")
    assert len(expected) == 30 and np.allclose(answer["_score"], expected["_score"], rtol=1e-5)


def test_words_with_a_filter(found, oracle):
    search = oracle.search("puppy", query_type="fts").where("id < 300").limit(200)
    expected = search.to_arrow()["id"].to_pylist()
    assert 0 < len(expected) < 200 and sorted(found.ids("filtered_words")) == sorted(expected)


def test_hybrid(found, oracle, question):
    search = oracle.search(query_type="hybrid").vector(question["vector"]).text("puppy garden")
    expected = search.bypass_vector_index().limit(8).rerank(RRFReranker()).to_arrow()
    answer = found.rows("hybrid")
    assert len(answer) == 8 and "_rowid" not in answer.column_names
    assert np.allclose(answer["_relevance_score"], expected["_relevance_score"], atol=1e-3)


def test_rows_without_a_search(found, oracle):
    same(found.rows("all"), oracle.search().limit(None).to_arrow())
    none = found.rows("no_rows")
    assert (none.schema, len(none)) == (oracle.schema, 0)
    where = "price IS NULL AND place.x = 2 AND topic <> 't5' AND id < 600"
    expected = oracle.search().where(where).limit(None).to_arrow()
    assert len(expected) > 0
    same(found.rows("by_filter").sort_by("id"), expected.sort_by("id"))
    same(found.rows("offset"), oracle.search().select(["id"]).limit(5).offset(20).to_arrow())
    computed = {"words": "upper(text)", "key": "id", "cheap": "price < 20", "again": "id * 2 + 1"}
    same(found.rows("computed"), oracle.search().select(computed).limit(5).to_arrow())
    same(found.rows("nested"), oracle.search().select(["place.x", "id"]).limit(30).to_arrow())
    order = [
        ColumnOrdering(column_name="place.x", ascending=True, nulls_first=False),
        ColumnOrdering(column_name="id", ascending=False, nulls_first=True),
    ]
    same(found.rows("in_order"), oracle.search().where("id < 500").limit(40).order_by(order).to_arrow())


def test_takes(found, oracle, exact):
    # This client restores repeats, but not the order.
    same(found.rows("at_offsets").sort_by("id"), oracle.take_offsets(OFFSETS).to_arrow().sort_by("id"))
    taken = found.rows("of_row_ids").sort_by("id")
    same(taken, exact.select(["id", "_rowid"])[:3].sort_by("id"))


def test_versions_tags_and_branches(found, oracle, local):
    versions = [it["version"] for it in oracle.list_versions()]
    latest = [oracle.version, oracle.count_rows()]
    assert (found["version"], found["versions"]) == (latest[0], versions)
    assert found["tag"] == [1, 1]
    assert (found["of_version"], found["of_tag"], found["of_latest"]) == ([5, ROWS - ROWS // 50], [1, ROWS], latest)
    assert found["branches"] == ["draft"]
    draft = local.open_table("plain").branches.checkout("draft")
    assert found["of_branch"] == ["draft", draft.count_rows()] and draft.count_rows() >= 203


@pytest.mark.parametrize(
    ("name", "kind", "status", "text"),
    [
        ("no_table", "TableNotFound", None, "none"),
        ("no_version", "TableNotFound", None, "99"),
        ("no_index", "IndexNotFound", None, "none"),
        ("no_column_in_filter", "Http", 400, "idd"),
        ("no_filter", "Http", 400, "id"),
        ("no_column", "Http", 400, "nothing"),
        ("wrong_dimension", "Http", 400, "5"),
        ("too_many_rows", "Http", 400, "10000"),
        ("delete", "Http", 501, "serves reads"),
        ("drop_table", "Http", 501, "serves reads"),
        ("uri", "NotSupported", None, "URI"),
    ],
)
def test_errors_have_their_kinds(found, name, kind, status, text):
    error = found[name]
    assert (error["kind"], error["status"]) == (kind, status) and text in error["text"]
