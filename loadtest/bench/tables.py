"""Makes the tables once and keeps them: vectors with an index, ten payload columns, pairs of a key and a value, documents
with a title and a vector, TPC-H's lineitem."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from .profile import Profile

STEP = 50_000
FRAGMENT_ROWS = 250_000
# The payload table's key column, which has an index.
KEY = "sku"
# The columns of a pair's value, and the bytes of each. The key has 16 bytes.
VALUES, VALUE_BYTES = 5, 20
PAIR_BYTES = 16 + VALUES * VALUE_BYTES
# The standard deviation of a vector's components around its centre's. That of the centres' components is 1.
NOISE = 0.6


def make(profile: Profile, bireme: Path) -> None:
    """Makes the tables that are missing, and those whose sizes or key have changed."""
    for name, sizes, maker in [
        ("vectors", [profile.rows, profile.dimension, profile.centres, profile.partitions], vectors),
        ("payload", [profile.payload_rows, KEY], payload),
        ("pairs", [profile.pair_rows], pairs),
        ("documents", [profile.document_rows], documents),
        ("lineitem", [profile.scale_factor], lineitem),
    ]:
        # The mark is written last, so an unfinished table is made again.
        mark = profile.folder / f"{name}.made"
        made_as = json.dumps(sizes)
        if mark.exists() and mark.read_text() == made_as:
            continue
        began = time.monotonic()
        print(f"making table {name}", flush=True)
        maker(profile, bireme)
        mark.write_text(made_as)
        print(f"made table {name} in {time.monotonic() - began:.0f} s", flush=True)


def write(profile: Profile, name: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
    """Writes the rows as a Lance table and as Parquet."""

    def both() -> Iterator[pa.RecordBatch]:
        with pq.ParquetWriter(profile.parquet(name), schema) as parquet:
            for batch in batches:
                parquet.write_batch(batch)
                yield batch

    reader = pa.RecordBatchReader.from_batches(schema, both())
    lance.write_dataset(reader, profile.table(name), max_rows_per_file=FRAGMENT_ROWS, mode="overwrite")


def vectors(profile: Profile, bireme: Path) -> None:
    """Makes clustered vectors and their index."""
    write(profile, "vectors", vector_schema(profile), vector_rows(profile, 0, profile.rows))
    index_vectors(profile, bireme, profile.table("vectors"))


def vector_schema(profile: Profile) -> pa.Schema:
    """Returns the schema of `vector_rows`."""
    vector = pa.list_(pa.float32(), profile.dimension)
    return pa.schema([("id", pa.int64()), ("topic", pa.int32()), ("vector", vector)])


def vector_rows(profile: Profile, first: int, rows: int) -> Iterator[pa.RecordBatch]:
    """Makes `rows` clustered vectors with ids from `first` on: normal noise around normally distributed centres, which
    are the same for all of a profile's rows."""
    dimension = profile.dimension
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((profile.centres, dimension), dtype=np.float32)
    if first:
        rng = np.random.default_rng(first)
    for start in range(first, first + rows, STEP):
        count = min(STEP, first + rows - start)
        topic = rng.integers(0, profile.centres, count)
        noise = rng.standard_normal((count, dimension), dtype=np.float32)
        values = centres[topic] + np.float32(NOISE) * noise
        yield pa.record_batch(
            [
                pa.array(np.arange(start, start + count), pa.int64()),
                pa.array(topic.astype(np.int32)),
                pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), dimension),
            ],
            schema=vector_schema(profile),
        )


def index_vectors(profile: Profile, bireme: Path, uri: str) -> None:
    """Makes the index of a table of `vector_rows`."""
    index = [str(bireme), "index", "--table", uri, "--vector", "vector"]
    # One bit per dimension, as in the published figures; refinement makes up for the loss.
    subprocess.run([*index, "--partitions", str(profile.partitions), "--bits", "1"], check=True)


def link(profile: Profile, name: str, target: str, folders: list[str]) -> None:
    """Makes the folder of a table `target` that shares the files in these folders of the table `name`, which Lance never
    changes. If the indexes are among them, copies the small files of the versions too, so that the folder is a table."""
    of, to = Path(profile.table(name)), Path(profile.table(target))
    shutil.rmtree(to, ignore_errors=True)
    for folder in folders:
        shutil.copytree(of / folder, to / folder, copy_function=os.link)
    if "_indices" in folders:
        for folder in ("_versions", "_transactions"):
            shutil.copytree(of / folder, to / folder)


