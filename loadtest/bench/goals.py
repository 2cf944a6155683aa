"""Which goals hold: ratios within a round, and the median of the rounds."""

from collections.abc import Callable
from statistics import median

from . import attacks, keys
from .tier import core_seconds


def judge(results: dict) -> list[dict]:
    """Each goal with what was measured, what is to be reached, and whether it is."""
    goals = _of_rounds(results["rounds"]) if "rounds" in results else []
    if "instructions" in results:
        goals += _of_instructions(results["instructions"]["instructions_per_query"])
    if "keys" in results:
        goals.append(_of_keys(results["keys"]))
    if "cache" in results:
        goals += _of_cache(results["cache"])
    if "telemetry" in results:
        goals += [_of_telemetry(load, results["telemetry"]["turns"]) for load in ["search", "take"]]
    if "attacks" in results:
        goals += _of_attacks(results["attacks"])
    return goals


def _of_attacks(results: dict) -> list[dict]:
    goals = []
    for name, (title, _) in attacks.ATTACKS.items():
        if name == "none":
            continue
        health, slowdown = attacks.health_p99_ms(results, name), attacks.slowdown(results, name)
        goals.append(_goal(f"{title}: p99 of health, ms", health, attacks.HEALTH_P99_GOAL_MS, False))
        goals.append(_goal(f"{title}: good callers' p99, over without", slowdown, attacks.GOOD_CALLERS_GOAL, False))
    return goals


def _goal(name: str, value: float, goal: float, at_least: bool) -> dict:
    holds = value >= goal if at_least else value <= goal
    sign = "≥" if at_least else "≤"
    return {"name": name, "value": value, "goal": goal, "holds": holds, "sign": sign}


def _of_rounds(rounds: dict) -> list[dict]:
    steps = rounds["steps"]
    numbers = range(len(steps["fio"]))

    def at_least(name: str, goal: float, value: Callable[[int], float]) -> dict:
        return _goal(name, median(value(n) for n in numbers), goal, True)

    def at_most(name: str, goal: float, value: Callable[[int], float]) -> dict:
        return _goal(name, median(value(n) for n in numbers), goal, False)

    # The best depth over all rounds: the best reading of each round would be that of chance, too.
    depths = range(len(steps["fio"][0]))
    best_depth = max(depths, key=lambda at: median(it[at]["iops"] for it in steps["fio"]))

    def best_fio(n: int) -> dict:
        return steps["fio"][n][best_depth]

    def of(step: str, field: str) -> Callable[[int], float]:
        return lambda n: steps[step][n][field]

    def p50(step: str, n: int) -> float:
        return steps[step][n]["latency_us"]["p50"]

    def above_fio(step: str, suffix: str, n: int) -> float:
        return p50(f"{step}{suffix}", n) - steps[f"fio_depth_1{suffix}"][n]["p50_us"]

    def searches_per_core_second(n: int) -> float:
        return steps["search_warm"][n]["requests"] / core_seconds(steps["search_warm"][n])

    def payload_per_core_second(n: int) -> float:
        return steps["payload_memory"][n]["rows"] / core_seconds(steps["payload_memory"][n])

    recalls = rounds["recall"]
    return [
        at_least("rows/s of whole vectors from the drive, over fio's best IOPS", 0.97,
                 lambda n: steps["drive_whole"][n]["rows_per_s"] / best_fio(n)["iops"]),
        at_most("I/O node's CPU a row, over fio's an I/O", 1.5,
                lambda n: steps["drive_whole"][n]["nodes"]["io_cpu_us_per_row"] / best_fio(n)["cpu_us_per_io"]),
        at_most("one row through both tiers: p50 above fio's at depth 1, µs", 120,
                lambda n: above_fio("one_row_both", "", n)),
        at_most("the same, both nodes' cores polling", 120,
                lambda n: above_fio("one_row_both", "_polling", n)),
        at_most("one row from the I/O node: p50 above fio's at depth 1, µs", 60,
                lambda n: above_fio("one_row_node", "", n)),
        at_most("the same, its cores polling", 60,
                lambda n: above_fio("one_row_node", "_polling", n)),
        at_most("p99 at 70 % of fio's IOPS, over fio's p99 at that rate", 2,
                lambda n: steps["rate"][n]["latency_us"]["p99"] / steps["fio_rate"][n]["p99_us"]),
        at_least("rows/s of whole vectors, slab in memory", 550_000, of("memory_whole", "rows_per_s")),
        at_least("rows/s scored on the node, slab in memory", 1_000_000, of("memory_scored", "rows_per_s")),
        at_least("rows/s scored from the RAM tier, over slab in memory", 1,
                 lambda n: steps["ram_scored"][n]["rows_per_s"] / steps["memory_scored"][n]["rows_per_s"]),
        at_least("the drive's busy time during cold searches", 0.95,
                 lambda n: steps["search_cold"][n]["disk"]["busy"]),
        at_least("cold searches/s, over pylance's", 4,
                 lambda n: steps["search_cold"][n]["requests_per_s"] / _best_cold_peer(steps, n)),
        at_least("warm searches a core-second, over pylance's", 10,
                 lambda n: searches_per_core_second(n) / steps["lance_search_warm"][n]["requests_per_core_s"]),
        _goal("recall of those searches, less pylance's", recalls["bireme"] - recalls["lance"], 0, True),
        at_most("reads a row of ten payload columns", 1.0,
                lambda n: round(steps["payload_drive"][n]["nodes"]["drive_reads_per_row"], 2)),
        at_least("rows of ten payload columns a core-second, over pylance's", 20,
                 lambda n: payload_per_core_second(n) / steps["lance_payload"][n]["rows_per_core_s"]),
    ]  # fmt: skip


