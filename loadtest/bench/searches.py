"""Measures Bireme's and pylance's searches by vector with and without filters, by words, and by filters alone, all in
memory."""

import http.client
import json
from collections.abc import Callable
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

import lance

from . import machine, memory, peers
from .bireme import Bireme
from .profile import Profile
from .tier import Tier
from .figures import spread

TABLE = "vectors"
TEXT_TABLE = "payload"
TEXT_COLUMN = "title"
# A table whose column `id` has no index.
UNINDEXED = "documents"
WARM_UP_SECONDS = 1.0
QUESTION = {"k": 50, "nprobes": 20, "refine": 10}
# The number of different filters, each of which is used once.
FIRST_USES = 40

PLAIN = "plain"
# The share of the rows that pass, by title. `None` is one topic, which a BITMAP index answers. A BTREE answers the
# others.
SHARES = {"topic": None, "10 %": 0.1, "50 %": 0.5, "99 %": 0.99}
# The share of the rows that pass a filter by the column without an index, by title.
UNINDEXED_SHARES = {"50 %": 0.5, "10 %": 0.1, "2 %": 0.02}

# Searches of the payload table, by title: Bireme's arguments and pylance's. All return ten rows of two columns.
COLUMNS = ["--columns", "id,title"]
OTHERS = {
    "two words": (["--by", "words"], ["words", "--text", TEXT_COLUMN]),
    "two words, and a filter (10 %)": (["--by", "words", "--filter", "id < {tenth}"], ["words", "--text", TEXT_COLUMN, "--filter", "id < {tenth}"]),
    "a filter alone (10 %)": (["--by", "filter", "--filter", "id < {tenth}"], ["filter", "--filter", "id < {tenth}"]),
    "a filter alone (10 %), 1,000 rows": (
        ["--by", "filter", "--filter", "id < {tenth}", "-k", "1000"],
        ["filter", "--filter", "id < {tenth}", "-k=1000"],
    ),
}


def measure(profile: Profile, binary: Path, logs: Path) -> dict:
    """Measures each search in each round, in turn. Except in first uses, the warm-up has already
    determined the rows that pass."""
    _index(profile)
    runs: dict[str, list[dict]] = {}
    with memory.folder(profile) as folder, Bireme(binary, logs, profile.folder) as bireme:
        # Pylance has its tables in the page cache, so the I/O node may keep rows in memory too.
        tier = Tier.start(bireme, profile, [TABLE, TEXT_TABLE, UNINDEXED], [folder / "slab-0"], profile.ram_tier_gib)
        bireme.warm(tier.query, TABLE, ["vector", "id", "topic"])
        bireme.warm(tier.query, TEXT_TABLE)
        bireme.warm(tier.query, UNINDEXED)
        tier.fill_ram(TABLE, "--columns", "vector", "--rerank", "50")
        tier.fill_ram(TEXT_TABLE)
        for number in range(profile.rounds):
            searches: dict[str, Callable[[], dict]] = {PLAIN: lambda: _search(tier, profile, number, None)}
            for title, share in SHARES.items():
                searches[title] = lambda share=share: _search(tier, profile, number, _filter(profile, share, number))
                filters = [_filter(profile, share, 100 + number * FIRST_USES + use) for use in range(FIRST_USES)]
                searches[f"{title}, first use"] = lambda filters=filters: _each_once(tier, profile, filters)
                searches[f"{title}, pylance"] = lambda share=share: _pylance(profile, _filter(profile, share, number))
            for title, share in UNINDEXED_SHARES.items():
                rows = int(profile.document_rows * share)
                filters = [f"id < {rows - number * FIRST_USES - use}" for use in range(FIRST_USES)]
                searches[f"{title}, no index"] = lambda filters=filters: _each_once(tier, profile, filters, UNINDEXED)
                searches[f"{title}, no index, pylance"] = lambda it=filters[0]: _pylance(profile, it, UNINDEXED)
            searches[f"{PLAIN}, no index"] = lambda: _each_once(tier, profile, [None] * FIRST_USES, UNINDEXED)
            searches[f"{PLAIN}, alone"] = lambda: _each_once(tier, profile, [None] * FIRST_USES)
            searches[f"{PLAIN}, pylance"] = lambda: _pylance(profile, None)
            for title, (ours, theirs) in OTHERS.items():
                searches[title] = lambda ours=ours: _other(tier, profile, number, ours)
                searches[f"{title}, pylance"] = lambda theirs=theirs: _other_pylance(profile, number, theirs)
            for name in list(searches)[:: -1 if number % 2 else 1]:
                runs.setdefault(name, []).append(searches[name]())
            done = ", ".join(f"{name}: {1e3 * runs[name][-1]['cpu_s']:.2f}" for name in searches)
            print(f"searches, round {number + 1} of {profile.rounds}, ms of CPU a search: {done}", flush=True)
    return {"runs": runs, "search": QUESTION, "machine": machine.describe([profile.folder])}