def payload(profile: Profile, bireme: Path) -> None:
    """Makes ten columns typical of a document store: numbers, a flag, a time, short and longer texts."""
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("price", pa.float64()),
            ("stock", pa.int32()),
            ("rating", pa.float32()),
            ("category", pa.int16()),
            ("listed", pa.bool_()),
            ("updated", pa.timestamp("us", tz="UTC")),
            ("sku", pa.string()),
            ("title", pa.string()),
            ("description", pa.string()),
        ]
    )

    def batches() -> Iterator[pa.RecordBatch]:
        rng = np.random.default_rng(1)
        for start in range(0, profile.payload_rows, STEP):
            count = min(STEP, profile.payload_rows - start)
            ids = np.arange(start, start + count)
            text = lambda length: texts(rng, count, length)
            yield pa.record_batch(
                [
                    pa.array(ids),
                    pa.array(rng.gamma(2.0, 30.0, count)),
                    pa.array(rng.integers(0, 1_000, count), pa.int32()),
                    pa.array(rng.random(count, dtype=np.float32) * 5),
                    pa.array(rng.integers(0, 300, count), pa.int16()),
                    pa.array(rng.random(count) < 0.9),
                    pa.array(1_700_000_000_000_000 + rng.integers(0, 10**13, count), schema.field("updated").type),
                    pa.array([f"SKU-{id:09d}" for id in ids]),
                    pa.array(text(6)),
                    pa.array(text(25)),
                ],
                schema=schema,
            )

    write(profile, "payload", schema, batches())
    subprocess.run([str(bireme), "index", "--table", profile.table("payload"), "--key", KEY], check=True)


def texts(rng: np.random.Generator, count: int, length: int) -> list[str]:
    """Makes texts of `length` random words."""
    words = np.array([f"word{n:04d}" for n in range(5_000)])
    return [" ".join(row) for row in words[rng.integers(0, len(words), (count, length))]]


def documents(profile: Profile, bireme: Path) -> None:
    """Makes titles of six words, and vectors of 128 dimensions around as many centres as there are partitions."""
    dimension, partitions = 128, 256
    schema = pa.schema([("id", pa.int64()), ("title", pa.string()), ("vector", pa.list_(pa.float32(), dimension))])

    def batches() -> Iterator[pa.RecordBatch]:
        rng = np.random.default_rng(3)
        centres = rng.standard_normal((partitions, dimension), dtype=np.float32)
        for start in range(0, profile.document_rows, STEP):
            count = min(STEP, profile.document_rows - start)
            noise = rng.standard_normal((count, dimension), dtype=np.float32)
            values = centres[rng.integers(0, partitions, count)] + np.float32(NOISE) * noise
            vectors = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), dimension)
            ids = pa.array(np.arange(start, start + count), pa.int64())
            yield pa.record_batch([ids, pa.array(texts(rng, count, 6)), vectors], schema=schema)

    write(profile, "documents", schema, batches())
    index = [str(bireme), "index", "--table", profile.table("documents"), "--text", "title", "--vector", "vector"]
    subprocess.run([*index, "--partitions", str(partitions), "--bits", "1"], check=True)


def pairs(profile: Profile, bireme: Path) -> None:
    """Makes keys of 16 bytes in random order, and values of 100 bytes in five columns."""
    value = pa.binary(VALUE_BYTES)
    schema = pa.schema([("key", pa.string()), *[(f"value{number}", value) for number in range(VALUES)]])

    def batches() -> Iterator[pa.RecordBatch]:
        rng = np.random.default_rng(2)
        for start in range(0, profile.pair_rows, STEP):
            count = min(STEP, profile.pair_rows - start)
            # An odd factor maps different numbers to different ones, in no order.
            keys = np.arange(start, start + count, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
            values = [pa.py_buffer(rng.bytes(count * VALUE_BYTES)) for _ in range(VALUES)]
            columns = [pa.Array.from_buffers(value, count, [None, it]) for it in values]
            yield pa.record_batch([pa.array([f"{key:016x}" for key in keys]), *columns], schema=schema)

    write(profile, "pairs", schema, batches())
    subprocess.run([str(bireme), "index", "--table", profile.table("pairs"), "--key", "key"], check=True)


def lineitem(profile: Profile, _: Path) -> None:
    """Makes TPC-H's largest table with the generator of the tpchgen crate."""
    command = ["tpchgen-cli", "parquet", "-s", str(profile.scale_factor), "--tables", "lineitem"]
    output = profile.folder / "tpch"
    subprocess.run([*command, "--output-dir", str(output)], check=True)
    made = output / "lineitem.parquet"
    made.replace(profile.parquet("lineitem"))
    file = pq.ParquetFile(profile.parquet("lineitem"))
    reader = pa.RecordBatchReader.from_batches(file.schema_arrow, file.iter_batches(STEP))
    lance.write_dataset(reader, profile.table("lineitem"), max_rows_per_file=2_000_000, mode="overwrite")
