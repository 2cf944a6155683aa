"""Measures the recall of vector searches against brute force, for Bireme and pylance on the same query vectors."""

import tempfile

import lance
import numpy as np

from .bireme import Bireme, Node
from .profile import Profile

QUESTIONS = 50
NOISE = 0.1


def measure(
    profile: Profile, bireme: Bireme, query: Node, k: int, nprobes: int, refine: int, name: str = "vectors", version: int = 0
) -> dict:
    """Returns the share of the k nearest rows of a table, by brute force, that each system finds. A version of 0 is the
    latest one."""
    table = lance.dataset(profile.table(name), version=version or None)
    rng = np.random.default_rng(7)
    picked = table.take(sorted(rng.choice(table.count_rows(), QUESTIONS, replace=False).tolist()), columns=["vector"])
    vectors = picked["vector"].combine_chunks().flatten().to_numpy().reshape(QUESTIONS, -1)
    questions = (vectors + NOISE * vectors.std() * rng.uniform(-1, 1, vectors.shape)).astype(np.float32)
    exact = brute_force(table, questions, k)
    found = {"bireme": [], "lance": []}
    with tempfile.NamedTemporaryFile(suffix=".json", mode="w") as file:
        for question in questions:
            file.seek(0)
            file.truncate()
            file.write(str(question.tolist()))
            file.flush()
            arguments = ["--vector", file.name, "-k", str(k), "--nprobes", str(nprobes), "--refine", str(refine)]
            rows = bireme.run(query, "search", name, *arguments, "--columns", "id", "--table-version", str(version))
            found["bireme"].append({row["id"] for row in rows})
            nearest = {"column": "vector", "q": question, "k": k, "nprobes": nprobes, "refine_factor": refine}
            found["lance"].append(set(table.to_table(nearest=nearest, columns=["id"])["id"].to_pylist()))
    part = lambda sets: float(np.mean([len(mine & true) / k for mine, true in zip(sets, exact, strict=True)]))
    return {name: part(sets) for name, sets in found.items()} | {"questions": QUESTIONS, "k": k}


def brute_force(table: lance.LanceDataset, questions: np.ndarray, k: int) -> list[set[int]]:
    """Returns the ids of the k nearest rows by L2, comparing every vector."""
    best_distance = np.full((len(questions), 0), np.inf, dtype=np.float32)
    best_id = np.zeros((len(questions), 0), dtype=np.int64)
    for batch in table.to_batches(columns=["id", "vector"], batch_size=10_000, batch_readahead=1):
        vectors = batch["vector"].flatten().to_numpy().reshape(batch.num_rows, -1)
        # |q - v|² without |q|², which is the same for all v.
        distance = (vectors * vectors).sum(1)[None, :] - 2 * questions @ vectors.T
        ids = np.broadcast_to(batch["id"].to_numpy(), distance.shape)
        best_distance = np.concatenate([best_distance, distance], 1)
        best_id = np.concatenate([best_id, ids], 1)
        keep = np.argpartition(best_distance, k - 1, 1)[:, :k]
        best_distance = np.take_along_axis(best_distance, keep, 1)
        best_id = np.take_along_axis(best_id, keep, 1)
    return [set(row.tolist()) for row in best_id]
