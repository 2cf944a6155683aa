"""What was measured, as Markdown."""

import json
from pathlib import Path
from statistics import median

from . import faults, many, matrix, table, watch

WHAT = {"take": "take 100", "take-1000": "take 1,000", "search": "search"}
DONE = {
    "killed": f"SIGKILL; started again on its slab {faults.DOWN_SECONDS} s later",
    "cut off": f"its link is down for {faults.CUT_SECONDS} s",
    "delayed": f"{faults.DELAY_MS} ± {faults.JITTER_MS} ms each way for {faults.SLOW_SECONDS} s",
    "lossy": f"the same, and {faults.LOSS:.0%} of the frames lost each way",
    "stopped": f"SIGTERM; started again on its slab {faults.DOWN_SECONDS} s later",
    "joined": "a fifth node with an empty slab is listed",
    "left": "it is taken off the list, and stopped 1 s later",
}
NOT_RELEASE = "**Not a release build**: a sector's checksum alone takes 3 µs in it. `make network` measures one.\n\n"
SLOWED = {
    "netem": "Links are slowed by `tc netem`.",
    "relay": "**This kernel has no netem**: links are slowed by a relay of frames in user space in its place.",
    None: "**This kernel has no netem, and slow links were skipped.**",
}


def write(results: dict, folder: Path) -> None:
    """network.md, and network.json with all there is but for latencies over time."""
    kept = json.loads(json.dumps(results))
    for run in kept.get("faults", {}).get("runs", []):
        del run["latencies"]
    (folder / "network.json").write_text(json.dumps(kept, indent=1) + "\n")
    parts = [_head(results)]
    for name, part in [("matrix", _matrix), ("faults", _faults), ("lists", _lists), ("many", _many)]:
        if name in results:
            parts.append(part(results[name]))
    parts.append(_checks(results))
    (folder / "network.md").write_text("\n".join(parts))


def _head(results: dict) -> str:
    machine = results["machine"]
    return f"""# On a network

Written by `loadtest/network` ({_build(results)} build, code of {results["code"]}): {machine["cpu"]}, {machine["cores"]}
cores, {machine["memory_gib"]} GiB, Linux {machine["kernel"]}. I/O nodes, query nodes and callers are processes of one
machine, each in a network namespace with an address of its own, on one bridge. The table has {table.ROWS:,} rows of
{table.BODY_BYTES * 2} characters and a vector of {table.DIMENSION}, in {table.ROWS // table.FRAGMENT_ROWS} chunks; I/O
nodes have one core and a slab on the drive each, and no RAM tier.

{NOT_RELEASE if _build(results) == "development" else ""}{machine["cores"]} cores carry everything, and whatever else the machine does: its load was {results["load"]:.1f} when the
run began. So configurations took turns, round after round; figures are medians of the rounds, with the least and the
most in brackets, and what counts are ratios within a round.
"""


def _build(results: dict) -> str:
    """As the binary says of itself."""
    runs = [it for name in ["matrix", "faults"] if name in results for it in results[name]["runs"]]
    return {"dev": "development"}.get(runs[0]["build"], runs[0]["build"]) if runs else "unknown"


