"""Measures the recall that searches with a wanted recall reach on fresh questions, and compares their cost with that of
the cheapest setting.

For each table, `bireme tune` measures a curve from rows. Then fresh questions, which are not rows of the table, are
searched for with the wanted recall, and the answers are compared with brute force by numpy. A second curve is measured
from the fresh questions alone. Its cheapest setting that reaches the wanted recall is compared with the chosen one, by
CPU in turns and by the modelled cost. All is in memory."""

import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from . import machine, memory, tables
from .bireme import Bireme
from .figures import spread
from .profile import Profile
from .searches import WARM_UP_SECONDS, cpu
from .tier import Tier

TABLE = "tuned"
# The largest noise of a question around a row's vector, as a fraction of the vectors' standard deviation.
QUESTION_NOISE = 0.1
K, RECALL = 10, 0.95
CHOSEN, SWEEP, DEFAULT = "chosen", "sweep", "default"
# Tables with an IVF_PQ index: rows, centres of their clusters, and dimensions.
PQ_ROWS, PQ_CENTRES, PQ_DIMENSIONS = 100_000, 200, (1_024, 1_536)
# Rows from which the curve is measured, and fresh questions.
ROWS, QUESTIONS = 256, 300
# Rows and questions for the benchmark's vectors: fewer, because each question is compared with every row.
ROWS_OF_MANY, QUESTIONS_OF_MANY = 64, 100


def measure(profile: Profile, binary: Path, logs: Path, wordnet: Path | None) -> dict:
    """Measures one table after the other. `wordnet` has WordNet's embeddings; without it, that table is left out."""
    makers: dict[str, Callable[[], None]] = {}
    if wordnet:
        makers["WordNet, IVF_RQ"] = lambda: _wordnet(profile, binary, wordnet)
    for dimension in PQ_DIMENSIONS:
        makers[f"clustered, {PQ_ROWS:,} × {dimension:,}, IVF_PQ"] = lambda it=dimension: _clustered(profile, binary, it)
    many = f"the benchmark's, {profile.rows:,} × {profile.dimension}, IVF_RQ of 1 bit"
    makers[many] = lambda: tables.link(profile, "vectors", TABLE, ["data", "_indices"])
    found = {}
    for title, make in makers.items():
        rows, questions = (ROWS_OF_MANY, QUESTIONS_OF_MANY) if title == many else (ROWS, QUESTIONS)
        try:
            make()
            found[title] = _table(profile, binary, logs, rows, questions)
        finally:
            shutil.rmtree(profile.table(TABLE), ignore_errors=True)
        print(f"tuned, {title}: recall {found[title]['recall']:.3f}, CPU relative to a sweep's {over(found[title], SWEEP):.3g}", flush=True)
    return {"tables": found, "machine": machine.describe([profile.folder])}


def _wordnet(profile: Profile, binary: Path, wordnet: Path) -> None:
    uri = profile.table(TABLE)
    subprocess.run([binary, "ingest", wordnet, "--table", uri, "--key", "synset"], check=True)
    subprocess.run([binary, "index", "--table", uri, "--vector", "vector", "--metric", "cosine"], check=True)


def _clustered(profile: Profile, binary: Path, dimension: int) -> None:
    """Makes normal noise around normally distributed centres, as `tables.vector_rows` does."""
    uri = profile.table(TABLE)
    schema = pa.schema([("vector", pa.list_(pa.float32(), dimension))])

    def batches() -> Iterator[pa.RecordBatch]:
        rng = np.random.default_rng(0)
        centres = rng.standard_normal((PQ_CENTRES, dimension), dtype=np.float32)
        for _ in range(0, PQ_ROWS, tables.STEP):
            noise = rng.standard_normal((tables.STEP, dimension), dtype=np.float32)
            values = centres[rng.integers(0, PQ_CENTRES, tables.STEP)] + np.float32(tables.NOISE) * noise
            yield pa.record_batch([_vectors(values)], schema=schema)

    lance.write_dataset(pa.RecordBatchReader.from_batches(schema, batches()), uri)
    subprocess.run([binary, "index", "--table", uri, "--vector", "vector", "--kind", "ivf-pq"], check=True)


