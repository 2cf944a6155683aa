"""Peers as processes of their own; see `python -m bench.peer --help`."""

import json
import os
import subprocess
import sys


def run(uri: str, mode: str, seconds: float, *arguments: str) -> dict:
    """Load on one for so long, measured; or why there was none, under `error`."""
    command = [sys.executable, "-m", "bench.peer", uri, mode, f"--seconds={seconds}", *arguments]
    # Lance warns of each query that it will return other columns in future.
    quiet = os.environ | {"LANCE_LOG": "error"}
    done = subprocess.run(command, capture_output=True, text=True, env=quiet)
    told = {"command": " ".join(command[2:])}
    if done.returncode:
        return told | {"error": done.stderr.strip().splitlines()[-1]}
    return json.loads(done.stdout) | told
