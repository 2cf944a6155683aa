"""Measures the recall that searches with a wanted recall reach on fresh questions, and compares the cost of the chosen
setting with that of the cheapest one.

    python -m bench.tuned --bireme BINARY --folder FOLDER --wordnet wordnet.parquet [TABLE...]

For each table, `bireme tune` measures a curve from rows. Then fresh questions, which are not rows of the table, are
searched for with the wanted recall, and the answers are compared with brute force by numpy. A second curve is measured
from the fresh questions alone; its cheapest setting is compared with the chosen one, by the modelled cost.
"""

import argparse
import json
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from .tables import NOISE

# The largest noise of a question around a row's vector, as a fraction of the vectors' standard deviation.
QUESTION_NOISE = 0.1
K = 10
RECALL = 0.95
# The clustered vectors of `tables.py`: dimension, rows, centres, and how to index them.
CLUSTERED = {
    "rq-768": (768, 1_000_000, 2_000, ["--partitions", "1024", "--bits", "1"]),
    "pq-1024": (1024, 100_000, 200, ["--kind", "ivf-pq"]),
    "pq-1536": (1536, 100_000, 200, ["--kind", "ivf-pq"]),
}


def main() -> None:
    """See --help."""
    parser = argparse.ArgumentParser(prog="bench.tuned", description=__doc__)
    parser.add_argument("--bireme", type=Path, required=True, help="the binary to measure")
    parser.add_argument("--folder", type=Path, required=True, help="the folder for tables; they are kept")
    parser.add_argument("--wordnet", type=Path, required=True, help="WordNet's embeddings")
    parser.add_argument("--questions", type=int, default=300, help="fresh questions [default: 300]")
    parser.add_argument("--rows", type=int, default=256, help="questions of the curve, as `bireme tune --rows`")
    parser.add_argument("tables", nargs="*", default=["wordnet", *CLUSTERED])
    arguments = parser.parse_args()
    for name in arguments.tables:
        table = arguments.folder / f"{name}.lance"
        if not table.exists():
            make(arguments.bireme, table, name, arguments.wordnet)
        print(json.dumps({"table": name} | measure(arguments.bireme, table, arguments.questions, arguments.rows)), flush=True)


def make(bireme: Path, table: Path, name: str, wordnet: Path) -> None:
    """Makes a table and its index."""
    if name == "wordnet":
        subprocess.run([bireme, "ingest", wordnet, "--table", table, "--key", "synset"], check=True)
        options = ["--metric", "cosine"]
    else:
        dimension, rows, centres, options = CLUSTERED[name]
        schema = pa.schema([("id", pa.int64()), ("vector", pa.list_(pa.float32(), dimension))])
        lance.write_dataset(pa.RecordBatchReader.from_batches(schema, clustered(schema, dimension, rows, centres)), table)
    subprocess.run([bireme, "index", "--table", table, "--vector", "vector", *options], check=True)


def clustered(schema: pa.Schema, dimension: int, rows: int, centres: int) -> Iterator[pa.RecordBatch]:
    """Makes normal noise around normally distributed centres, as `tables.vectors` does."""
    rng = np.random.default_rng(0)
    points = rng.standard_normal((centres, dimension), dtype=np.float32)
    for start in range(0, rows, 50_000):
        count = min(50_000, rows - start)
        noise = rng.standard_normal((count, dimension), dtype=np.float32)
        values = points[rng.integers(0, centres, count)] + np.float32(NOISE) * noise
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), dimension)
        yield pa.record_batch([pa.array(np.arange(start, start + count)), vectors], schema=schema)


