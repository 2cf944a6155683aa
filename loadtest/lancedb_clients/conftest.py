"""Makes tables with LanceDB itself, serves them with `bireme up`, and connects with LanceDB's remote client.

BIREME names the binary. The local connection is the oracle: both read the same tables.
"""

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import lancedb
import numpy as np
import pyarrow as pa
import pytest

ROWS = 3000
DIMENSION = 32
WORDS = "oak willow birch maple river stone cloud puppy kitten garden".split()
PATIENCE_S = 60


def rows(first: int, count: int) -> pa.Table:
    """Returns rows whose values follow from their ids."""
    ids = np.arange(first, first + count)
    random = np.random.default_rng(first + 1)
    vectors = random.normal(size=(count, DIMENSION)).astype(np.float32)
    texts = [" ".join(random.choice(WORDS, 4)) + f" number{i % 97}" for i in ids]
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "text": pa.array(texts),
            "price": pa.array([None if i % 11 == 0 else i / 7 for i in ids], pa.float64()),
            "topic": pa.array([f"t{i % 20}" for i in ids]).dictionary_encode(),
            "made": pa.array([int(i) * 1_000_000 for i in ids], pa.timestamp("us")),
            "place": pa.array([{"x": int(i % 5), "y": f"y{i}"} for i in ids]),
            "tags": pa.array([[f"a{i % 3}", f"b{i % 4}"] for i in ids]),
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), DIMENSION),
        }
    )


def plain_rows(first: int, count: int) -> pa.Table:
    """Returns the same rows as `rows`, with a column whose name is not an identifier."""
    return rows(first, count).rename_columns({"vector": "my-vector"})


def lists_of_vectors(count: int) -> pa.Table:
    """Returns rows with two vectors each."""
    vectors = np.random.default_rng(5).normal(size=(count * 2 * DIMENSION)).astype(np.float32)
    each = pa.FixedSizeListArray.from_arrays(pa.array(vectors), DIMENSION)
    return pa.table({"id": range(count), "vectors": pa.ListArray.from_arrays(range(0, 2 * count + 1, 2), each)})


def make(folder: Path) -> None:
    """Writes the tables: with indexes, deleted rows, and rows that no index covers."""
    db = lancedb.connect(folder)
    items = db.create_table("items", rows(0, ROWS))
    # A code for each dimension: training starts at random, and coarser codes lose a nearest row in one table of fifteen.
    items.create_index(metric="l2", num_partitions=8, num_sub_vectors=DIMENSION, vector_column_name="vector")
    items.create_scalar_index("id")
    items.create_fts_index("text", use_tantivy=False, with_position=True, custom_stop_words=["of", "the"])
    items.delete("id % 50 = 7")
    items.add(rows(ROWS, 40))
    plain = db.create_table("plain", plain_rows(0, 200))
    plain.create_index(metric="l2", num_partitions=2, vector_column_name="`my-vector`", index_type="IVF_FLAT")
    pages = db.create_table("pages", lists_of_vectors(600))
    pages.create_index(metric="cosine", num_partitions=2, num_sub_vectors=DIMENSION, vector_column_name="vectors")
    db.create_namespace(["eu"], properties={"owner": "sales"})
    db.create_namespace(["eu", "old"])
    for namespace, first in ((["eu"], 100), (["eu", "old"], 200)):
        orders = db.create_table("orders", rows(first, 50), namespace_path=namespace)
        orders.create_fts_index("text", use_tantivy=False)


@pytest.fixture(scope="session")
def served() -> Iterator[SimpleNamespace]:
    """The address of a node that serves the tables, and their folder."""
    os.environ.setdefault("NO_PROXY", "127.0.0.1")
    with tempfile.TemporaryDirectory(prefix="bireme-lancedb-") as name:
        folder = Path(name)
        make(folder)
        ready = folder / "ready.json"
        tables = [f"--table={table}={folder / table}.lance" for table in ("items", "pages", "plain")]
        # The folder has tables in namespaces too.
        tables.append(f"--tables={folder}")
        cache = ["--cache-dir", str(folder / "cache"), "--cache-size", "256MiB", "--allow-buffered"]
        command = [os.environ["BIREME"], "up", "--listen", "127.0.0.1:0", "--ready-file", str(ready), *cache, *tables]
        with open(folder / "log", "w", encoding="utf-8") as log:
            node = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            until = time.monotonic() + PATIENCE_S
            while not ready.exists():
                assert node.poll() is None and time.monotonic() < until, (folder / "log").read_text()
                time.sleep(0.05)
            address = json.loads(ready.read_text())["query"]
            yield SimpleNamespace(url=address, folder=folder)
        finally:
            node.terminate()
            node.wait(PATIENCE_S)


def connect(served: SimpleNamespace, **options: object) -> lancedb.DBConnection:
    """Connects with LanceDB's own remote client."""
    return lancedb.connect("db://default", api_key="any", host_override=served.url, **options)


@pytest.fixture(scope="session")
def remote(served: SimpleNamespace) -> lancedb.DBConnection:
    """The remote connection."""
    return connect(served)


@pytest.fixture(scope="session")
def fresh(served: SimpleNamespace) -> lancedb.DBConnection:
    """A remote connection that always reads the latest version."""
    return connect(served, read_consistency_interval=timedelta(0))


@pytest.fixture(scope="session")
def local(served: SimpleNamespace) -> lancedb.DBConnection:
    """The oracle: LanceDB on the same folder."""
    return lancedb.connect(served.folder)


@pytest.fixture()
def vector() -> list[float]:
    """A query vector."""
    return np.random.default_rng(99).normal(size=DIMENSION).astype(np.float32).tolist()
