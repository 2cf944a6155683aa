"""Searches by vector with LanceDB's client, or with plain HTTP, one after the other, and prints what they took as JSON.

usage: python load.py local|remote|http|exact PLACE TABLE SECONDS

PLACE is the folder that has the table's folder, or the URL of a query node. CPU is that of this process.
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

K, NPROBES, REFINE = 50, 20, 10
QUESTIONS = 1000
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


def of_http(connection: http.client.HTTPConnection, name: str, vector: list[float]) -> list[int]:
    """Returns the ids of the nearest rows, found by a request on a connection that stays open."""
    body = {"vector": vector, "k": K, "nprobes": NPROBES, "refine_factor": REFINE, "columns": ["id"]}
    connection.request("POST", f"/v1/table/{name}/query/", json.dumps(body), {"content-type": "application/json"})
    answer = connection.getresponse().read()
    return pa.ipc.open_file(pa.py_buffer(answer)).read_all()["id"].to_pylist()


def main() -> None:
    """See above."""
    parser = argparse.ArgumentParser()
    parser.add_argument("way", choices=["local", "remote", "http", "exact"])
    parser.add_argument("place")
    parser.add_argument("table", type=Path)
    parser.add_argument("seconds", type=float)
    it = parser.parse_args()
    vectors, name = questions(it.table), it.table.stem
    if it.way == "http":
        connection = http.client.HTTPConnection(urlsplit(it.place).netloc)
        ask = lambda vector: of_http(connection, name, vector)
    else:
        remote = {"api_key": "any", "host_override": it.place}
        db = lancedb.connect("db://default", **remote) if it.way == "remote" else lancedb.connect(it.place)
        table = db.open_table(name)
        ask = lambda vector: of_client(table, vector)
    if it.way == "exact":
        exact = lambda vector: table.search(vector).bypass_vector_index().limit(K).select(["id"]).to_arrow()
        print(json.dumps({"requests": 1, "cpu_s": 0, "p50_us": 0, "found": [exact(it)["id"].to_pylist() for it in vectors[:30]]}))
        return
    found = [ask(vector) for vector in vectors[:100]]
    usage, began, times = resource.getrusage(resource.RUSAGE_SELF), time.monotonic(), []
    while time.monotonic() - began < it.seconds:
        asked = time.monotonic()
        ask(vectors[len(times) % QUESTIONS])
        times.append(time.monotonic() - asked)
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - usage.ru_utime - usage.ru_stime
    p50 = sorted(times)[len(times) // 2]
    print(json.dumps({"requests": len(times), "cpu_s": cpu, "p50_us": p50 * 1e6, "found": found}))


main()
