"""What the command line answers of nodes."""

import json
import subprocess
import time
from collections.abc import Callable

from .fault import Failed


def answers(command: list[str], accept: tuple[int, ...] = (0,)) -> list[dict]:
    """What it answers with --json, one or many; raises what it says of a failure."""
    done = subprocess.run([*command, "--json"], capture_output=True, text=True)
    # Who accepts a failure counts on an answer all the same.
    if done.returncode not in accept or (done.returncode and not done.stdout):
        raise Failed(done.stderr.strip() or f"exit code {done.returncode}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def serving(nodes: list[dict]) -> list[dict]:
    """Those I/O nodes of a query node's status that serve with their whole share."""
    return [it for it in nodes if it["reachable"] and it["state"] == "ready" and it["share"] == it["weight"]]


def settled(name: str, status: Callable[[], dict], io: int, patience: float) -> None:
    """Waits until a query node has just so many I/O nodes, all of them ready with their whole share."""
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
            raise Failed(f"{name} does not find {io} I/O nodes: {problem}")
        time.sleep(0.1)
