"""Measures searches by LanceDB's client through Bireme and by the same client on the local table, what plain HTTP costs a
query node compared with gRPC, and hybrid searches beside LanceDB's."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from statistics import median

from . import machine, memory
from .bireme import Bireme
from .profile import Profile
from .tier import Tier
from .figures import rounded

TABLE, HYBRID = "vectors", "documents"
OF_LANCEDB, OF_BIREME = "hybrid, LanceDB's client, local table", "hybrid, gRPC"
CLIENTS = Path(__file__).parent.parent / "lancedb_clients"


def measure(profile: Profile, binary: Path, logs: Path, python: Path) -> dict:
    """Measures each way in each round, in turn. `python` has LanceDB's client."""
    runs: dict[str, list[dict]] = {}
    with memory.folder(profile) as folder, Bireme(binary, logs, profile.folder) as bireme:
        # The local table is in the page cache, so the I/O node may keep rows in memory too.
        tier = Tier.start(bireme, profile, [TABLE, HYBRID], [folder / "slab-0"], profile.ram_tier_gib)
        bireme.warm(tier.query, TABLE, ["vector", "id"])
        bireme.warm(tier.query, HYBRID)
        tier.fill_ram(TABLE, "--columns", "vector", "--rerank", "50")
        for number in range(profile.rounds):
            ways: dict[str, Callable[[], dict]] = {
                "LanceDB's client, local table": lambda: _load(tier, profile, python, "local"),
                "LanceDB's client, Bireme": lambda: _load(tier, profile, python, "remote"),
                "plain HTTP": lambda: _load(tier, profile, python, "http"),
                "gRPC": lambda: _grpc(tier, profile, TABLE, ["-k=50", "--seed", str(number)]),
                OF_LANCEDB: lambda: _load(tier, profile, python, "hybrid", HYBRID),
                OF_BIREME: lambda: _grpc(tier, profile, HYBRID, ["--by", "hybrid", "-k=10", "--seed", str(number)]),
            }
            for name in list(ways)[:: -1 if number % 2 else 1]:
                runs.setdefault(name, []).append(ways[name]())
            done = ", ".join(f"{name}: {run[-1]['p50_us']:,.0f} µs, {1e3 * run[-1]['cpu_s']:.2f} ms" for name, run in runs.items())
            print(f"clients, round {number + 1} of {profile.rounds}, p50 and CPU of all processes: {done}", flush=True)
        exact = _load(tier, profile, python, "exact")["found"]
        hybrid = runs[OF_LANCEDB][0]
        same = _recall([_hybrid(tier, logs, *question) for question in hybrid["asked"]], hybrid["found"])
    ways = [name for name, run in runs.items() if "found" in run[0] and name != OF_LANCEDB]
    recall = {name: _recall(runs[name][0]["found"], exact) for name in ways} | {OF_BIREME: same}
    for run in (run for of_way in runs.values() for run in of_way):
        run.pop("found", None)
        run.pop("asked", None)
    return {"runs": runs, "recall": recall, "machine": machine.describe([profile.folder])}


def _recall(found: list[list[int]], exact: list[list[int]]) -> float:
    """Returns the mean share of the nearest rows that were found, of the questions that both have answers to."""
    shares = [len(set(a) & set(b)) / len(b) for a, b in zip(found, exact, strict=False)]
    return sum(shares) / len(shares)


def _hybrid(tier: Tier, logs: Path, vector: list[float], text: str) -> list[int]:
    """Returns the ids of the best rows by vector and words, found by Bireme."""
    file = logs / "vector.json"
    file.write_text(json.dumps(vector))
    rows = tier.bireme.run(tier.query, "search", HYBRID, "--vector", str(file), "--text", text, "--columns", "id")
    return [row["id"] for row in rows]