def _index(profile: Profile) -> None:
    """Makes the indexes of columns that have none."""
    for name, column, kind in [
        (TABLE, "topic", "BITMAP"),
        (TABLE, "id", "BTREE"),
        (TEXT_TABLE, "id", "BTREE"),
        (TEXT_TABLE, TEXT_COLUMN, "INVERTED"),
    ]:
        table = lance.dataset(profile.table(name))
        if column not in {column for index in table.describe_indices() for column in index.field_names}:
            table.create_scalar_index(column, kind)


def _filter(profile: Profile, share: float | None, number: int) -> str:
    """Returns a filter that this share of the rows passes. Each number gives a different filter."""
    return f"topic = {number}" if share is None else f"id < {int(profile.rows * share) - number}"


def _search(tier: Tier, profile: Profile, number: int, filter: str | None) -> dict:
    return search(tier, profile, number, TABLE, *(["--filter", filter] if filter else []))


def search(tier: Tier, profile: Profile, number: int, table: str, *more: str) -> dict:
    """Searches by vector, with further arguments of `bireme bench search`."""
    question = [f"-k={QUESTION['k']}", f"--nprobes={QUESTION['nprobes']}", f"--refine={QUESTION['refine']}"]
    load = [*question, "--columns", "_rowaddr", "--seed", str(number), *more]
    tier.bench("search", table, WARM_UP_SECONDS, *load)
    report = tier.bench("search", table, profile.seconds, *load)
    if report["errors"]:
        raise RuntimeError(f"some searches failed: {report}")
    return report | cpu(report)


