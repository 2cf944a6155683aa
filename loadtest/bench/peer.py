"""The process that applies load to a peer: `python -m bench.peer URI MODE ...`, one JSON object on stdout.

Metadata is warm: before the clock starts, one request is made, and with --warm-up a load runs for a while. Tables stay
open between requests, and several threads send requests. The CPU time is that of this process.
"""

import argparse
import json
import re
import resource
import threading
import time
from collections.abc import Iterable

import numpy as np

NOISE = 0.1
# Gets draw from this many keys, as in `bireme bench get`.
KEYS = 200_000


class Lance:
    """Requests to pylance."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        import lance

        self.arguments = arguments
        self.table = lance.dataset(arguments.uri, version=arguments.table_version)
        self.rows = self.table.count_rows()
        if arguments.mode == "search":
            count = min(arguments.questions, self.rows)
            rows = [number * self.rows // count for number in range(count)]
            picked = self.table.take(rows, columns=["vector"])
            vectors = picked["vector"].combine_chunks()
            values = vectors.flatten().to_numpy().reshape(len(vectors), -1)
            rng = np.random.default_rng(1)
            self.queries = values + NOISE * values.std() * rng.uniform(-1, 1, values.shape).astype(np.float32)

        if arguments.mode == "words":
            rows = np.random.default_rng(arguments.seed).choice(self.rows, 1000, replace=False)
            texts = self.table.take(np.sort(rows).tolist(), columns=[arguments.text])[arguments.text].to_pylist()
            self.words = [words for text in texts if (words := re.findall(r"\w{4,}", text or ""))]

        if arguments.mode == "get":
            rows = np.random.default_rng(arguments.seed).choice(self.rows, min(KEYS, self.rows), replace=False)
            column = self.table.take(np.sort(rows).tolist(), columns=[arguments.key])
            self.keys = column[arguments.key].to_pylist()
            plan = self.table.scanner(filter=self._filter([0])).explain_plan()
            if "ScalarIndexQuery" not in plan:
                raise RuntimeError(f"column {arguments.key} has no index that gets use; the plan is: {' '.join(plan.split())}")

    def _filter(self, places: Iterable[int]) -> str:
        keys = [f"'{self.keys[at]}'" for at in places]
        return f"{self.arguments.key} = {keys[0]}" if len(keys) == 1 else f"{self.arguments.key} IN ({', '.join(keys)})"

    def request(self, number: int, rng: np.random.Generator) -> int:
        """Makes one request. Returns the number of rows received."""
        it = self.arguments
        if it.mode == "get":
            places = rng.choice(len(self.keys), it.keys, replace=False)
            return self.table.to_table(filter=self._filter(places), columns=it.columns).num_rows
        if it.mode == "take":
            rows = rng.choice(self.rows, it.batch, replace=False).tolist()
            return self.table.take(rows, columns=it.columns).num_rows
        if it.mode == "filter":
            return self.table.to_table(filter=it.filter, limit=it.k, columns=it.columns, with_row_id=True).num_rows
        if it.mode == "words":
            words = self.words[rng.integers(len(self.words))]
            query = {"query": f"{rng.choice(words)} {rng.choice(words)}", "columns": [it.text]}
            filtered = {"filter": it.filter, "prefilter": True} if it.filter else {}
            found = self.table.to_table(full_text_query=query, limit=it.k, columns=it.columns, with_row_id=True, **filtered)
            return found.num_rows
        nearest = {
            "column": "vector",
            "q": self.queries[number % len(self.queries)],
            "k": it.k,
            "nprobes": it.nprobes,
        }
        if it.refine:
            nearest["refine_factor"] = it.refine
        filtered = {"filter": it.filter, "prefilter": True} if it.filter else {}
        return self.table.to_table(nearest=nearest, columns=["_distance"], with_row_id=True, **filtered).num_rows


class Parquet:
    """Requests to pyarrow on the table's rows as Parquet."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        import pyarrow.dataset

        self.arguments = arguments
        self.table = pyarrow.dataset.dataset(arguments.uri)
        self.rows = self.table.count_rows()

    def request(self, _: int, rng: np.random.Generator) -> int:
        """Takes rows, or scans the columns and picks rows. Returns the number of rows."""
        rows = np.sort(rng.choice(self.rows, self.arguments.batch, replace=False))
        if self.arguments.mode == "scan":
            return self.table.to_table(columns=self.arguments.columns, use_threads=False).take(rows).num_rows
        return self.table.take(rows, columns=self.arguments.columns).num_rows


def main() -> None:
    """Runs the load and prints the results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("uri")
    parser.add_argument("mode", choices=["take", "scan", "search", "words", "filter", "get"])
    parser.add_argument("--table-version", type=int, help="the table's version [default: the latest]")
    parser.add_argument("--parquet", action="store_true")
    parser.add_argument("--batch", type=int, default=500)
    parser.add_argument("--columns", type=lambda text: text.split(","))
    parser.add_argument("--key", help="the text column that gets use as key")
    parser.add_argument("--keys", type=int, default=1, help="keys in one get")
    parser.add_argument("-k", type=int, default=50)
    parser.add_argument("--nprobes", type=int, default=20)
    parser.add_argument("--refine", type=int, default=10)
    parser.add_argument("--text", help="the column of texts that a search of words searches")
    parser.add_argument("--filter", help="a SQL expression that the rows of a search must satisfy")
    parser.add_argument("--questions", type=int, default=200, help="number of different searches")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--warm-up", type=float, default=0.0, help="seconds of the same load before the clock starts")
    parser.add_argument("--requests", type=int, help="number of requests; replaces --seconds")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    peer = (Parquet if arguments.parquet else Lance)(arguments)
    peer.request(0, np.random.default_rng(arguments.seed))
    if arguments.warm_up:
        _load(peer, arguments, arguments.warm_up, None)
    before = resource.getrusage(resource.RUSAGE_SELF)
    began = time.perf_counter()
    latencies, rows = _load(peer, arguments, arguments.seconds, arguments.requests)
    seconds = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    all_us = np.array(latencies) * 1e6
    requests = len(all_us)
    print(
        json.dumps(
            {
                "requests": requests,
                "rows": rows,
                "seconds": seconds,
                "requests_per_s": requests / seconds,
                "rows_per_s": rows / seconds,
                "cpu_s": cpu,
                "requests_per_core_s": requests / cpu if cpu else None,
                "rows_per_core_s": rows / cpu if cpu else None,
                "p50_us": float(np.percentile(all_us, 50)) if requests else None,
                "p99_us": float(np.percentile(all_us, 99)) if requests else None,
            }
        )
    )


def _load(
    peer: Lance | Parquet, arguments: argparse.Namespace, span: float, requests: int | None
) -> tuple[list[float], int]:
    """Makes `requests` requests, or as many as fit into `span` seconds. Returns the seconds that each took, and the
    number of rows of all."""
    latencies: list[list[float]] = [[] for _ in range(arguments.threads)]
    rows = [0] * arguments.threads
    end = time.perf_counter() + span

    def work(thread: int) -> None:
        rng = np.random.default_rng([arguments.seed, thread])
        number = thread
        while True:
            at = time.perf_counter()
            if number >= requests if requests is not None else at >= end:
                return
            rows[thread] += peer.request(number, rng)
            latencies[thread].append(time.perf_counter() - at)
            number += arguments.threads

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(arguments.threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [latency for part in latencies for latency in part], sum(rows)


if __name__ == "__main__":
    main()
