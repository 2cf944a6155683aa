"""Reads rows by `bireme take` during a load, and compares them with their expected values."""

import json
import random
import subprocess
import threading

from . import table
from .nodes import TIMEOUT_SECONDS, Nodes

ROWS = 100
PAUSE_SECONDS = 0.2


class Audit:
    """`with Audit(nodes) as audit: …`; it counts the rows received, and those that were wrong or missing."""

    def __init__(self, nodes: Nodes, seed: int = 1, pause: float = PAUSE_SECONDS) -> None:
        self.nodes, self.random, self.pause = nodes, random.Random(seed), pause
        self.rows, self.wrong, self.failures = 0, 0, []

    def __enter__(self) -> "Audit":
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._audit, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()

    def _audit(self) -> None:
        while not self.over.wait(self.pause):
            for query in self.nodes.queries():
                self.once(query.name)

    def once(self, query: str) -> None:
        """Reads and compares some rows through one query node."""
        numbers = self.random.sample(range(table.ROWS), ROWS)
        words = ["take", table.NAME, *map(table.address, numbers), "--columns", "id,number,body,vector", "--json"]
        command = self.nodes.command(*words, query=query, timeout=TIMEOUT_SECONDS)
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            self.failures.append(done.stderr.strip())
            return
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        self.rows += len(rows)
        self.wrong += abs(len(numbers) - len(rows))
        self.wrong += sum(not same(got, number) for got, number in zip(rows, numbers))


def same(got: dict, number: int) -> bool:
    """Returns whether `got` is the row with that number."""
    expected = table.row(number)
    near = all(abs(a - b) < 1e-5 for a, b in zip(got["vector"], expected["vector"], strict=True))
    return near and all(got[name] == expected[name] for name in ["id", "number", "body"])