def _matrix(measured: dict) -> str:
    runs = measured["runs"]
    rounds = 1 + max(it["round"] for it in runs)
    lines = [
        "## What a row costs by the number of nodes",
        "",
        f"{measured['callers']} callers in all, {measured['seconds']:g} s each, {rounds} rounds; with two query nodes, two",
        "processes of callers. All nodes share the cores, so more of them can't serve more rows: what is looked at is",
        "that a row costs little more. A request is a message to each I/O node that owns some of its rows, so what a request",
        "of few rows costs rises with the messages. CPU is the kernel's account of each process, over the rows that I/O",
        "nodes served (for a search, the candidates that they scored, too).",
        "",
        "| request | I/O nodes | query nodes | rows/s | p50, ms | p99, ms | CPU a row, µs: query, I/O, callers | together | "
        "over 1 and 1 | rows from drives | most rows of a node, over the mean |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for workload in matrix.WORKLOADS:
        for io in matrix.IO:
            for query in matrix.QUERY:
                of = [it for it in runs if (it["workload"], it["io"], it["query"]) == (workload, io, query)]
                mid = lambda field: median(it[field] for it in of)
                costs = sorted(matrix.cost(it) for it in of)
                lines.append(
                    f"| {WHAT[workload]} | {io} | {query} | {mid('rows_per_s'):,.0f} | {mid('p50_ms'):.1f} | "
                    f"{mid('p99_ms'):.1f} | {mid('query_cpu_us_per_row'):.2f}, {mid('io_cpu_us_per_row'):.2f}, "
                    f"{mid('client_cpu_us_per_row'):.2f} | {median(costs):.2f} [{costs[0]:.2f}–{costs[-1]:.2f}] | "
                    f"{matrix.ratio(runs, workload, io, query):.2f} | {mid('hit_share'):.2%} | {mid('balance'):.2f} |"
                )
    return "\n".join([*lines, "", "```console", *(f"$ {it}" for it in sorted({it["command"] for it in runs})), "```", ""])


def _faults(measured: dict) -> str:
    runs = measured["runs"]
    lines = [
        "## Faults under load",
        "",
        f"{faults.IO} I/O nodes, {faults.QUERY} query nodes, {measured['rate']} requests a second of 100 rows, each due",
        f"within {measured['timeout_s']} s. Something is done to one of the I/O nodes. Latency is the mean over "
        f"{watch.EVERY_SECONDS:g} s as the query nodes count it; it",
        f"is back once it stays below {faults.BACK_FACTOR:g} times what it was. {SLOWED[measured['slowed_by']]}",
        "",
        "| fault | what is done | requests | failed | slowest, ms | longest silence, s | mean before, meanwhile, ms | "
        "back after, s | rows from the table by query nodes, by I/O nodes | rows compared | wrong |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name in faults.FAULTS:
        of = [it for it in runs if it["fault"] == name]
        if not of:
            continue
        total = lambda field: sum(it[field] for it in of)
        failed = total("failed") + total("unstarted") + sum(len(it["audit_failures"]) for it in of)
        lines.append(
            f"| {name} | {DONE[name]} | {total('requests'):,} | {failed} | {max(it['max_ms'] for it in of):,.0f} | "
            f"{_spread(of, 'silence_s')} | {_spread(of, 'before_ms')}, {_spread(of, 'meanwhile_ms')} | {_spread(of, 'back_s')} | "
            f"{_spread(of, 'fallback_rows', 0)}, {_spread(of, 'from_table_rows', 0)} | {total('audited_rows'):,} | "
            f"{total('wrong_rows')} |"
        )
    return "\n".join(
        [
            *lines,
            "",
            "*Silence* is how long a query node answered nobody. *Back after* counts from the node's start, the link's",
            "repair, or, where nothing is mended, the change of the list. Rows compared are those of `bireme take` beside the load, each with what it was made of.",
            "",
            f"```console\n$ {runs[0]['command']}\n```",
            "",
        ]
    )


def _spread(runs: list[dict], field: str, digits: int = 1) -> str:
    found = [it[field] for it in runs if it[field] is not None]
    if not found:
        return "–"
    shown = lambda value: f"{value:,.{digits}f}"
    lost = f" ({len(runs) - len(found)} not)" if len(found) < len(runs) else ""
    return f"{shown(median(found))} [{shown(min(found))}–{shown(max(found))}]{lost}"


def _lists(measured: dict) -> str:
    lines = [
        "## Lists that are wrong",
        "",
        "Each at the start of a query node, which refuses to start (exit code 2), and in place of a good list under load:",
        "the last good one stays in use, no request fails, no row comes from the table.",
        "",
        "| list | what is said |",
        "|---|---|",
        *(f"| {it['list']} | {_cell(it['said'])} |" for it in measured["refused"]),
        "",
        "Members that are no I/O node are no fault of the list: the table answers for their chunks.",
        "",
        "| what is at the endpoint | `bireme status` | requests | failed | slowest, ms | rows from the table |",
        "|---|---|---|---|---|---|",
    ]
    for it in measured["strangers"]:
        lines.append(
            f"| {it['stranger']} | {_cell(it['said'] or it['state'])} | {it['requests']:,} | {it['failed']} | "
            f"{it['max_ms']:,.0f} | {it['fallback_rows']:,} |"
        )
    return "\n".join([*lines, ""])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _many(measured: dict) -> str:
    lines = [
        f"## {many.LISTED} I/O nodes",
        "",
        f"A query node whose list grows from {many.REAL} to {many.LISTED} and loses one, under {many.RATE} requests a",
        f"second of {many.ROWS} rows. *absent*: {many.LISTED - many.REAL} of them don't answer; half refuse connections,",
        "the addresses of the others nobody has. *answering*: all do; they are addresses of two processes. The cost is of",
        f"{many.CONCURRENCY} callers who take 100 rows each, which are of about {_owners()} of {many.LISTED} nodes.",
        "",
        "| | 2 nodes | absent | answering |",
        "|---|---|---|---|",
    ]
    columns = [measured["absent"]["few"], measured["absent"]["many"], measured["answering"]["many"]]
    for name, value in [
        ("memory, MiB", lambda it: f"{it['resident_mib']:.0f}"),
        ("descriptors", lambda it: f"{it['descriptors']}"),
        ("CPU while nobody asks, of a core", lambda it: f"{it['idle_cores']:.1%}"),
        ("rows/s", lambda it: f"{it['rows_per_s']:,.0f}"),
        ("p99, ms", lambda it: f"{it['p99_ms']:.1f}"),
        ("CPU a row, µs: query node, I/O nodes", lambda it: f"{it['query_cpu_us_per_row']:.1f}, {it['io_cpu_us_per_row']:.1f}"),
        ("rows from the table", lambda it: f"{it['fallback_share']:.1%}"),
    ]:
        lines.append(f"| {name} | {' | '.join(value(it) for it in columns)} |")
    kinds = [measured[kind] for kind in ["absent", "answering"]]
    under = [it["under_load"] for it in kinds]
    for name, cells in [
        ("requests while the list changes, failed", [f"{it['requests']:,}, {it['failed']}" for it in under]),
        ("slowest of them, ms", [f"{it['max_ms']:.0f}" for it in under]),
        ("a new query node's first answer after, s", [f"{it['start_s']:.2f}" for it in kinds]),
    ]:
        lines.append(f"| {name} | – | {' | '.join(cells)} |")
    return "\n".join(
        [
            *lines,
            "",
            "Which chunks move when one comes or goes is a pure function of the names and weights: the share of that one",
            "and nothing else (`a_member_more_takes_its_share_and_moves_nothing_else` of `services/placement`).",
            "",
        ]
    )


def _owners() -> int:
    """Of how many members 100 random rows are, where chunks are spread evenly."""
    chunks = table.ROWS // table.FRAGMENT_ROWS
    touched = chunks * (1 - (1 - 1 / chunks) ** 100)
    return round(many.LISTED * (1 - (1 - 1 / many.LISTED) ** touched))


def _checks(results: dict) -> str:
    checks = [it for found in results["checks"].values() for it in found]
    broken = [it for it in checks if not it["holds"]]
    lines = ["## Checks", "", f"{len(checks) - len(broken)} of {len(checks)} hold."]
    lines += ["", *(f"- **Does not hold:** {it['what']} ({it['found']})" for it in broken)] if broken else []
    return "\n".join([*lines, ""])