def _best_cold_peer(steps: dict, n: int) -> float:
    runs = [steps[name][n] for name in ["lance_search_cold", "lance_uring_search_cold"]]
    return max(run["requests_per_s"] for run in runs if "error" not in run)


def _of_instructions(found: dict) -> list[dict]:
    bireme = found["bireme"]["sum"]
    return [
        _goal("instructions for 1,000 random integers: pylance's over Bireme's", found["lance"]["sum"] / bireme, 3, True),
        _goal("instructions for 1,000 random integers: pyarrow's over Bireme's", found["parquet"]["sum"] / bireme, 50, True),
    ]


def _of_keys(found: dict) -> dict:
    return _goal("gets of one key a core-second, over pylance's", keys.over_pylance(found), 4, True)


def _of_cache(cache: dict) -> list[dict]:
    def mid(value: Callable[[dict], float]) -> float:
        return median(value(it) for it in cache["rounds"])

    def p99(step: str) -> Callable[[dict], float]:
        return lambda it: it[step]["latency_us"]["p99"] / it["reads_alone"]["latency_us"]["p99"]

    bireme = [policy for trace in cache["eviction"]["traces"] for policy in trace["policies"] if policy["policy"] == "bireme"]
    directory = mid(lambda it: it["directory"]["directory_bytes_per_tb"]) / 1e12
    return [
        _goal("seconds until a node with 1 M extents is ready", mid(lambda it: median(it["recovery"]["start_ms"])) / 1e3, 1, False),
        _goal("directory in RAM, of the bytes cached", directory, 0.003, False),
        _goal("writing extents that are ready, over fio's writes", mid(lambda it: it["write"]["mb_per_s"] / it["fio_write"]["mb_per_s"]), 0.9, True),
        _goal("writing extents that are ready, over tokio's file", mid(lambda it: it["write"]["mb_per_s"] / it["write"]["tokio_mb_per_s"]), 1.7, True),
        _goal("filling a table, over Lance's scan of it", mid(lambda it: it["fill"]["mb_per_s"] / it["scan"]["mb_per_s"]), 0.6, True),
        _goal("p99 of reads while the cache fills at full speed, over without", mid(p99("reads_filling")), 2, False),
        _goal("p99 of reads while it fills at 50 MiB/s, over without", mid(p99("reads_budgeted")), 1.2, False),
        _goal("rows/s in time at 3 times the load that it can take, over the best", mid(lambda it: it["overload"]["rows_per_s"] / it["capacity"]["rows_per_s"]), 0.9, True),
        _goal("bytes written for each byte cached, worst trace", max(it["written_ratio"] for it in bireme), 1.3, False),
    ]


def _of_telemetry(load: str, turns: dict) -> dict:
    name = {"search": "searches/s", "take": "rows/s, one a request,"}[load]
    return _goal(f"{name} with one request in a hundred traced, over none traced", told_ratio(turns["one_percent"][load]), 0.98, True)


def told_ratio(turns: list[dict]) -> float:
    """The rate of nodes that tell so much of it, over that of those beside them: the median of all turns."""
    return median(turn["told"]["requests_per_s"] / turn["beside"]["requests_per_s"] for turn in turns)
