"""LanceDB's own client reads through Bireme what it reads locally."""

import asyncio

import lancedb
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
from lancedb.remote.errors import HttpError
from lancedb.rerankers import RRFReranker

from conftest import plain_rows, rows


def same(found: pa.Table, expected: pa.Table) -> None:
    """Asserts that both have the same columns and rows, in the same order."""
    assert found.column_names == expected.column_names
    plain = [column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column for column in found]
    wanted = [
        column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column for column in expected
    ]
    assert [column.to_pylist() for column in plain] == [column.to_pylist() for column in wanted]


def test_lists_and_descriptions(remote, local):
    assert remote.table_names() == ["items", "pages", "plain"]
    assert remote.table_names(limit=1) == ["items"]
    assert remote.table_names(page_token="pages") == ["plain"]
    table, oracle = remote.open_table("items"), local.open_table("items")
    assert table.schema == oracle.schema
    assert table.version == oracle.version
    assert table.count_rows() == oracle.count_rows()
    assert table.count_rows("id < 100") == oracle.count_rows("id < 100")
    assert [it["version"] for it in table.list_versions()] == [it["version"] for it in oracle.list_versions()]
    indexes = {it.name: it for it in table.list_indices()}
    assert set(indexes) == {it.name for it in oracle.list_indices()}
    for name, index in indexes.items():
        expected = next(it for it in oracle.list_indices() if it.name == name)
        assert (index.index_version, index.created_at) == (expected.index_version, expected.created_at)
        if index.index_type == "FTS":
            assert index.index_details["custom_stop_words"] == ["of", "the"]
            assert [it.text for it in table.tokenize("the oaks", column="text")] == ["oak"]
    stats = table.index_stats("vector_idx")
    assert (stats.index_type, stats.distance_type, stats.num_unindexed_rows) == ("IVF_PQ", "l2", 40)
    assert table.index_stats("none") is None
    assert table.stats()["num_rows"] == oracle.count_rows()


def test_a_table_that_is_not_there(remote):
    with pytest.raises(ValueError, match="Table 'none' was not found"):
        remote.open_table("none")


def test_exact_vector_search(remote, local, vector):
    table, oracle = remote.open_table("items"), local.open_table("items")
    for metric in ["l2", "cosine", "dot"]:
        search = [
            it.search(vector).bypass_vector_index().distance_type(metric).select(["id", "text"]).limit(17)
            for it in (table, oracle)
        ]
        found, expected = (it.to_arrow() for it in search)
        assert found.column_names == ["id", "text", "_distance"]
        assert found["id"].to_pylist() == expected["id"].to_pylist(), metric
        assert np.allclose(found["_distance"], expected["_distance"], rtol=1e-4), metric


def test_vector_search_by_the_index_finds_the_nearest(remote, local, vector):
    table, oracle = remote.open_table("items"), local.open_table("items")
    exact = oracle.search(vector).bypass_vector_index().limit(10).to_arrow()
    found = table.search(vector).nprobes(8).limit(10).to_arrow()
    assert found.column_names == exact.column_names
    # All partitions are searched and candidates scored exactly, so the nearest rows are found.
    assert found["id"].to_pylist() == exact["id"].to_pylist()
    assert np.allclose(found["_distance"], exact["_distance"], rtol=1e-4)
    rest = table.search(vector).nprobes(8).limit(4).offset(6).to_arrow()
    assert rest["id"].to_pylist() == exact["id"].to_pylist()[6:]


@pytest.mark.parametrize("prefilter", [True, False])
def test_vector_search_with_a_filter(remote, local, vector, prefilter):
    searches = [
        it.search(vector).bypass_vector_index().where("id < 900 AND topic = 't3'", prefilter=prefilter).limit(40)
        for it in (remote.open_table("items"), local.open_table("items"))
    ]
    found, expected = (it.select(["id"]).to_arrow() for it in searches)
    assert found["id"].to_pylist() == expected["id"].to_pylist()


