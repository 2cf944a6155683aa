"""Counts the instructions for 1,000 random values of one integer column, with callgrind.

Servers are filled while counting is off, and counting is on while the queries run. The client and the peers run twice,
with few and with many queries. Only the difference counts, so that start-up does not. What servers do while they are
idle, such as looking for new versions once a second, is counted for as long as the queries took, and subtracted: under
callgrind a query takes some fifty times longer, and so would have fifty times its part of this work. All threads of all
processes count: both tiers and the client, or the one process of a peer. callgrind does not support AVX-512, so code
that chooses its instructions at run time uses AVX2 here.
"""

import re
import subprocess
import sys
import time
from pathlib import Path

from .bireme import Bireme, Node
from .profile import Profile
from .figures import rounded

COLUMN = "l_partkey"
VALUES = 1_000
FEW, MANY = 10, 60
# Two cores for an hour on demand: AWS c7i.large, us-east-1, list price of 2025.
CORE_HOUR_DOLLARS = 0.08925 / 2
# Approximate speed of one core for this code.
INSTRUCTIONS_PER_SECOND = 4.0e9

CALLGRIND = ["valgrind", "--tool=callgrind"]
# The counts are in the log; the file with those of each function is not needed.
ONLY_TOTAL = [*CALLGRIND, "--callgrind-out-file=/dev/null"]
COLLECTED = re.compile(r"Collected : (\d+)")


def measure(profile: Profile, binary: Path, logs: Path) -> dict:
    """Returns the instructions per query of each system, and the price of a million queries."""
    print("counting instructions", flush=True)
    found = {
        "bireme": _bireme(profile, binary, logs),
        "lance": {"all": _peer([profile.table("lineitem"), "take"])},
        "parquet": {"all": _peer([profile.parquet("lineitem"), "scan", "--parquet"], few=1, many=4)},
    }
    for parts in found.values():
        parts["sum"] = sum(parts.values())
        core_hours = parts["sum"] * 1e6 / INSTRUCTIONS_PER_SECOND / 3600
        parts["dollars_per_million"] = core_hours * CORE_HOUR_DOLLARS
    return {
        "column": COLUMN,
        "values": VALUES,
        "instructions_per_query": found,
        "core_hour_dollars": CORE_HOUR_DOLLARS,
        "instructions_per_second": INSTRUCTIONS_PER_SECOND,
    }


def _bireme(profile: Profile, binary: Path, logs: Path) -> dict:
    # The slab is in memory, where reads are plain system calls: valgrind does not support all of io_uring.
    profile.memory_folder.mkdir(parents=True, exist_ok=True)
    slab = profile.memory_folder / "slab-lineitem"
    try:
        wrapper = [*CALLGRIND, "--instr-atstart=no", f"--callgrind-out-file={logs}/callgrind.%p"]
        with Bireme(binary, logs, profile.folder, wrapper=wrapper) as bireme:
            io = bireme.io_node([slab], 2)
            query = bireme.query_node(io, {"lineitem": profile.table("lineitem")})
            bireme.ready(query, ["lineitem"])
            bireme.warm(query, "lineitem", [COLUMN])
            nodes = {"io_node": io, "query_node": query}
            for node in nodes.values():
                _control(node, "--instr=on")
            started = time.monotonic()
            few, many = _client(binary, query, FEW), _client(binary, query, MANY)
            took = time.monotonic() - started
            busy = {name: _dumped(node, logs, 1) for name, node in nodes.items()}
            time.sleep(took)
            idle = {name: _dumped(node, logs, 2) for name, node in nodes.items()}
    finally:
        slab.unlink(missing_ok=True)
    of_nodes = {name: (busy[name] - idle[name]) / (FEW + MANY) for name in nodes}
    return {"client": (many - few) / (MANY - FEW)} | of_nodes


def _control(node: Node, action: str) -> None:
    subprocess.run(["callgrind_control", action, str(node.process.pid)], check=True, capture_output=True)


def _dumped(node: Node, logs: Path, number: int) -> int:
    """Makes a node's callgrind write its dump of this number. Returns the instructions since the one before."""
    _control(node, "--dump")
    # "totals:" and a count for each kind of event; only instructions are counted.
    dump = (logs / f"callgrind.{node.process.pid}.{number}").read_text()
    [line] = [line for line in dump.splitlines() if line.startswith("totals:")]
    return int(line.split()[1])


def _client(binary: Path, query: Node, requests: int) -> int:
    command = [binary, "bench", "take", "lineitem", "--rows", str(VALUES), "--columns", COLUMN]
    command += ["--requests", str(requests), "--seconds", "600", "--concurrency", "1", "--endpoint", query.endpoint]
    done = subprocess.run([*ONLY_TOTAL, *command], check=True, capture_output=True, text=True)
    return _collected(done.stderr)


def _peer(arguments: list[str], few: int = FEW, many: int = MANY) -> float:
    def run(requests: int) -> int:
        command = [sys.executable, "-m", "bench.peer", *arguments, "--columns", COLUMN]
        command += [f"--batch={VALUES}", "--threads=1", f"--requests={requests}"]
        done = subprocess.run([*ONLY_TOTAL, *command], check=True, capture_output=True, text=True)
        return _collected(done.stderr)

    return (run(many) - run(few)) / (many - few)


def _collected(text: str) -> int:
    return int(COLLECTED.findall(text)[-1])


def section(found: dict) -> list[str]:
    """Returns the lines of the report's section."""
    lines = [
        f"## Instructions for {found['values']:,} random values of `{found['column']}` of TPC-H's lineitem",
        "",
        "Counted by callgrind, all processes together. Dollars are the price of the CPU for a million such queries at "
        f"{found['core_hour_dollars']:.4f} per core-hour and {found['instructions_per_second']:.1e} instructions per second.",
        "",
        "| | instructions per query | of these | $ per million queries |",
        "|---|---|---|---|",
    ]
    for name, parts in found["instructions_per_query"].items():
        processes = ", ".join(f"{key} {rounded(value)}" for key, value in parts.items() if key not in ("sum", "all", "dollars_per_million"))
        lines.append(f"| {name} | {rounded(parts['sum'])} | {processes} | {parts['dollars_per_million']:.2f} |")
    return [*lines, ""]