def _other(tier: Tier, profile: Profile, number: int, arguments: list[str]) -> dict:
    load = [it.format(tenth=profile.payload_rows // 10) for it in arguments] + [*COLUMNS, "--seed", str(number)]
    tier.bench("search", TEXT_TABLE, WARM_UP_SECONDS, *load)
    report = tier.bench("search", TEXT_TABLE, profile.seconds, *load)
    if report["errors"]:
        raise RuntimeError(f"some searches failed: {report}")
    return report | cpu(report)


def _other_pylance(profile: Profile, number: int, arguments: list[str]) -> dict:
    load = [it.format(tenth=profile.payload_rows // 10) for it in arguments]
    load = [load[0], *([] if any(it.startswith("-k") for it in load) else ["-k=10"]), *load[1:]]
    report = peers.run(
        profile.table(TEXT_TABLE), load[0], profile.seconds, *load[1:], *COLUMNS, f"--seed={number}", f"--warm-up={WARM_UP_SECONDS}"
    )
    if "error" in report:
        raise RuntimeError(f"{report['command']}: {report['error']}")
    return report | {"cpu_s": report["cpu_s"] / report["requests"]}


def _each_once(tier: Tier, profile: Profile, filters: list[str | None], table: str = TABLE) -> dict:
    """Searches once with each filter, one search after the other, by HTTP on a connection that stays open."""
    connection = http.client.HTTPConnection(urlsplit(tier.query.endpoint).netloc)
    dataset = lance.dataset(profile.table(table))
    rows = [number * dataset.count_rows() // len(filters) for number in range(len(filters))]
    vectors = dataset.take(rows, ["vector"])["vector"].to_pylist()
    question = {"k": QUESTION["k"], "nprobes": QUESTION["nprobes"], "refine_factor": QUESTION["refine"], "columns": ["_rowid"]}

    def search(vector: list[float], filter: str | None) -> None:
        body = json.dumps(question | {"vector": vector, "prefilter": True} | ({"filter": filter} if filter else {}))
        connection.request("POST", f"/v1/table/{table}/query/", body, {"content-type": "application/json"})
        answer = connection.getresponse()
        said = answer.read()
        if answer.status != http.client.OK:
            raise RuntimeError(f"a search failed: {answer.status}: {said}")

    # These open the connection, and load the partitions.
    for vector in vectors:
        search(vector, None)
    before = (tier.io.cpu_us(), tier.query.cpu_us())
    for vector, filter in zip(vectors, filters, strict=True):
        search(vector, filter)
    after = (tier.io.cpu_us(), tier.query.cpu_us())
    connection.close()
    io, query = (b - a for a, b in zip(before, after, strict=True))
    report = {"requests": len(filters), "cpu": {"io_cpu_us": io, "query_cpu_us": query}}
    return report | cpu(report)


def cpu(report: dict) -> dict:
    """Returns the CPU seconds of both tiers together for one search, and of each tier."""
    io, query = (report["cpu"][name] / 1e6 / report["requests"] for name in ("io_cpu_us", "query_cpu_us"))
    return {"cpu_s": io + query, "io_cpu_s": io, "query_cpu_s": query}


def _pylance(profile: Profile, filter: str | None, table: str = TABLE) -> dict:
    return pylance(profile, table, *(["--filter", filter] if filter else []))


def pylance(profile: Profile, table: str, *more: str) -> dict:
    """Searches by vector with pylance, with further arguments of `bench.peer`."""
    question = [f"-k={QUESTION['k']}", f"--nprobes={QUESTION['nprobes']}", f"--refine={QUESTION['refine']}"]
    report = peers.run(profile.table(table), "search", profile.seconds, *question, f"--warm-up={WARM_UP_SECONDS}", *more)
    if "error" in report:
        raise RuntimeError(f"{report['command']}: {report['error']}")
    return report | {"cpu_s": report["cpu_s"] / report["requests"]}


def relative(found: dict, name: str, to: str) -> list[float]:
    """Returns the CPU of a search relative to another one's, in each round."""
    return [a["cpu_s"] / b["cpu_s"] for a, b in zip(found["runs"][name], found["runs"][to], strict=True)]


def first_use(found: dict, title: str) -> list[float]:
    """Returns the CPU of a filter's first search relative to a plain search's, in each round. What a search costs more
    if it is alone, by HTTP, is measured with plain searches and subtracted."""
    runs = found["runs"]
    rounds = zip(runs[f"{title}, first use"], runs[f"{PLAIN}, alone"], runs[PLAIN], strict=True)
    return [1 + (first["cpu_s"] - alone["cpu_s"]) / plain["cpu_s"] for first, alone, plain in rounds]


def goals(found: dict) -> list[tuple[str, float, float, bool]]:
    """Returns each goal's name, its value, the wanted value, and whether more is better."""
    of_plain = lambda name: median(relative(found, name, PLAIN))
    over_pylance = lambda name: median(relative(found, f"{name}, pylance", name))
    return [
        ("CPU of a search filtered by 10 %, over a plain search's", of_plain("10 %"), 1.3, False),
        ("CPU of a search filtered by 50 %, over a plain search's", of_plain("50 %"), 1.3, False),
        ("the same at a filter's first use, 10 %", median(first_use(found, "10 %")), 2.0, False),
        ("the same at a filter's first use, 50 %", median(first_use(found, "50 %")), 2.0, False),
        ("searches of one topic in 2,000 per core-second, over pylance's", over_pylance("topic"), 3.0, True),
        ("searches filtered by 10 % per core-second, over pylance's", over_pylance("10 %"), 8.0, True),
        ("searches filtered by 50 % per core-second, over pylance's", over_pylance("50 %"), 8.0, True),
        *((f"searches by {name} per core-second, over pylance's", over_pylance(name), 5.0, True) for name in OTHERS),
    ]


def section(found: dict) -> list[str]:
    """Returns the lines of the report's section."""
    search = found["search"]
    lines = [
        "## Searches with filters, and of words",
        "",
        f"Searches by vector (k {search['k']}, nprobes {search['nprobes']}, refine {search['refine']}), rows in the RAM tier. A topic has",
        "one row in 2,000, and a BITMAP answers its filter; a BTREE answers the others. Ratios are taken within each round: the",
        "median, with the least and the most. A filter's first use finds the rows that pass it, or",
        "compares candidates with it (50 % and 99 %).",
        "",
        "| filter | CPU of both tiers, ms: query node, I/O node | over a plain search's | at a filter's first use | pylance's CPU, ms | pylance's over Bireme's |",
        "|---|---|---|---|---|---|",
    ]
    for name in [PLAIN, *SHARES]:
        runs, peer = found["runs"][name], found["runs"][f"{name}, pylance"]
        tiers = [f"{median(run[part] for run in runs) * 1e3:.2f}" for part in ("query_cpu_s", "io_cpu_s")]
        first = "–" if name == PLAIN else spread(first_use(found, name))
        over = spread(relative(found, f"{name}, pylance", name))
        peers_ms = f"{median(run['cpu_s'] for run in peer) * 1e3:.1f}"
        cells = [name, ", ".join(tiers), spread(relative(found, name, PLAIN)), first, peers_ms, over]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        "Searches of the table with ten payload columns. They return ten rows of two columns unless the table says otherwise:",
        "",
        "| search | CPU of both tiers, ms: query node, I/O node | pylance's CPU, ms | pylance's over Bireme's |",
        "|---|---|---|---|",
    ]
    for name in OTHERS:
        runs, peer = found["runs"][name], found["runs"][f"{name}, pylance"]
        tiers = [f"{median(run[part] for run in runs) * 1e3:.2f}" for part in ("query_cpu_s", "io_cpu_s")]
        over = spread(relative(found, f"{name}, pylance", name))
        lines.append(f"| {name} | {', '.join(tiers)} | {median(run['cpu_s'] for run in peer) * 1e3:.1f} | {over} |")
    if f"{PLAIN}, no index" in found["runs"]:
        lines += _unindexed(found)
    names = [name for name in found["runs"] if "command" in found["runs"][name][0]]
    commands = [f"$ {found['runs'][name][0]['command']}" for name in names]
    return [*lines, "", "```console", *commands, "```", ""]


def _unindexed(found: dict) -> list[str]:
    lines = [
        "",
        "Searches of the table of documents with a filter by a column that has no index, each filter used once, one search at a time",
        "over HTTP, as the plain searches that they are compared with:",
        "",
        "| rows that pass | CPU of both tiers, ms: query node, I/O node | over a plain search's | pylance's CPU, ms | pylance's over Bireme's |",
        "|---|---|---|---|---|",
    ]
    plain = f"{PLAIN}, no index"
    for name in [f"{title}, no index" for title in UNINDEXED_SHARES]:
        runs, peer = found["runs"][name], found["runs"][f"{name}, pylance"]
        tiers = [f"{median(run[part] for run in runs) * 1e3:.2f}" for part in ("query_cpu_s", "io_cpu_s")]
        over = [spread(relative(found, *pair)) for pair in [(name, plain), (f"{name}, pylance", name)]]
        peers_ms = f"{median(run['cpu_s'] for run in peer) * 1e3:.1f}"
        lines.append(f"| {name.split(',')[0]} | {', '.join(tiers)} | {over[0]} | {peers_ms} | {over[1]} |")
    return lines
