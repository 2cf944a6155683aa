"""Branches and orders of rows, against pylance's own reading."""

import asyncio
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance.dataset import ColumnOrdering

import bireme


def notes(first: int, end: int) -> pa.Table:
    ids = range(first, end)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "stars": pa.array([None if at % 7 == 0 else at * 5 % 11 for at in ids], pa.int32()),
            "body": [f"note {at} {'odd' if at % 2 else 'even'}" for at in ids],
        }
    )


@pytest.fixture(scope="module")
def branched(folder: Path) -> Iterator[tuple[bireme.Server, lance.LanceDataset]]:
    """A server of `notes`, and its branch `exp`, which lacks rows that the main branch has, and has others."""
    main = lance.write_dataset(notes(0, 100), "notes.lance")
    branch = main.create_branch("exp")
    branch.delete("id < 10")
    branch = lance.write_dataset(notes(200, 250), branch.uri, mode="append")
    main.insert(notes(100, 120))
    with bireme.serve("notes.lance") as server:
        yield server, branch


def test_a_branch_has_its_own_rows(branched: tuple[bireme.Server, lance.LanceDataset]) -> None:
    server, expected = branched
    main, branch = server.table("notes"), server.table("notes", branch="exp")
    assert repr(branch) == "Table('notes', branch='exp')"
    assert (main.describe().rows, branch.describe().rows) == (120, expected.count_rows())
    assert branch.describe().version == expected.version

    keys = [5, 50, 110, 220]
    assert branch.get(keys, key_column="id", columns="id")["id"].to_pylist() == [50, 220]
    assert main.get(keys, key_column="id", columns="id")["id"].to_pylist() == [5, 50, 110]
    assert branch.get(5, key_column="id") is None
    assert branch.exists(keys, key_column="id").to_pylist() == [False, True, False, True]
    assert branch.lookup(keys, key_column="id", columns="body")["body"].to_pylist() == [
        None,
        "note 50 even",
        None,
        "note 220 even",
    ]
    found = branch.search().where("stars = 3").limit(1000).select("id").to_arrow()
    wanted = expected.to_table(columns=["id"], filter="stars = 3", with_row_address=True)
    assert found["id"].to_pylist() == wanted["id"].to_pylist()
    taken = branch.take(found["_rowaddr"], columns=["body"])
    assert taken["body"].to_pylist() == expected.to_table(["body"], filter="stars = 3")["body"].to_pylist()
    assert branch.warm(progress=False).extents_failed == 0

    old = server.table("notes", branch="exp", version=expected.version - 1)
    assert old.describe().rows == 90
    with pytest.raises(bireme.NotFoundError, match="expp"):
        server.table("notes", branch="expp").describe()


def test_versions_and_tags_are_those_of_pylance(branched: tuple[bireme.Server, lance.LanceDataset]) -> None:
    server, branch = branched
    main = lance.dataset("notes.lance")
    main.tags.create("first", 1)
    for name, expected in [("", main), ("exp", branch)]:
        versions = server.table("notes", branch=name).versions()
        assert [it.version for it in versions] == sorted((it["version"] for it in expected.versions()), reverse=True)
        assert versions[0].metadata["total_rows"] == str(expected.count_rows())
        assert all(older.created_at <= newer.created_at for newer, older in pairwise(versions))
    assert server.table("notes").tags() == [bireme.Tag("first", 1, "")]

    async def listed() -> tuple[list[bireme.TableVersion], list[bireme.Tag]]:
        table = (await bireme.connect_async(server.endpoint)).table("notes")
        return await table.versions(), await table.tags()

    assert asyncio.run(listed()) == (server.table("notes").versions(), server.table("notes").tags())


def test_rows_are_taken_by_offsets(branched: tuple[bireme.Server, lance.LanceDataset]) -> None:
    server, expected = branched
    branch = server.table("notes", branch="exp")
    offsets = [0, 95, 3, 3]
    assert branch.take(offsets=offsets, columns="id")["id"].to_pylist() == expected.take(offsets)["id"].to_pylist()
    with pytest.raises(bireme.NotFoundError, match="no row at the offset 140"):
        branch.take(offsets=[0, 140])
    assert branch.take(offsets=[140, 0], columns="id", skip_missing=True)["id"].to_pylist() == [10]
    for rows in [{}, {"addresses": [0], "offsets": [0]}]:
        with pytest.raises(bireme.BadRequestError, match="either `addresses` or `offsets`"):
            branch.take(**rows)

    async def taken() -> pa.Table:
        db = await bireme.connect_async(server.endpoint)
        return await db.table("notes", branch="exp").take(offsets=offsets)

    assert asyncio.run(taken()) == branch.take(offsets=offsets)


def test_a_branch_is_read_with_asyncio(branched: tuple[bireme.Server, lance.LanceDataset]) -> None:
    server, expected = branched

    async def count() -> int:
        db = await bireme.connect_async(server.endpoint)
        return (await db.table("notes", branch="exp").describe()).rows

    assert asyncio.run(count()) == expected.count_rows()


@pytest.mark.parametrize(("descending", "nulls_first"), [(False, False), (True, False), (False, True), (True, True)])
def test_rows_are_put_in_order(
    branched: tuple[bireme.Server, lance.LanceDataset], descending: bool, nulls_first: bool
) -> None:
    server, expected = branched
    search = server.table("notes", branch="exp").search().where("id > 20").select("id", "stars")
    search = search.order_by("stars", descending=descending, nulls_first=nulls_first).order_by("id", descending=True)
    found = search.limit(60).offset(7).to_arrow()
    scan = expected.scanner(
        columns=["id", "stars"],
        filter="id > 20",
        order_by=[
            ColumnOrdering("stars", not descending, nulls_first),
            ColumnOrdering("id", ascending=False, nulls_first=False),
        ],
        limit=60,
        offset=7,
    )
    assert found.drop_columns("_rowaddr").to_pylist() == scan.to_table().to_pylist()


def test_found_rows_are_put_in_another_order(words: bireme.Table) -> None:
    found = words.search("wind").limit(20)
    best = found.select("synset").to_list()
    ordered = found.order_by("synset", descending=True).select("synset").to_list()
    assert [row["synset"] for row in ordered] == sorted((row["synset"] for row in best), reverse=True)
    worst = found.order_by("_score").select("synset").to_arrow()["_score"].to_pylist()
    assert worst == sorted(row["_score"] for row in best)


def test_bad_orders_are_named(words: bireme.Table) -> None:
    with pytest.raises(bireme.BadRequestError, match="names no column"):
        words.search("wind").order_by()
    with pytest.raises(ValueError, match="domian"):
        words.search("wind").order_by("domian").to_arrow()