def test_distances_and_row_ids(remote, local, vector):
    table, oracle = remote.open_table("items"), local.open_table("items")
    exact = oracle.search(vector).bypass_vector_index().with_row_id(True).limit(50).to_arrow()
    lower, upper = exact["_distance"][10].as_py() - 1e-3, exact["_distance"][20].as_py() + 1e-3
    for it in (table.search(vector).bypass_vector_index(), table.search(vector).nprobes(8).refine_factor(50)):
        found = it.distance_range(lower, upper).with_row_id(True).limit(50).to_arrow()
        assert found["_rowid"].to_pylist() == exact["_rowid"].to_pylist()[10:21]
    ids = exact["_rowid"].to_pylist()[:3]
    taken = table.take_row_ids(ids).select(["id"]).to_arrow()
    assert sorted(taken["id"].to_pylist()) == sorted(exact["id"].to_pylist()[:3])


def test_several_vectors(remote, vector):
    table = remote.open_table("items")
    other = [-x for x in vector]
    both = table.search([vector, other]).nprobes(8).limit(3).select(["id"]).to_arrow()
    assert both["query_index"].to_pylist() == [0, 0, 0, 1, 1, 1]
    alone = table.search(other).nprobes(8).limit(3).select(["id"]).to_arrow()
    assert both["id"].to_pylist()[3:] == alone["id"].to_pylist()


def test_only_indexed_rows(remote, vector):
    table = remote.open_table("items")
    new = rows(3000, 40)["vector"][5].as_py()
    assert table.search(new).limit(1).to_arrow()["id"].to_pylist() == [3005]
    assert table.search(new).fast_search().limit(1).to_arrow()["id"].to_pylist() != [3005]


@pytest.mark.parametrize("words", ["puppy", "oak river", "number13"])
def test_words(remote, local, words):
    searches = [
        it.search(words, query_type="fts").limit(25).select(["id", "text"])
        for it in (remote.open_table("items"), local.open_table("items"))
    ]
    found, expected = (it.to_arrow() for it in searches)
    assert found.column_names == ["id", "text", "_score"]
    assert np.allclose(found["_score"], expected["_score"], rtol=1e-5)
    worst = min(expected["_score"].to_pylist())
    scores = list(zip(found["id"].to_pylist(), found["_score"].to_pylist(), strict=True))
    better = {id for id, score in scores if score > worst * 1.0001}
    assert better <= set(expected["id"].to_pylist())


@pytest.mark.parametrize(
    "query",
    [
        PhraseQuery("oak river", "text"),
        PhraseQuery("oak river", "text", slop=1),
        MatchQuery("oak river", "text", operator=FullTextOperator.AND),
        MatchQuery("garde", "text", fuzziness=1),
        MatchQuery("willlow", "text", fuzziness=2, prefix_length=3),
        MultiMatchQuery("garden number5", ["text"]),
        BoostQuery(MatchQuery("oak", "text"), MatchQuery("river", "text"), negative_boost=0.3),
        BooleanQuery([(Occur.MUST, MatchQuery("oak", "text")), (Occur.MUST_NOT, MatchQuery("river", "text"))]),
        BooleanQuery([(Occur.SHOULD, PhraseQuery("oak river", "text")), (Occur.SHOULD, MatchQuery("number13", "text"))]),
        '"river oak"',
    ],
    ids=str,
)
def test_other_forms_of_words(remote, local, query):
    searches = [
        it.search(query, query_type="fts").limit(30).select(["id"])
        for it in (remote.open_table("items"), local.open_table("items"))
    ]
    found, expected = (it.to_arrow() for it in searches)
    assert len(expected) > 0
    assert np.allclose(found["_score"], expected["_score"], rtol=1e-5)


def test_hybrid(remote, local, vector):
    found, expected = (
        it.search(query_type="hybrid")
        .vector(vector)
        .text("puppy garden")
        .bypass_vector_index()
        .limit(8)
        .rerank(RRFReranker())
        .to_arrow()
        for it in (remote.open_table("items"), local.open_table("items"))
    )
    assert len(found) == 8 and "_relevance_score" in found.column_names
    assert np.allclose(found["_relevance_score"], expected["_relevance_score"], atol=1e-3)