def _table(profile: Profile, binary: Path, logs: Path, rows: int, count: int) -> dict:
    uri = profile.table(TABLE)
    table = lance.dataset(uri)
    [metric] = [it.details["metric_type"] for it in table.describe_indices() if it.field_names == ["vector"]]
    questions, exact = fresh(table, count, metric == "COSINE")
    with (
        memory.folder(profile) as slabs,
        tempfile.TemporaryDirectory(dir=profile.folder) as folder,
        Bireme(binary, logs, profile.folder) as bireme,
    ):
        tier = Tier.start(bireme, profile, [TABLE], [slabs / "slab-0"])
        bireme.warm(tier.query, TABLE, ["vector"])
        [tuned] = bireme.run(tier.query, "tune", TABLE, "--uri", uri, "--rows", str(rows))
        asked = Path(folder, "asked.parquet")
        pq.write_table(pa.table({"vector": _vectors(questions)}), asked)
        curve = Path(folder, "curve")
        bireme.run(tier.query, "tune", TABLE, "--questions", str(asked), "--output", str(curve))
        # A node reads a table's curves when it starts, and every minute.
        tier = Tier(bireme, tier.io, bireme.query_node(tier.io, {TABLE: uri}))
        bireme.ready(tier.query, [TABLE])
        found = [_found_rows(tier, folder, question) for question in questions]
        setting = lambda wanted: next(it for it in tuned["settings"] if it["k"] == K and it["recall_wanted"] == wanted)
        cheapest = min((it for it in _points(curve) if it["recall"] >= RECALL), key=lambda it: it["cost"])
        settings = {CHOSEN: setting(RECALL), SWEEP: cheapest, DEFAULT: setting(None)}
        runs: dict[str, list[dict]] = {name: [] for name in settings}
        for number in range(profile.rounds):
            for name in list(settings)[:: -1 if number % 2 else 1]:
                runs[name].append(_search(tier, profile, number, name, settings[name]))
    return {
        "recall": float(np.mean([len(mine & true) / K for mine, true in zip(found, exact, strict=True)])),
        "rows": rows,
        "questions": count,
        "settings": settings,
        "runs": runs,
        "warnings": tuned["warnings"],
        "tune_seconds": round(tuned["seconds"], 1),
    }


def _search(tier: Tier, profile: Profile, number: int, name: str, setting: dict) -> dict:
    chosen = ["--recall", str(RECALL)]
    given = [f"--nprobes={setting['nprobes']}", f"--refine={setting['refine']}"]
    load = [f"-k={K}", *(chosen if name == CHOSEN else given), "--columns", "_rowaddr", "--seed", str(number)]
    tier.bench("search", TABLE, WARM_UP_SECONDS, *load)
    report = tier.bench("search", TABLE, profile.seconds, *load)
    if report["errors"]:
        raise RuntimeError(f"some searches failed: {report}")
    return report | cpu(report)


def _found_rows(tier: Tier, folder: str, question: np.ndarray) -> set[int]:
    """Returns the addresses of the rows that a search with the wanted recall finds."""
    vector = Path(folder, "question.f32")
    question.astype("<f4").tofile(vector)
    search = ["search", TABLE, "--vector", str(vector), "-k", str(K), "--recall", str(RECALL), "--columns", "_rowaddr"]
    return {row["_rowaddr"] for row in tier.bireme.run(tier.query, *search)}


def _points(curve: Path) -> list[dict]:
    """Returns the measured settings of a curve's file. `refine` is the number of candidates for each row."""
    body = curve.read_text().split("\n", 1)[1]
    points = next(it["points"] for it in json.loads(body)["of_k"] if it["k"] == K)
    return [it | {"refine": -(-it["candidates"] // K)} for it in points]


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


def _vectors(values: np.ndarray) -> pa.FixedSizeListArray:
    return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])


def over(found: dict, other: str) -> float:
    """Returns the CPU of a search with the wanted recall relative to another setting's: the median of the rounds."""
    return median(_over(found, other))


def _over(found: dict, other: str) -> list[float]:
    runs = found["runs"]
    return [a["cpu_s"] / b["cpu_s"] for a, b in zip(runs[CHOSEN], runs[other], strict=True)]


def goals(found: dict) -> list[tuple[str, float, float, bool]]:
    """Returns each goal's name, its value, the wanted value, and whether more is better."""
    wanted = f"searches with `recall = {RECALL}`"
    of_table = lambda title, it: [
        (f"recall of fresh questions, {wanted}, {title}", it["recall"], 0.94, True),
        (f"CPU of {wanted} relative to the cheapest setting of a sweep, {title}", over(it, SWEEP), 1.1, False),
    ]
    return [goal for title, it in found["tables"].items() for goal in of_table(title, it)]


def section(found: dict) -> list[str]:
    """Returns the lines of the report's section."""
    lines = [
        "## Searches with a wanted recall",
        "",
        f"Searches with `recall = {RECALL}` and k = {K}, slab in memory. The curve is measured from rows of the table; the fresh",
        "questions equal no row, and their answers are compared with exact neighbours. The sweep measures all settings with the",
        "fresh questions themselves, so its cheapest one that reaches the recall is the best that could have been chosen. The",
        "modelled cost counts rows that are compared. CPU is that of both tiers; its ratios are taken within each round: the",
        "median, with the least and the most.",
        "",
        "| table | rows of the curve, fresh questions | recall of the default setting | chosen | fresh questions find | CPU, ms "
        "| CPU over the sweep's cheapest | modelled cost over it | CPU over the default setting's |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    shown = lambda it: f"nprobes {it['nprobes']}, refine {it['refine']}"
    for title, it in found["tables"].items():
        settings = it["settings"]
        cells = [
            title,
            f"{it['rows']}, {it['questions']}",
            f"{settings[DEFAULT]['recall']:.3f}",
            shown(settings[CHOSEN]),
            f"{it['recall']:.3f}",
            f"{1e3 * median(run['cpu_s'] for run in it['runs'][CHOSEN]):.2f}",
            f"{spread(_over(it, SWEEP))} ({shown(settings[SWEEP])})",
            f"{settings[CHOSEN]['cost'] / settings[SWEEP]['cost']:.2f}",
            spread(_over(it, DEFAULT)),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, ""]
