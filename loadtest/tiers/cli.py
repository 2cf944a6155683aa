"""Runs the `bireme` command and reads its answers."""

import json
import subprocess
import time
from collections.abc import Callable

from .fault import Failed


def answers(command: list[str], accept: tuple[int, ...] = (0,)) -> list[dict]:
    """Runs the command with --json and returns its JSON values. Raises `Failed` with its error message."""
    done = subprocess.run([*command, "--json"], capture_output=True, text=True)
    # A caller that accepts an exit code other than 0 still needs an answer.
    if done.returncode not in accept or (done.returncode and not done.stdout):
        raise Failed(done.stderr.strip() or f"exit code {done.returncode}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def serving(nodes: list[dict]) -> list[dict]:
    """Returns the I/O nodes of a query node's status that are ready and have their whole share."""
    return [it for it in nodes if it["reachable"] and it["state"] == "ready" and it["share"] == it["weight"]]


def settled(name: str, status: Callable[[], dict], io: int, patience: float) -> None:
    """Waits until a query node has exactly `io` I/O nodes, all of them ready with their whole share."""
    until = time.monotonic() + patience
    while True:
        try:
            nodes = status()["io_nodes"]
            if len(serving(nodes)) == io == len(nodes):
                return
            problem = str(nodes)
        except Failed as failed:
            problem = str(failed)
        if time.monotonic() > until:
            raise Failed(f"{name} has not found {io} ready I/O nodes after {patience:g} s: {problem}")
        time.sleep(0.1)
