"""Measures searches by vector of tables that have changed since their index was built, or are of another kind, beside
plain searches of the same rows, in memory: after appends and deletions, over several index segments, and with stable row
ids."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import lance
import pyarrow as pa

from . import machine, memory, recall, tables
from .bireme import Bireme
from .figures import spread
from .profile import Profile
from .searches import QUESTION, WARM_UP_SECONDS, pylance, relative, search
from .tier import Tier

# Each variant but the last is a version of one table, so that they share the rows on the drive.
TABLE, STABLE_TABLE = "changed", "stable"
PLAIN, SEGMENTS, DELETED, STABLE = "plain", "10 index segments", "20 % of the rows deleted", "stable row ids"
INDEX = "vector_vector"
# Each further segment covers as many rows as this share of the table has.
SEGMENT_SHARE = 0.01
DELETE = "id % 5 = 0"
# A row that is scored alone: random rows, in batches, by the I/O node's CPU.
ROW = "row"
ROW_LOAD = ["--rows", "500", "--columns", "vector", "--rerank", str(QUESTION["k"])]


@dataclass(frozen=True)
class Variant:
    """A version of a table, and how many of its rows the index does not cover."""

    table: str
    version: int
    unindexed: int = 0

    @property
    def flags(self) -> list[str]:
        """The arguments that select the version, of `bireme` and of `bench.peer`."""
        return ["--table-version", str(self.version)]


def measure(profile: Profile, binary: Path, logs: Path) -> dict:
    """Measures a search of each variant in each round, in turn, and then the recall of each."""
    runs: dict[str, list[dict]] = {}
    try:
        variants = _make(profile) | {STABLE: _stable(profile, binary)}
        with memory.folder(profile, 2) as folder, Bireme(binary, logs, profile.folder) as bireme:
            # The vectors of both tables and the appended rows take 8.2 GiB in the small profile, padded to whole sectors.
            io = bireme.io_node([folder / "slab-0"], profile.slab_gib * 5 // 3)
            query = bireme.query_node(io, {name: profile.table(name) for name in (TABLE, STABLE_TABLE)})
            bireme.ready(query, [TABLE, STABLE_TABLE])
            tier = Tier(bireme, io, query)
            for it in variants.values():
                bireme.run(query, "warm", it.table, "--columns", "vector", *it.flags)
            for number in range(profile.rounds):
                loads = _loads(profile, tier, variants, number)
                for name in list(loads)[:: -1 if number % 2 else 1]:
                    runs.setdefault(name, []).append(loads[name]())
                done = ", ".join(f"{name}: {1e3 * runs[name][-1]['cpu_s']:.3g}" for name in loads)
                print(f"changes, round {number + 1} of {profile.rounds}, ms of CPU a search, or a row: {done}", flush=True)
            found = {
                name: recall.measure(profile, bireme, query, **QUESTION, name=it.table, version=it.version)
                for name, it in variants.items()
            }
    finally:
        for name in (TABLE, STABLE_TABLE):
            shutil.rmtree(profile.table(name), ignore_errors=True)
    unindexed = {name: it.unindexed for name, it in variants.items()}
    described = machine.describe([profile.folder])
    return {"runs": runs, "recall": found, "unindexed": unindexed, "search": QUESTION, "machine": described}


def _loads(profile: Profile, tier: Tier, variants: dict[str, Variant], number: int) -> dict[str, Callable[[], dict]]:
    loads: dict[str, Callable[[], dict]] = {ROW: lambda: _row(tier, profile, number, variants[PLAIN])}
    for name, it in variants.items():
        loads[name] = lambda it=it: search(tier, profile, number, it.table, *it.flags)
        loads[f"{name}, pylance"] = lambda it=it: pylance(profile, it.table, *it.flags)
    return loads


def _row(tier: Tier, profile: Profile, number: int, of: Variant) -> dict:
    load = ["--io-endpoint", tier.io.endpoint, *ROW_LOAD, *of.flags, "--seed", str(number)]
    tier.bench("fetch", of.table, WARM_UP_SECONDS, *load)
    report = tier.bench("fetch", of.table, profile.seconds, *load)
    return report | {"cpu_s": report["cpu"]["io_cpu_us"] / 1e6 / report["nodes"]["io_rows"]}


def _make(profile: Profile) -> dict[str, Variant]:
    """Makes a copy of the vectors' table that shares its files, and a version of it for each variant but the last."""
    uri = profile.table(TABLE)
    tables.link(profile, "vectors", TABLE, ["data", "_indices"])
    plain = lance.dataset(uri).version
    variants = {PLAIN: Variant(TABLE, plain)}

    def change(name: str, change: Callable[[], None], unindexed: int = 0) -> None:
        print(f"making a table's version: {name}", flush=True)
        lance.dataset(uri, version=plain).restore()
        change()
        variants[name] = Variant(TABLE, lance.dataset(uri).version, unindexed)

    def append(rows: int, at: int = 0) -> None:
        batches = tables.vector_rows(profile, profile.rows + at, rows)
        lance.write_dataset(pa.RecordBatchReader.from_batches(tables.vector_schema(profile), batches), uri, mode="append")

    def segments() -> None:
        rows = int(profile.rows * SEGMENT_SHARE)
        for number in range(9):
            append(rows, number * rows)
            lance.dataset(uri).optimize.optimize_indices(num_indices_to_merge=0, index_names=[INDEX])

    for rows in (100, 10_000, profile.rows // 20):
        change(f"{rows:,} rows appended", lambda rows=rows: append(rows), rows)
    change(SEGMENTS, segments)
    change(DELETED, lambda: lance.dataset(uri).delete(DELETE))
    found = lance.dataset(uri, version=variants[SEGMENTS].version).describe_indices()
    [count] = [len(index.segments) for index in found if index.name == INDEX]
    if count != 10:
        raise RuntimeError(f"the index of {uri} has {count} segments instead of 10")
    return variants


def _stable(profile: Profile, binary: Path) -> Variant:
    """Makes a table with stable row ids of the vectors' files, and its index."""
    uri = profile.table(STABLE_TABLE)
    print("making a table with stable row ids", flush=True)
    tables.link(profile, "vectors", STABLE_TABLE, ["data"])
    rows = lance.dataset(profile.table("vectors"))
    fragments = [it.metadata for it in rows.get_fragments()]
    made = lance.LanceOperation.Overwrite(rows.schema, fragments)
    if not lance.LanceDataset.commit(uri, made, enable_stable_row_ids=True).has_stable_row_ids:
        raise RuntimeError(f"{uri} has no stable row ids")
    tables.index_vectors(profile, binary, uri)
    return Variant(STABLE_TABLE, lance.dataset(uri).version)


def over_fresh(found: dict, name: str) -> list[float]:
    """Returns the CPU of a search of a table with rows that the index does not cover, relative to 1.05 times a plain
    search's and that of these rows scored alone, in each round."""
    runs, rows = found["runs"], found["unindexed"][name]
    rounds = zip(runs[name], runs[PLAIN], runs[ROW], strict=True)
    return [it["cpu_s"] / (1.05 * plain["cpu_s"] + rows * row["cpu_s"]) for it, plain, row in rounds]


def goals(found: dict) -> list[tuple[str, float, float, bool]]:
    """Returns each goal's name, the median of the rounds, the wanted value, and whether more is better."""
    fresh = [
        (f"CPU of a search, {name}, relative to 1.05 × a plain search's + {rows:,} × that of a row scored alone",
         median(over_fresh(found, name)), 1.0, False)
        for name, rows in found["unindexed"].items() if rows
    ]  # fmt: skip
    others = [
        (f"CPU of a search, {name}, relative to a plain search's", median(relative(found, name, PLAIN)), 1.2, False)
        for name in (STABLE, SEGMENTS, DELETED)
    ]
    return [*fresh, *others]


def section(found: dict) -> list[str]:
    """Returns the lines of the report's section."""
    search = found["search"]
    lines = [
        "## Searches of changed tables",
        "",
        f"Searches by vector (k {search['k']}, nprobes {search['nprobes']}, refine {search['refine']}), slab in memory, of the vectors'",
        "table and of changed forms of it, in turns. Appended rows are around the same centres as the others. Of the index",
        f"segments, nine were made by appends of {SEGMENT_SHARE * 100:g} % of the rows, each followed by an update of the index. Deleted is each",
        "fifth row. Ratios are taken within each round: the median, with the least and the most. Recall is against exact",
        f"neighbours of {recall.QUESTIONS} questions in the same rows.",
        "",
        "| table | CPU of both tiers, ms: query node, I/O node | over a plain search's | over 1.05 × a plain search's + the "
        "appended rows scored alone | pylance's CPU, ms | pylance's over Bireme's | recall: Bireme, pylance |",
        "|---|---|---|---|---|---|---|",
    ]
    mid = lambda name, field: 1e3 * median(run[field] for run in found["runs"][name])
    for name, rows in found["unindexed"].items():
        peer = f"{name}, pylance"
        cells = [
            name,
            f"{mid(name, 'query_cpu_s'):.2f}, {mid(name, 'io_cpu_s'):.2f}",
            spread(relative(found, name, PLAIN)),
            spread(over_fresh(found, name)) if rows else "–",
            f"{mid(peer, 'cpu_s'):.1f}",
            spread(relative(found, peer, name)),
            "{bireme:.3f}, {lance:.3f}".format(**found["recall"][name]),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", f"A row that is scored alone (500 random rows a batch) costs the I/O node {1e3 * mid(ROW, 'cpu_s'):.2f} µs of CPU.", ""]
    commands = [f"$ {runs[0]['command']}" for runs in found["runs"].values()]
    return [*lines, "```console", *commands, "```", ""]
