"""Searches by vector with LanceDB's client, or with plain HTTP, or by vector and two words (hybrid) with LanceDB's client
on the local table, one after the other, and prints what they took as JSON.

usage: python load.py local|remote|http|exact|hybrid PLACE TABLE SECONDS

PLACE is the folder that has the table's folder, or the URL of a query node. Each question is asked once before the first
one that counts; then the line "warm" is printed. CPU is that of this process.
"""

import argparse
import http.client
import json
import resource
import time
from pathlib import Path
from urllib.parse import urlsplit

import lancedb
import numpy as np
import pyarrow as pa
from lancedb.rerankers import RRFReranker

K, NPROBES, REFINE = 50, 20, 10
HYBRID_K = 10
QUESTIONS = 1000
# The questions of hybrid searches that are printed with their answers, for a comparison with Bireme's.
COMPARED = 50
NOISE = 0.1


def questions(table: Path) -> list[list[float]]:
    """Returns vectors of rows with noise, the same in each process."""
    local = lancedb.connect(table.parent).open_table(table.stem)
    rows = local.count_rows()
    picked = local.take_offsets([at * rows // QUESTIONS for at in range(QUESTIONS)]).select(["vector"]).to_arrow()
    values = picked["vector"].combine_chunks().flatten().to_numpy().reshape(QUESTIONS, -1)
    noise = np.random.default_rng(1).uniform(-1, 1, values.shape).astype(np.float32)
    return (values + NOISE * values.std() * noise).tolist()


def of_client(table: object, vector: list[float]) -> list[int]:
    """Returns the ids of the nearest rows, found by LanceDB's client."""
    search = table.search(vector).nprobes(NPROBES).refine_factor(REFINE).limit(K).select(["id"])
    return search.to_arrow()["id"].to_pylist()


def texts(table: Path) -> list[str]:
    """Returns the first two words of the titles of some rows, other rows than those of `questions`."""
    local = lancedb.connect(table.parent).open_table(table.stem)
    rows = local.count_rows()
    picked = local.take_offsets([(at * rows + rows // 2) // QUESTIONS for at in range(QUESTIONS)]).select(["title"]).to_arrow()
    return [" ".join(title.split()[:2]) for title in picked["title"].to_pylist()]


def of_hybrid(table: object, vector: list[float], text: str) -> list[int]:
    """Returns the ids of the best rows by vector and words, found by LanceDB's client, which fuses their ranks."""
    search = table.search(query_type="hybrid").vector(vector).text(text).nprobes(NPROBES).refine_factor(REFINE)
    return search.limit(HYBRID_K).select(["id"]).rerank(RRFReranker()).to_arrow()["id"].to_pylist()


def of_http(connection: http.client.HTTPConnection, name: str, vector: list[float]) -> list[int]:
    """Returns the ids of the nearest rows, found by a request on a connection that stays open."""
    body = {"vector": vector, "k": K, "nprobes": NPROBES, "refine_factor": REFINE, "columns": ["id"]}
    connection.request("POST", f"/v1/table/{name}/query/", json.dumps(body), {"content-type": "application/json"})
    answer = connection.getresponse().read()
    return pa.ipc.open_file(pa.py_buffer(answer)).read_all()["id"].to_pylist()


def main() -> None:
    """See above."""
    parser = argparse.ArgumentParser()
    parser.add_argument("way", choices=["local", "remote", "http", "exact", "hybrid"])
    parser.add_argument("place")
    parser.add_argument("table", type=Path)
    parser.add_argument("seconds", type=float)
    it = parser.parse_args()
    asked = vectors = questions(it.table)
    name = it.table.stem
    if it.way == "http":
        connection = http.client.HTTPConnection(urlsplit(it.place).netloc)
        ask = lambda vector: of_http(connection, name, vector)
    else:
        remote = {"api_key": "any", "host_override": it.place}
        db = lancedb.connect("db://default", **remote) if it.way == "remote" else lancedb.connect(it.place)
        table = db.open_table(name)
        ask = lambda vector: of_client(table, vector)
    if it.way == "hybrid":
        asked = list(zip(vectors, texts(it.table), strict=True))
        ask = lambda question: of_hybrid(table, *question)
    if it.way == "exact":
        exact = lambda vector: table.search(vector).bypass_vector_index().limit(K).select(["id"]).to_arrow()
        print("warm")
        print(json.dumps({"requests": 1, "cpu_s": 0, "p50_us": 0, "found": [exact(it)["id"].to_pylist() for it in vectors[:30]]}))
        return
    # Once, not timed, so that whoever answers has what the questions need in memory.
    found = [ask(question) for question in asked]
    print("warm", flush=True)
    usage, began, times = resource.getrusage(resource.RUSAGE_SELF), time.monotonic(), []
    while time.monotonic() - began < it.seconds:
        start = time.monotonic()
        ask(asked[len(times) % QUESTIONS])
        times.append(time.monotonic() - start)
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - usage.ru_utime - usage.ru_stime
    p50 = sorted(times)[len(times) // 2]
    report = {"requests": len(times), "cpu_s": cpu, "p50_us": p50 * 1e6, "found": found}
    print(json.dumps(report | {"asked": asked[:COMPARED] if it.way == "hybrid" else []}))


main()
