"""Measures gets by key while versions of their table are published, one a second, each of which changes 0.1 % of the
rows; beside gets from a table that does not change. All is in memory.

The versions are written before the measurement, in another folder. To publish one, its manifest is linked into the
table's folder, which takes next to no CPU. Their other files are there from the beginning."""

import os
import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from statistics import median

import lance
import numpy as np

from . import lookups, machine, memory, tables
from .bireme import Bireme
from .keys import build_index
from .profile import Profile
from .tier import Tier, core_seconds

SOURCE, TABLE, WRITTEN = "pairs", "published", "written"
SHARE = 0.001
# A load with publications lasts this many times as long as others, because only one version is published a second.
LONGER = 2
# The query node looks for new versions this often, so that it serves each of them.
REFRESH = "500ms"
PATIENCE_SECONDS = 20
# The longest time in which `bireme bench` draws its keys; versions are published meanwhile too.
START_SECONDS = 5
# The threads that serve requests, by node. All others work in the background: they open versions, index keys and fill.
CORES = {"query": "bireme-query", "io": "bireme-io"}
LOADS = {name: lookups.GETS[name] for name in ("lookup_64", "get_1")}
STILL, PUBLISHED = "still", "published"


def measure(profile: Profile, binary: Path, logs: Path) -> dict:
    """Measures each load in each round, with and without publications, in turn."""
    runs: dict[str, dict[str, list[dict]]] = {name: {STILL: [], PUBLISHED: []} for name in LOADS}
    seconds = LONGER * profile.seconds
    try:
        publisher = Publisher(profile, round(profile.rounds * len(LOADS) * (seconds + START_SECONDS)))
        with memory.folder(profile) as folder, Bireme(binary, logs, profile.folder) as bireme:
            tier = Tier.start(bireme, profile, [TABLE], [folder / "slab-0"], BIREME_QUERY_REFRESH_INTERVAL=REFRESH)
            for number in range(profile.rounds):
                for name, (_, arguments) in LOADS.items():
                    for turn in [STILL, PUBLISHED][:: -1 if number % 2 else 1]:
                        beside = publisher if turn == PUBLISHED else None
                        runs[name][turn].append(_get(tier, seconds, number, arguments, beside))
                done = ", ".join(f"{name} {ratio(runs[name])[-1]:.3f}" for name in LOADS)
                print(f"publishing, round {number + 1} of {profile.rounds}, rate relative to none: {done}", flush=True)
    finally:
        for name in (TABLE, WRITTEN):
            shutil.rmtree(profile.table(name), ignore_errors=True)
    return {"runs": runs, "machine": machine.describe([profile.folder])}


class Publisher:
    """A table, and versions of it that are not published yet."""

    def __init__(self, profile: Profile, versions: int) -> None:
        folders = ["data", "_indices", "_bireme"]
        for name in (TABLE, WRITTEN):
            tables.link(profile, SOURCE, name, folders)
        self.folder = Path(profile.table(TABLE))
        self.written = Path(profile.table(WRITTEN))
        self.published = lance.dataset(str(self.folder)).version
        self._write(versions)
        for folder in ("data", "_deletions", "_transactions"):
            (self.folder / folder).mkdir(exist_ok=True)
            for file in (self.written / folder).iterdir():
                if not (self.folder / folder / file.name).exists():
                    os.link(file, self.folder / folder / file.name)

    def _write(self, versions: int) -> None:
        """Writes versions, each of which gives rows that no other version changes another value."""
        table = lance.dataset(str(self.written))
        ends = np.cumsum([0, *(fragment.physical_rows for fragment in table.get_fragments())])
        rows = np.random.default_rng(5).permutation(ends[-1])
        count = int(ends[-1] * SHARE)
        print(f"writing {versions} versions of {count:,} changed rows", flush=True)
        for number in range(versions):
            changed = rows[number * count : (number + 1) * count]
            fragment = np.searchsorted(ends, changed, side="right") - 1
            # The fragments of a table that was written at once have the numbers from 0 on.
            ids = fragment.astype(np.uint64) << np.uint64(32) | (changed - ends[fragment]).astype(np.uint64)
            done = table.update({"value0": "value1"}, where=f"_rowid IN ({','.join(map(str, ids.tolist()))})")
            if done["num_rows_updated"] != count or table.version != self.published + number + 1:
                raise RuntimeError(f"version {table.version} of {self.written} changed {done} instead of {count} rows")

    @contextmanager
    def publishing(self) -> Iterator[None]:
        """Publishes a version each second inside a `with` block."""
        stop = threading.Event()
        failed: list[OSError] = []

        def publish() -> None:
            due = time.monotonic()
            while not failed and not stop.wait(max(0.0, due - time.monotonic())):
                try:
                    self._publish()
                except OSError as error:
                    failed.append(error)
                due += 1

        thread = threading.Thread(target=publish)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
        if failed:
            raise RuntimeError(f"version {self.published + 1} can't be published: {failed[0]}")

    def _publish(self) -> None:
        version = self.published + 1
        # The number of a version in Lance's names for manifests, so that the newest one comes first in lists.
        name = f"{2**64 - 1 - version}.manifest"
        os.link(self.written / "_versions" / name, self.folder / "_versions" / name)
        hint = self.folder / "_versions" / "latest_version_hint.json"
        new = hint.with_suffix(".new")
        new.write_text(f'{{"version":{version}}}')
        new.replace(hint)
        self.published = version


