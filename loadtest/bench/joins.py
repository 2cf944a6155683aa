"""Measures how fast all keys of a table, in random order, get their rows: `bireme lookup`, and the hash joins of DuckDB
and Polars of the same Parquet files. Each reads the keys from a Parquet file and writes the rows to another.

Run as `python -m bench.joins ENGINE KEYS ROWS OUTPUT`, it makes one join."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow.parquet as pq

from .bireme import Node
from .profile import Profile
from .tier import Tier

TITLES = {"bireme": "`bireme lookup`", "duckdb": "DuckDB's hash join", "polars": "Polars' hash join"}


def write_keys(profile: Profile, table: str, key: str, path: Path) -> None:
    """Writes every key of a table once, in random order."""
    keys = pq.read_table(profile.parquet(table), columns=[key])
    pq.write_table(keys.take(np.random.default_rng(4).permutation(len(keys))), path)


def run(tier: Tier, profile: Profile, table: str, keys: Path, output: Path) -> dict[str, Callable[[], dict]]:
    """Returns the loads by name."""
    bireme = tier.bireme
    lookup = [bireme.binary, "lookup", table, "--keys", keys, "--output", output, "--endpoint", tier.query.endpoint]
    join = lambda engine: [sys.executable, "-m", "bench.joins", engine, keys, profile.parquet(table), output]
    commands = {"bireme": lookup, "duckdb": join("duckdb"), "polars": join("polars")}
    nodes = lambda name: [tier.query, tier.io] if name == "bireme" else []
    return {name: lambda name=name, of=of: _measured(of, nodes(name), keys, output) for name, of in commands.items()}


def _measured(command: list, nodes: list[Node], keys: Path, output: Path) -> dict:
    """Runs a join. Its CPU and peak memory include those of the nodes, but not the slab."""
    for node in nodes:
        # Forgets the peak so far (proc_pid_clear_refs(5)).
        Path(f"/proc/{node.process.pid}/clear_refs").write_text("5")
    cpu_us = sum(node.cpu_us() for node in nodes)
    began = time.perf_counter()
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    said = process.stderr.read().decode()
    # `wait4` gives the usage of this process alone; `Popen` must not wait for it as well.
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - began
    described = " ".join(map(str, command[1:]))
    if process.returncode:
        raise RuntimeError(f"{described}: {said}")
    rows, wanted = (pq.ParquetFile(path).metadata.num_rows for path in (output, keys))
    if rows != wanted:
        raise RuntimeError(f"{described}: {rows} rows of {wanted}")
    output.unlink()
    cpu_s = usage.ru_utime + usage.ru_stime + (sum(node.cpu_us() for node in nodes) - cpu_us) / 1e6
    return {
        "command": described,
        "seconds": seconds,
        "keys_per_s": rows / seconds,
        "keys_per_core_s": rows / cpu_s,
        "peak_bytes": usage.ru_maxrss * 1024 + sum(node.memory_bytes("VmHWM", "status") for node in nodes),
    }


def section(runs: dict[str, list[dict]]) -> list[str]:
    """Returns the lines of the report about the joins."""
    lines = [
        "Every key of the table is looked up once, in random order. The keys are read from one Parquet file, and the rows are",
        "written to another. CPU and peak memory of Bireme include the command and both nodes with the RAM tier, which keeps a copy",
        "of the rows for each core, but not the slab in memory; those of the others are of one process, which reads the rows from",
        "a Parquet file.",
        "",
        "| | keys/s | spread | keys per core-second | peak memory, GiB |",
        "|---|---|---|---|---|",
    ]
    for name, title in TITLES.items():
        of = lambda field, name=name: [run[field] for run in runs[name]]
        rates, peak = of("keys_per_s"), median(of("peak_bytes")) / 2**30
        spread = f"{min(rates):,.0f} to {max(rates):,.0f}"
        lines.append(f"| {title} | {median(rates):,.0f} | {spread} | {median(of('keys_per_core_s')):,.0f} | {peak:.2f} |")
    return lines


def _join(engine: str, keys: str, rows: str, output: str) -> None:
    key = pq.ParquetFile(keys).schema_arrow.names[0]
    if engine == "duckdb":
        import duckdb

        join = f"SELECT * FROM '{keys}' AS asked LEFT JOIN '{rows}' AS there USING ({key})"
        duckdb.sql(f"COPY ({join}) TO '{output}' (FORMAT parquet)")
    else:
        import polars

        # The rows keep the order of the keys, as those of `bireme lookup` do.
        joined = polars.scan_parquet(keys).join(polars.scan_parquet(rows), on=key, how="left", maintain_order="left")
        joined.sink_parquet(output)


if __name__ == "__main__":
    _join(*sys.argv[1:])