def test_rows_without_a_search(remote, local):
    table, oracle = remote.open_table("items"), local.open_table("items")
    same(table.search().to_arrow(), oracle.search().limit(None).to_arrow())
    same(table.head(7), oracle.head(7))
    for where in ["id BETWEEN 100 AND 140", "price IS NULL", "topic = 't5' AND id > 2900", "place.x = 2 AND id < 60"]:
        found, expected = (it.search().where(where).limit(5000).to_arrow() for it in (table, oracle))
        assert len(expected) > 0
        same(found.sort_by("id"), expected.sort_by("id"))
    columns = {"key": "id", "words": "text", "twice": "id * 2 + 1", "loud": "upper(text)", "cheap": "price < 20"}
    found, expected = (it.search().select(columns).limit(5).to_arrow() for it in (table, oracle))
    # This client sends the names sorted.
    same(found.select(expected.column_names), expected)
    found, expected = (it.search().select(["id"]).limit(5).offset(20).to_arrow() for it in (table, oracle))
    same(found, expected)


@pytest.mark.parametrize("columns", [["place.x", "id"], ["id", "place.`y`"], ["place.x", "place"]])
def test_nested_columns(remote, local, vector, columns):
    for search in [
        lambda it: it.search().limit(30),
        lambda it: it.search(vector).bypass_vector_index().limit(30),
    ]:
        found, expected = (search(it.open_table("items")).select(columns).to_arrow() for it in (remote, local))
        same(found.drop_columns(["_distance"] if "_distance" in found.column_names else []), expected.select(columns))


@pytest.mark.parametrize(
    "by",
    [
        [("price", False, True), ("id", True, False)],
        [("topic", True, False), ("place.y", False, False)],
        [("place.x", True, False), ("id", False, False)],
    ],
)
def test_found_rows_in_another_order(remote, local, vector, by):
    order = [ColumnOrdering(column_name=name, ascending=up, nulls_first=first) for name, up, first in by]
    for search in [
        lambda it: it.search(vector).bypass_vector_index().limit(40).offset(7),
        lambda it: it.search("number13", query_type="fts").limit(25).offset(3),
        lambda it: it.search().where("id < 500").limit(40),
    ]:
        found, expected = (
            search(it.open_table("items")).order_by(order).to_arrow() for it in (remote, local)
        )
        assert len(expected) > 20 and found["id"].to_pylist() == expected["id"].to_pylist()


def test_the_index_of_a_column_whose_name_is_no_identifier(remote, local, vector):
    table, oracle = remote.open_table("plain"), local.open_table("plain")
    assert table.list_indices()[0].columns == oracle.list_indices()[0].columns == ["`my-vector`"]
    search = table.search(vector, vector_column_name="my-vector").nprobes(2).limit(3)
    assert "2 partitions of the index" in search.explain_plan()
    exact = oracle.search(vector, vector_column_name="my-vector").bypass_vector_index().limit(3)
    assert search.to_arrow()["id"].to_pylist() == exact.to_arrow()["id"].to_pylist()


def test_late_interaction(remote, local, vector):
    table, oracle = remote.open_table("pages"), local.open_table("pages")
    other = np.random.default_rng(7).normal(size=(3, len(vector))).astype(np.float32).tolist()
    for query in [vector, [vector], [vector, *other]]:
        found, expected = (
            it.search(query).distance_type("cosine").bypass_vector_index().limit(12).to_arrow() for it in (table, oracle)
        )
        assert found.column_names == expected.column_names
        assert found["id"].to_pylist() == expected["id"].to_pylist()
        assert np.allclose(found["_distance"], expected["_distance"], rtol=1e-4)
    # By the index, with Lance's estimates, and with distances that are computed exactly for 15 candidates.
    for factor in (None, 3):
        found, expected = (
            search if factor is None else search.refine_factor(factor)
            for search in (it.search([vector, *other]).nprobes(2).limit(5) for it in (table, oracle))
        )
        found, expected = found.to_arrow(), expected.to_arrow()
        assert len(found) == 5 and "query_index" not in found.column_names
        assert found["id"].to_pylist() == expected["id"].to_pylist(), factor
        assert np.allclose(found["_distance"], expected["_distance"], rtol=1e-4), factor
    with pytest.raises(HttpError, match="has 16 dimensions") as error:
        table.search([vector[:16], vector[:16]]).to_arrow()
    assert error.value.status_code == 400


