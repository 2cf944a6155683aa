"""Measures the latency and CPU that the Python client adds to the Rust client's, and the rows that it takes and looks
up per second.

Both clients ask the same nodes in turn, one request after the other on one connection. The Rust client is that of
`bireme bench`, with one thread. Usage, with a release binary in BIREME_BINARY and the wheel installed:

    python overhead.py words.lance --seconds 3 --rounds 5
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import time
from collections.abc import Callable
from statistics import median
from typing import NamedTuple

import numpy as np

import bireme

#: Row addresses or keys in a request for many rows.
MANY = 100_000


class Cost(NamedTuple):
    """What a request costs the client's process, in microseconds."""

    #: The median latency, which includes the nodes' work.
    latency: float
    #: The client's CPU.
    cpu: float


def rust(endpoint: str, seconds: float, *arguments: str) -> Cost:
    """Returns the cost of a request for the Rust client."""
    command = [os.environ["BIREME_BINARY"], "bench", *arguments, "--endpoint", endpoint, "--json"]
    command += ["--seconds", str(seconds), "--concurrency", "1", "--connections", "1", "--threads", "1"]
    report = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    cpu = report["client_cpu_us_per_row"] * report["rows"] / report["requests"]
    return Cost(report["latency_us"]["p50"], cpu)


def sync(seconds: float, request: Callable[[int], object]) -> Cost:
    """Returns the cost of a request."""
    took = []
    end, cpu = time.perf_counter() + seconds, time.process_time()
    while (began := time.perf_counter()) < end:
        request(len(took))
        took.append(time.perf_counter() - began)
    return Cost(median(took) * 1e6, (time.process_time() - cpu) / len(took) * 1e6)


def awaited(endpoint: str, seconds: float, make: Callable[[bireme.AsyncTable], Callable[[int], object]]) -> Cost:
    """Returns the cost of an awaited request."""

    async def measure() -> Cost:
        db = await bireme.connect_async(endpoint)
        request = make(db.table("words"))
        took = []
        end, cpu = time.perf_counter() + seconds, time.process_time()
        while (began := time.perf_counter()) < end:
            await request(len(took))
            took.append(time.perf_counter() - began)
        return Cost(median(took) * 1e6, (time.process_time() - cpu) / len(took) * 1e6)

    return asyncio.run(measure())


def rate(rows: int, request: Callable[[], object]) -> float:
    """Returns the rows per second of the best of five requests."""
    took = []
    for _ in range(5):
        began = time.perf_counter()
        request()
        took.append(time.perf_counter() - began)
    return rows / min(took)


def spread(values: list[float]) -> str:
    return f"{median(values):.0f} ({min(values):.0f} to {max(values):.0f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", help="a table of WordNet, as the README's first steps make it")
    parser.add_argument("--seconds", type=float, default=3, help="the time of each measurement")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    seconds = arguments.seconds
    with bireme.serve({"words": arguments.table}) as db:
        words, at = db.table("words"), db.endpoint
        words.warm(progress=False)
        table = words.take(np.arange(words.describe().rows), columns=["synset", "vector"])
        draw = np.random.default_rng(1).integers(table.num_rows, size=MANY)
        keys = table["synset"].take(draw).to_pylist()
        vectors = [np.array(table["vector"][int(it)].as_py(), np.float32) for it in draw[:2000]]
        words.exists(keys)  # builds the key index

        def key(number: int) -> str:
            return keys[number % MANY]

        def vector(number: int) -> np.ndarray:
            return vectors[number % len(vectors)]

        measurements: dict[str, list[tuple[str, Callable[[], Cost]]]] = {
            "get": [
                ("Rust client", lambda: rust(at, seconds, "get", "words")),
                ("get([key]), a table", lambda: sync(seconds, lambda it: words.get([key(it)]))),
                ("get(key), a dictionary", lambda: sync(seconds, lambda it: words.get(key(it)))),
                ("await get([key])", lambda: awaited(at, seconds, lambda t: lambda it: t.get([key(it)]))),
                ("await get(key)", lambda: awaited(at, seconds, lambda t: lambda it: t.get(key(it)))),
            ],
            "search, k 10": [
                ("Rust client", lambda: rust(at, seconds, "search", "words", "-k", "10")),
                ("search(v).to_arrow()", lambda: sync(seconds, lambda it: words.search(vector(it)).to_arrow())),
                (
                    "await search(v).to_arrow()",
                    lambda: awaited(at, seconds, lambda t: lambda it: t.search(vector(it)).to_arrow()),
                ),
            ],
        }
        print("| request | client | p50, µs | more | CPU, µs | more |\n|---|---|---:|---:|---:|---:|")
        for request, clients in measurements.items():
            rounds = [[measure() for _, measure in clients] for _ in range(arguments.rounds)]
            for number, (client, _) in enumerate(clients):
                cells = [request, client]
                for part in (0, 1):
                    cells.append(spread([costs[number][part] for costs in rounds]))
                    added = [costs[number][part] - costs[0][part] for costs in rounds]
                    cells.append(spread(added) if number else "")
                print(f"| {' | '.join(cells)} |")
        print(f"\n| {MANY} rows | rows/s |\n|---|---:|")
        columns = ["words", "pos", "domain", "gloss"]
        for name, ask in [
            ("take, 4 columns", lambda: words.take(draw, columns=columns)),
            ("take, vectors", lambda: words.take(draw, columns=["vector"])),
            ("lookup, 4 columns", lambda: words.lookup(keys, columns=columns)),
            ("lookup, 1 column", lambda: words.lookup(keys, columns=["domain"])),
            ("exists", lambda: words.exists(keys)),
        ]:
            print(f"| {name} | {rate(MANY, ask):,.0f} |")


if __name__ == "__main__":
    main()