def measure(bireme: Path, table: Path, count: int, rows: int) -> dict:
    """Returns the recall of `count` fresh questions, by a curve of `rows` rows, and the costs."""
    cosine = table.name.startswith("wordnet")
    questions, exact = fresh(lance.dataset(table), count, cosine)
    with tempfile.TemporaryDirectory(dir=table.parent) as folder, Up(bireme, table, Path(folder)) as up:
        up.run("warm", "t", "--columns", "vector")
        tuned = json.loads(up.run("tune", "t", "--uri", table, "--rows", rows, "--json"))
        asked = pa.FixedSizeListArray.from_arrays(pa.array(questions.reshape(-1)), questions.shape[1])
        pq.write_table(pa.table({"vector": asked}), f"{folder}/asked.parquet")
        up.run("tune", "t", "--questions", f"{folder}/asked.parquet", "--output", f"{folder}/fresh")
        chosen = next(it for it in tuned["settings"] if it["k"] == K and it["recall_wanted"] == RECALL)
        default = next(it for it in tuned["settings"] if it["k"] == K and it["recall_wanted"] is None)
        found = [found_rows(up, folder, question) for question in questions]
        sweep = [it for it in points(f"{folder}/fresh") if it["recall"] >= RECALL]
    recall = np.mean([len(mine & true) / K for mine, true in zip(found, exact, strict=True)])
    cheapest = min(sweep, key=lambda it: it["cost"])
    return {
        "fresh_recall": round(float(recall), 4),
        "chosen": chosen,
        "sweep": cheapest,
        "cost_over_sweep": round(chosen["cost"] / cheapest["cost"], 3),
        "default": default,
        "warnings": tuned["warnings"],
        "tune_seconds": round(tuned["seconds"], 1),
    }


class Up:
    """Both tiers in one process."""

    def __init__(self, bireme: Path, table: Path, folder: Path) -> None:
        self.bireme, self.table, self.folder = bireme, table, folder

    def __enter__(self) -> "Up":
        ready = self.folder / "ready.json"
        cache = ["--cache-dir", self.folder / "cache", "--allow-buffered", "--ready-file", ready]
        served = ["up", "--listen", "127.0.0.1:0", "--table", f"t={self.table}", *cache]
        self.process = subprocess.Popen([self.bireme, *served], stdout=subprocess.DEVNULL)
        while not ready.exists():
            if self.process.poll() is not None:
                raise RuntimeError("bireme up ended at once")
        self.endpoint = json.loads(ready.read_text())["query"]
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(60)

    def run(self, *arguments: object) -> str:
        """Runs a command on the nodes."""
        command = [self.bireme, *map(str, arguments), "--endpoint", self.endpoint]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def found_rows(up: Up, folder: str, question: np.ndarray) -> set[int]:
    """Returns the addresses of the rows that a search with the wanted recall finds."""
    vector = Path(folder, "question.f32")
    question.astype("<f4").tofile(vector)
    search = ["search", "t", "--vector", vector, "-k", K, "--recall", RECALL, "--json"]
    return {json.loads(row)["_rowaddr"] for row in up.run(*search).splitlines()}


def points(file: str) -> list[dict]:
    """Returns the measured settings of a curve's file."""
    body = Path(file).read_text().split("\n", 1)[1]
    return next(it["points"] for it in json.loads(body)["of_k"] if it["k"] == K)


def fresh(table: lance.LanceDataset, count: int, cosine: bool) -> tuple[np.ndarray, list[set[int]]]:
    """Returns `count` questions, and the addresses of their nearest rows by brute force."""
    rng = np.random.default_rng(7)
    picked = sorted(rng.choice(table.count_rows(), count, replace=False).tolist())
    vectors = matrix(table.take(picked, columns=["vector"])["vector"].combine_chunks())
    noise = QUESTION_NOISE * vectors.std() * rng.uniform(-1, 1, vectors.shape)
    questions = (vectors + noise).astype(np.float32)
    distances, rows = np.empty((count, 0), np.float32), np.empty((count, 0), np.uint64)
    for batch in table.scanner(columns=["vector"], with_row_address=True, batch_size=50_000).to_batches():
        values = matrix(batch["vector"])
        if cosine:
            values = values / np.linalg.norm(values, axis=1, keepdims=True)
        # |q - v|² without |q|², which is the same for all v. For unit vectors v, its order is that of the cosine.
        near = (values * values).sum(1)[None, :] - 2 * questions @ values.T
        distances = np.concatenate([distances, near], 1)
        addresses = np.broadcast_to(batch["_rowaddr"].to_numpy(), near.shape)
        rows = np.concatenate([rows, addresses], 1)
        keep = np.argpartition(distances, K, 1)[:, :K]
        distances, rows = np.take_along_axis(distances, keep, 1), np.take_along_axis(rows, keep, 1)
    return questions, [set(it.tolist()) for it in rows]


def matrix(vectors: pa.FixedSizeListArray) -> np.ndarray:
    """Returns the vectors as a matrix."""
    return vectors.flatten().to_numpy().reshape(len(vectors), -1)


if __name__ == "__main__":
    main()