def _get(tier: Tier, seconds: float, number: int, arguments: list[str], beside: Publisher | None) -> dict:
    """Gets keys while `beside` publishes versions, if it is given."""
    load = ["--key-column", lookups.KEY, "--seed", str(number), *arguments]
    # Both turns begin with all rows on the drive, and all keys in the index.
    tier.bireme.warm(tier.query, TABLE)
    build_index(tier, TABLE, lookups.KEY)
    tier.bench("get", TABLE, lookups.WARM_UP_SECONDS, *load)
    first, before = _version(tier), _cpu_us(tier)
    with beside.publishing() if beside else nullcontext():
        report = tier.bench("get", TABLE, seconds, *load)
        after, served = _cpu_us(tier), _version(tier) - first
    if report["errors"] or report["missing_rows"]:
        raise RuntimeError(f"some keys were not found: {report}")
    if beside and not report["nodes"]["table_rows"]:
        raise RuntimeError(f"no row of the new versions was read: {report}")
    until = time.monotonic() + PATIENCE_SECONDS
    while beside and _version(tier) != beside.published:
        if time.monotonic() > until:
            raise RuntimeError(f"the query node serves version {_version(tier)}, but {beside.published} is published")
        time.sleep(0.1)
    threads = {node: {name: it / report["seconds"] / 1e6 for name, it in (after[node] - us).items()} for node, us in before.items()}
    rates = {"keys_per_s": report["rows"] / report["seconds"], "keys_per_core_s": report["rows"] / core_seconds(report)}
    return report | rates | {"versions": served, "cores_by_threads": threads}


def _version(tier: Tier) -> int:
    [described] = tier.bireme.run(tier.query, "describe", TABLE)
    return described["version"]


def _cpu_us(tier: Tier) -> dict[str, Counter[str]]:
    return {"query": tier.query.cpu_us_by_threads(), "io": tier.io.cpu_us_by_threads()}


def ratio(turns: dict[str, list[dict]], per: str = "keys_per_s") -> list[float]:
    """Returns the rate with publications relative to that without, in each round."""
    pairs = zip(turns[PUBLISHED], turns[STILL], strict=True)
    return [published[per] / still[per] for published, still in pairs]


def goals(found: dict) -> list[tuple[str, float, float, bool]]:
    """Returns each goal's name, the median of the rounds, the wanted value, and whether more is better."""
    return [
        (f"keys/s while a version a second changes 0.1 % of the rows, relative to none: {title}", median(ratio(found["runs"][name])), 0.8, True)
        for name, (title, _) in LOADS.items()
    ]  # fmt: skip


def section(found: dict) -> list[str]:
    """Returns the lines of the report's section."""
    lines = [
        "## Gets while versions are published",
        "",
        "Keys of the table of pairs, all in memory. A version is published each second, and changes 0.1 % of the rows: it deletes",
        "them, and has them with another value in a new fragment. The versions were written beforehand, and a link to a manifest",
        "publishes each; no writer runs beside the gets. The nodes open each version, index the keys of the new fragment and fill",
        "its rows. Threads in the background do a part of this. Ratios are taken within each round: the median, with the least and",
        "the most.",
        "",
        "| load | keys/s without, with publications | ratio | keys per core-second, ratio | p99 without, with, µs "
        "| versions served in a run, rows read from the table | CPU in the background without, with, cores: query node, I/O node |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, (title, _) in LOADS.items():
        turns = found["runs"][name]
        both = lambda value, turns=turns: [median(value(run) for run in turns[turn]) for turn in (STILL, PUBLISHED)]
        background = [", ".join(f"{it:.2f}" for it in both(lambda run, node=node: _background(run, node))) for node in CORES]
        cells = [
            title,
            ", ".join(f"{it:,.0f}" for it in both(lambda run: run["keys_per_s"])),
            *(f"{median(it):.2f} ({min(it):.2f} to {max(it):.2f})" for it in (ratio(turns), ratio(turns, "keys_per_core_s"))),
            ", ".join(f"{it:,.0f}" for it in both(lambda run: run["latency_us"]["p99"])),
            ", ".join(f"{median(map(of, turns[PUBLISHED])):,.0f}" for of in (lambda run: run["versions"], lambda run: run["nodes"]["table_rows"])),
            "; ".join(background),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    commands = [f"$ {turns[PUBLISHED][0]['command']}" for turns in found["runs"].values()]
    return [*lines, "", "```console", *commands, "```", ""]


def _background(run: dict, node: str) -> float:
    return sum(cores for name, cores in run["cores_by_threads"][node].items() if name != CORES[node])