def _load(tier: Tier, profile: Profile, python: Path, way: str, name: str = TABLE) -> dict:
    table = Path(profile.table(name))
    place = str(table.parent) if way in ("local", "exact", "hybrid") else f"http://{tier.query.endpoint.removeprefix('http://')}"
    command = [python, CLIENTS / "load.py", way, place, table, str(profile.seconds)]
    nodes_us = lambda: (tier.io.cpu_us(), tier.query.cpu_us())
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as load:
        load.stdout.readline()
        before = nodes_us()
        report = json.loads(load.stdout.readline())
        after = nodes_us()
    if load.returncode != 0:
        raise subprocess.CalledProcessError(load.returncode, command)
    nodes = [(b - a) / 1e6 / report["requests"] for a, b in zip(before, after, strict=True)]
    return report | {
        "cpu_s": report["cpu_s"] / report["requests"] + sum(nodes),
        "query_cpu_s": nodes[1],
        "client_cpu_s": report["cpu_s"] / report["requests"],
    }


def _grpc(tier: Tier, profile: Profile, table: str, arguments: list[str]) -> dict:
    load = ["--nprobes=20", "--refine=10", "--columns", "id", "--concurrency", "1", *arguments]
    report = tier.bench("search", table, profile.seconds, *load)
    cpu = {name: us / 1e6 / report["requests"] for name, us in report["cpu"].items()}
    return {
        "requests": report["requests"],
        "p50_us": report["latency_us"]["p50"],
        "cpu_s": sum(cpu.values()),
        "query_cpu_s": cpu["query_cpu_us"],
        "client_cpu_s": cpu["client_cpu_us"],
    }


def goals(found: dict) -> list[tuple[str, float, float, bool]]:
    """Returns each goal's name, its value, the wanted value, and whether more is better."""
    runs = found["runs"]
    of = lambda name, field: median(run[field] for run in runs[name])
    ratio = of("LanceDB's client, local table", "cpu_s") / of("LanceDB's client, Bireme", "cpu_s")
    http = 1e3 * (of("plain HTTP", "query_cpu_s") - of("gRPC", "query_cpu_s"))
    hybrid = of(OF_LANCEDB, "cpu_s") / of(OF_BIREME, "cpu_s")
    return [
        ("hybrid searches per core-second, over those of LanceDB's client of the local table", hybrid, 5.0, True),
        ("searches by LanceDB's client through Bireme per core-second, over its own of the local table", ratio, 5.0, True),
        ("ms of a query node's CPU that plain HTTP adds to a search over gRPC", http, 0.2, False),
    ]


def section(found: dict) -> list[str]:
    """Returns the lines of the report's section."""
    lines = ["## LanceDB's client, and plain HTTP", ""]
    lines += [
        "Searches by vector (k 50, nprobes 20, refine 10) of one column, one after the other. The local table is in the page cache,",
        "and Bireme's vectors are in the RAM tier. Each client has asked all of its 1,000 questions once before. LanceDB's client",
        "and that of plain HTTP are Python; that of gRPC is `bireme bench search` with other questions, so only the CPU of the",
        "query node compares plain HTTP with gRPC. Recall is against exact neighbours of 30 questions. Hybrid searches are by",
        "vector and two words (k 10, reciprocal rank fusion); Bireme's recall is the share of LanceDB's rows, of 50 questions.",
        "",
        "| | p50, µs | CPU a search, ms: all processes | client | query node | recall |",
        "|---|---|---|---|---|---|",
    ]
    for name, runs in found["runs"].items():
        of = lambda field, runs=runs: median(run[field] for run in runs)
        node = "–" if name.endswith("local table") else f"{1e3 * of('query_cpu_s'):.2f}"
        recall = f"{found['recall'][name]:.3f}" if name in found["recall"] else "–"
        cpu = [f"{1e3 * of(field):.2f}" for field in ("cpu_s", "client_cpu_s")]
        lines.append(f"| {name} | {rounded(of('p50_us'))} | {' | '.join(cpu)} | {node} | {recall} |")
    return [*lines, ""]
