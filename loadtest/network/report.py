"""Writes the results as Markdown and JSON."""

import json
from pathlib import Path
from statistics import median

from . import faults, many, matrix, table, watch

WHAT = {"take": "take 100", "take-1000": "take 1,000", "search": "search"}
DONE = {
    "killed": f"SIGKILL; started again on its slab {faults.DOWN_SECONDS} s later",
    "cut off": f"its link is down for {faults.CUT_SECONDS} s",
    "delayed": f"{faults.DELAY_MS} ± {faults.JITTER_MS} ms each way for {faults.SLOW_SECONDS} s",
    "lossy": f"as delayed, and {faults.LOSS:.0%} of the frames lost each way",
    "stopped": f"SIGTERM; started again on its slab {faults.DOWN_SECONDS} s later",
    "joined": "a fifth node with an empty slab is listed",
    "left": f"one of the four nodes is taken off the list, and stopped {faults.LEAVE_SECONDS} s later",
}
NOT_RELEASE = "**Not a release build**: a sector's checksum alone takes 3 µs in it. `make network` measures a release build.\n\n"
SLOWED = {
    "netem": "Links are slowed by `tc netem`.",
    "relay": "**This kernel has no netem**, so a relay of frames in user space slows links.",
    None: "**This kernel has no netem, so slow links were skipped.**",
}


