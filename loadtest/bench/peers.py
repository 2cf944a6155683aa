"""Runs peers as processes; see `python -m bench.peer --help`."""

import json
import os
import subprocess
import sys


def run(uri: str, mode: str, seconds: float, *arguments: str) -> dict:
    """Applies load to a peer. Returns its results, or, if it failed, the reason under `error`."""
    command = [sys.executable, "-m", "bench.peer", uri, mode, f"--seconds={seconds}", *arguments]
    # Lance warns on each query that future versions will return other columns.
    quiet = os.environ | {"LANCE_LOG": "error"}
    done = subprocess.run(command, capture_output=True, text=True, env=quiet)
    described = {"command": " ".join(command[2:])}
    if done.returncode:
        return described | {"error": done.stderr.strip().splitlines()[-1]}
    return json.loads(done.stdout) | described