def test_takes(remote, local):
    table, oracle = remote.open_table("items"), local.open_table("items")
    offsets = [2500, 7, 7, 0, 2979]
    found, expected = (it.take_offsets(offsets).to_arrow() for it in (table, oracle))
    # This client restores repeats, but not the order.
    assert sorted(found["id"].to_pylist()) == [0, 8, 8, 2551, 3039]
    same(found.sort_by("id"), expected.sort_by("id"))
    assert table.take_row_ids([]).to_arrow().num_rows == 0


def test_versions_and_tags(remote, local):
    table, oracle = remote.open_table("items"), local.open_table("items")
    oracle.tags.create("first", 1)
    assert table.tags.list()["first"]["version"] == 1
    assert table.tags.get_version("first") == 1
    table.checkout(1)
    assert (table.version, table.count_rows()) == (1, 3000)
    table.checkout_latest()
    assert table.count_rows() == oracle.count_rows()
    with pytest.raises(Exception, match="99"):
        table.checkout(99)


def test_what_others_write_is_seen_at_once(fresh, local):
    table, oracle = fresh.open_table("plain"), local.open_table("plain")
    for step in range(5):
        oracle.add(plain_rows(1000 + step * 10, 10))
        assert table.count_rows() == oracle.count_rows(), step


def test_prewarming(remote, local):
    table = remote.open_table("items")
    table.prewarm_index("vector_idx")
    with pytest.raises(RuntimeError, match="none"):
        table.prewarm_index("none")
    table.prewarm_data(["id"])
    table.prewarm_data()
    assert table.count_rows() == local.open_table("items").count_rows()


def test_plans(remote, vector):
    table = remote.open_table("items")
    plan = table.search(vector).nprobes(3).limit(5).explain_plan()
    assert "3 partitions of the index" in plan
    assert "row" in table.search().where("id < 5").analyze_plan()


def test_bad_requests_say_what_is_wrong(remote, vector):
    table = remote.open_table("items")
    for wrong, said in [
        (lambda: table.search(vector).where("idd = 3").to_arrow(), "idd"),
        (lambda: table.search(vector[:5]).to_arrow(), "5"),
        (lambda: table.search(vector).select(["nothing"]).to_arrow(), "nothing"),
        (lambda: table.search().where("id = = 3").limit(1).to_arrow(), "id"),
        (lambda: table.search(vector).limit(20000).to_arrow(), "10000"),
    ]:
        with pytest.raises(HttpError, match=said) as error:
            wrong()
        assert error.value.status_code == 400, said


def test_writes_are_refused_and_nothing_else_breaks(remote):
    table = remote.open_table("items")
    for write in [lambda: table.add(rows(0, 1)), lambda: table.delete("id = 1"), lambda: remote.drop_table("items")]:
        with pytest.raises(HttpError, match="serves reads") as error:
            write()
        assert error.value.status_code == 501
    assert table.count_rows("id = 1") == 1


def test_the_async_client(served, vector):
    async def read() -> tuple[list[str], int, list[int]]:
        db = await lancedb.connect_async("db://default", api_key="any", host_override=served.url)
        table = await db.open_table("items")
        found = await table.query().nearest_to(vector).limit(3).select(["id"]).to_arrow()
        return await db.table_names(), await table.count_rows(), found["id"].to_pylist()

    names, count, found = asyncio.run(read())
    assert names == ["items", "pages", "plain"] and count == 2980 and len(found) == 3