def write(results: dict, folder: Path) -> None:
    """Writes network.md, and network.json with all results except latencies over time."""
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
machine. Each is in a network namespace with an address of its own, and one bridge connects them. The table has
{table.ROWS:,} rows of {table.BODY_BYTES * 2} characters and a vector of {table.DIMENSION} dimensions, in {table.ROWS // table.FRAGMENT_ROWS} chunks. Each I/O node has one
core, a slab on the drive, and no RAM tier.

{NOT_RELEASE if _build(results) == "development" else ""}All processes share {machine["cores"]} cores with everything else on the machine, whose load was {results["load"]:.1f} when the run began. So
configurations took turns, round after round. Figures are medians of the rounds, with the least and the most in brackets.
In the table of faults, the numbers of requests, failures, and compared and wrong rows are sums over the rounds, and the
slowest answer is that of all rounds. Costs relative to 1 and 1, and the checks of them, are medians of the ratios within a round.
"""


def _build(results: dict) -> str:
    """Returns the kind of build, as the binary reports it."""
    runs = [it for name in ["matrix", "faults"] if name in results for it in results[name]["runs"]]
    return {"dev": "development"}.get(runs[0]["build"], runs[0]["build"]) if runs else "unknown"


def _matrix(measured: dict) -> str:
    runs = measured["runs"]
    rounds = 1 + max(it["round"] for it in runs)
    lines = [
        "## The cost of a row by the number of nodes",
        "",
        f"{measured['callers']} callers in total, {measured['seconds']:g} s each, {rounds} rounds; with two query nodes, two",
        "processes of callers. All nodes share the cores, so more nodes cannot serve more rows. The test is whether a row costs",
        "little more. A request sends a message to each I/O node that owns some of its rows, so requests of few rows cost more",
        "with more nodes. CPU is the kernel's account of each process, divided by the rows that I/O nodes served (for a search,",
        "the candidates that they scored, too).",
        "",
        "| request | I/O nodes | query nodes | rows/s | p50, ms | p99, ms | CPU per row, µs: query, I/O, callers | sum | "
        "relative to 1 and 1 | rows from drives | most rows of a node, relative to the mean |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for workload in matrix.WORKLOADS:
        for io in matrix.IO:
            for query in matrix.QUERY:
                same = [it for it in runs if (it["workload"], it["io"], it["query"]) == (workload, io, query)]
                mid = lambda field: median(it[field] for it in same)
                costs = sorted(matrix.cost(it) for it in same)
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
        f"{faults.IO} I/O nodes, {faults.QUERY} query nodes, and {measured['rate']} requests per second of 100 rows with a "
        f"deadline of {measured['timeout_s']} s. The fault",
        "hits one of the I/O nodes. Latency is the mean over "
        f"{watch.EVERY_SECONDS:g} s, as the query nodes measure it. It has recovered",
        f"once it stays below {faults.BACK_FACTOR:g} times its value before the fault. {SLOWED[measured['slowed_by']]}",
        "",
        "| fault | action | requests | failed | slowest, ms | longest silence, s | mean before, during the fault, ms | "
        "recovered after, s | rows from the table by query nodes, by I/O nodes | rows compared | wrong |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name in faults.FAULTS:
        same = [it for it in runs if it["fault"] == name]
        if not same:
            continue
        total = lambda field: sum(it[field] for it in same)
        failed = total("failed") + total("unstarted") + sum(len(it["audit_failures"]) for it in same)
        lines.append(
            f"| {name} | {DONE[name]} | {total('requests'):,} | {failed} | {max(it['max_ms'] for it in same):,.0f} | "
            f"{_spread(same, 'silence_s')} | {_spread(same, 'before_ms')}, {_spread(same, 'meanwhile_ms')} | {_spread(same, 'back_s')} | "
            f"{_spread(same, 'fallback_rows', 0)}, {_spread(same, 'from_table_rows', 0)} | {total('audited_rows'):,} | "
            f"{total('wrong_rows')} |"
        )
    return "\n".join(
        [
            *lines,
            "",
            "*Silence* is the time in which a query node answered no request. *Recovered after* counts from the node's start, the",
            "link's repair, or, if neither happens, the change of the list. `bireme take` reads the compared rows beside the load, and",
            "each is compared with its expected value.",
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
        "## Invalid lists",
        "",
        "Each list is given to a query node at its start, which the node refuses (exit code 2), and in place of a valid list",
        "under load: the last valid list stays in use, no request fails, and no row comes from the table.",
        "",
        "| list | message |",
        "|---|---|",
        *(f"| {it['list']} | {_cell(it['said'])} |" for it in measured["refused"]),
        "",
        "A list may name members that are not I/O nodes. The rows of their chunks come from the table. The last row is",
        "different: it is an I/O node of a later revision of the protocol, which is used like any other.",
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
        f"The list of a query node grows from {many.REAL} to {many.LISTED} members and loses one, under {many.RATE} requests per",
        f"second of {many.ROWS} rows. *absent*: {many.LISTED - many.REAL} of them do not answer; half refuse connections, and the",
        "addresses of the others do not exist. *answering*: all answer; they are addresses of two processes. Costs are measured",
        f"with {many.CONCURRENCY} callers who take 100 rows per request, which about {_owners()} of {many.LISTED} nodes own. Memory, descriptors and",
        "CPU without load are those of the query node.",
        "",
        "| | 2 nodes | absent | answering |",
        "|---|---|---|---|",
    ]
    columns = [measured["absent"]["few"], measured["absent"]["many"], measured["answering"]["many"]]
    for name, value in [
        ("memory, MiB", lambda it: f"{it['resident_mib']:.0f}"),
        ("descriptors", lambda it: f"{it['descriptors']}"),
        ("CPU without load, of a core", lambda it: f"{it['idle_cores']:.1%}"),
        ("rows/s", lambda it: f"{it['rows_per_s']:,.0f}"),
        ("p99, ms", lambda it: f"{it['p99_ms']:.1f}"),
        ("CPU per row, µs: query node, I/O nodes", lambda it: f"{it['query_cpu_us_per_row']:.1f}, {it['io_cpu_us_per_row']:.1f}"),
        ("rows from the table", lambda it: f"{it['fallback_share']:.1%}"),
    ]:
        lines.append(f"| {name} | {' | '.join(value(it) for it in columns)} |")
    kinds = [measured[kind] for kind in ["absent", "answering"]]
    under = [it["under_load"] for it in kinds]
    for name, cells in [
        ("requests while the list changes; failed", [f"{it['requests']:,}, {it['failed']}" for it in under]),
        ("slowest of these requests, ms", [f"{it['max_ms']:.0f}" for it in under]),
        ("first answer of a new query node after, s", [f"{it['start_s']:.2f}" for it in kinds]),
    ]:
        lines.append(f"| {name} | – | {' | '.join(cells)} |")
    return "\n".join(
        [
            *lines,
            "",
            "Which chunks move when a member joins or leaves is a pure function of names and weights: only that member's share",
            "moves (`a_member_more_takes_its_share_and_moves_nothing_else` of `services/placement`).",
            "",
        ]
    )


def _owners() -> int:
    """Returns how many members own 100 random rows, if chunks are spread evenly."""
    chunks = table.ROWS // table.FRAGMENT_ROWS
    touched = chunks * (1 - (1 - 1 / chunks) ** 100)
    return round(many.LISTED * (1 - (1 - 1 / many.LISTED) ** touched))


def _checks(results: dict) -> str:
    checks = [it for found in results["checks"].values() for it in found]
    broken = [it for it in checks if not it["holds"]]
    lines = ["## Checks", "", f"{len(checks) - len(broken)} of {len(checks)} hold."]
    lines += ["", *(f"- **Does not hold:** {it['what']} ({it['found']})" for it in broken)] if broken else []
    return "\n".join([*lines, ""])
