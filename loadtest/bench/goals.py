"""Compares results with goals. A ratio is taken within each round; the median of the rounds counts."""

from collections.abc import Callable
from statistics import median

from . import access, attacks, changes, clients, fairness, keys, limits, lookups, publishing, searches, store, tuned
from .beside import relative_rate
from .tier import core_seconds


def judge(results: dict) -> list[dict]:
    """Returns each goal with the measured value, the value to reach, and whether it holds."""
    goals = _round_goals(results["rounds"]) if "rounds" in results else []
    if "instructions" in results:
        goals += _instruction_goals(results["instructions"]["instructions_per_query"])
    if "keys" in results:
        goals.append(_key_goal(results["keys"]))
    pieces = {"lookups": lookups, "limits": limits, "clients": clients, "store": store, "searches": searches}
    pieces |= {"changes": changes, "tuned": tuned, "publishing": publishing}
    for name, piece in pieces.items():
        if name in results:
            goals += [_goal(*goal) for goal in piece.goals(results[name])]
    if "cache" in results:
        goals += _cache_goals(results["cache"])
    if "telemetry" in results:
        goals += [_telemetry_goal(load, results["telemetry"]["turns"]) for load in ["search", "take"]]
    if "access" in results:
        goals += [_access_goal(load, results["access"]["turns"]) for load in access.LOADS]
    if "fairness" in results:
        goals += [_fairness_goal(load, results["fairness"]) for load in fairness.LOADS]
    if "attacks" in results:
        goals += _attack_goals(results["attacks"])
    return goals


def _attack_goals(results: dict) -> list[dict]:
    goals = []
    for name, (title, _) in attacks.ATTACKS.items():
        if name == "none":
            continue
        health, slowdown = attacks.health_p99_ms(results, name), attacks.slowdown(results, name)
        goals.append(_goal(f"{title}: p99 of health checks, ms", health, attacks.HEALTH_P99_GOAL_MS, False))
        goals.append(_goal(f"{title}: good callers' p99, relative to the same attack on other nodes of the machine", slowdown, attacks.GOOD_CALLERS_GOAL, False))
    return goals


def _goal(name: str, value: float, goal: float, at_least: bool) -> dict:
    holds = value >= goal if at_least else value <= goal
    sign = "≥" if at_least else "≤"
    return {"name": name, "value": value, "goal": goal, "holds": holds, "sign": sign}


def _round_goals(rounds: dict) -> list[dict]:
    steps = rounds["steps"]
    numbers = range(len(steps["fio"]))

    def at_least(name: str, goal: float, value: Callable[[int], float]) -> dict:
        return _goal(name, median(value(n) for n in numbers), goal, True)

    def at_most(name: str, goal: float, value: Callable[[int], float]) -> dict:
        return _goal(name, median(value(n) for n in numbers), goal, False)

    # Use the same depth in all rounds: the best value of each round would partly be chosen by noise.
    depths = range(len(steps["fio"][0]))
    best_depth = max(depths, key=lambda at: median(it[at]["iops"] for it in steps["fio"]))

    def best_fio(n: int) -> dict:
        return steps["fio"][n][best_depth]

    def field_of(step: str, field: str) -> Callable[[int], float]:
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
        at_least("whole vectors from the drive: rows/s, relative to fio's best IOPS", 0.97,
                 lambda n: steps["drive_whole"][n]["rows_per_s"] / best_fio(n)["iops"]),
        at_most("whole vectors from the drive: I/O node's CPU per row, relative to fio's CPU per I/O", 1.5,
                lambda n: steps["drive_whole"][n]["nodes"]["io_cpu_us_per_row"] / best_fio(n)["cpu_us_per_io"]),
        at_most("one row through both tiers: p50 above fio's at depth 1, µs", 120,
                lambda n: above_fio("one_row_both", "", n)),
        at_most("one row through both tiers, both nodes polling: p50 above fio's at depth 1, µs", 120,
                lambda n: above_fio("one_row_both", "_polling", n)),
        at_most("one row from the I/O node: p50 above fio's at depth 1, µs", 60,
                lambda n: above_fio("one_row_node", "", n)),
        at_most("one row from the I/O node, polling: p50 above fio's at depth 1, µs", 60,
                lambda n: above_fio("one_row_node", "_polling", n)),
        at_most("16 rows per batch at 70 % of fio's IOPS: p99, relative to fio's at that rate", 2,
                lambda n: steps["rate"][n]["latency_us"]["p99"] / steps["fio_rate"][n]["p99_us"]),
        at_least("whole vectors, slab in memory: rows/s", 550_000, field_of("memory_whole", "rows_per_s")),
        at_least("vectors scored on the node, slab in memory: rows/s", 1_000_000, field_of("memory_scored", "rows_per_s")),
        at_least("vectors scored on the node, RAM tier: rows/s, relative to slab in memory", 1,
                 lambda n: steps["ram_scored"][n]["rows_per_s"] / steps["memory_scored"][n]["rows_per_s"]),
        at_least("vector search, index warm, rows from the drive: share of time in which the drive is busy", 0.95,
                 lambda n: steps["search_cold"][n]["disk"]["busy"]),
        at_least("vector search, index warm, rows from the drive: searches/s, relative to pylance's with the page cache dropped", 4,
                 lambda n: steps["search_cold"][n]["requests_per_s"] / _best_cold_peer(steps, n)),
        at_least("vector search, all warm: searches per core-second, relative to pylance's", 10,
                 lambda n: searches_per_core_second(n) / steps["lance_search_warm"][n]["requests_per_core_s"]),
        _goal("vector search: recall, minus pylance's", recalls["bireme"] - recalls["lance"], 0, True),
        at_most("ten payload columns from the drive: reads per row", 1.0,
                lambda n: round(steps["payload_drive"][n]["nodes"]["drive_reads_per_row"], 2)),
        at_least("ten payload columns, slab in memory: rows per core-second, relative to pylance's", 20,
                 lambda n: payload_per_core_second(n) / steps["lance_payload"][n]["rows_per_core_s"]),
    ]  # fmt: skip


def _best_cold_peer(steps: dict, n: int) -> float:
    runs = [steps[name][n] for name in ["lance_search_cold", "lance_uring_search_cold"]]
    return max(run["requests_per_s"] for run in runs if "error" not in run)


def _instruction_goals(found: dict) -> list[dict]:
    bireme = found["bireme"]["sum"]
    return [
        _goal("instructions for 1,000 random integers: pylance's, relative to Bireme's", found["lance"]["sum"] / bireme, 3, True),
        _goal("instructions for 1,000 random integers: pyarrow's, relative to Bireme's", found["parquet"]["sum"] / bireme, 50, True),
    ]


def _key_goal(found: dict) -> dict:
    return _goal("gets of one key per core-second, relative to pylance's", keys.over_pylance(found), 4, True)


def _cache_goals(cache: dict) -> list[dict]:
    def mid(value: Callable[[dict], float]) -> float:
        return median(value(it) for it in cache["rounds"])

    def p99(step: str) -> Callable[[dict], float]:
        return lambda it: it[step]["latency_us"]["p99"] / it["reads_alone"]["latency_us"]["p99"]

    bireme = [policy for trace in cache["eviction"]["traces"] for policy in trace["policies"] if policy["policy"] == "bireme"]
    directory = mid(lambda it: it["directory"]["directory_bytes_per_tb"]) / 1e12
    return [
        _goal("seconds until a node with 1 M extents is ready", mid(lambda it: median(it["recovery"]["start_ms"])) / 1e3, 1, False),
        _goal("directory in RAM: bytes per byte cached", directory, 0.003, False),
        _goal("writing encoded extents: MB/s, relative to fio's writes", mid(lambda it: it["write"]["mb_per_s"] / it["fio_write"]["mb_per_s"]), 0.9, True),
        _goal("writing encoded extents: MB/s, relative to tokio's file", mid(lambda it: it["write"]["mb_per_s"] / it["write"]["tokio_mb_per_s"]), 1.7, True),
        _goal("filling a table: MB/s, relative to Lance's scan of it", mid(lambda it: it["fill"]["mb_per_s"] / it["scan"]["mb_per_s"]), 0.6, True),
        _goal("p99 of reads while the cache fills at full speed, relative to no fill", mid(p99("reads_filling")), 2, False),
        _goal("p99 of reads while the cache fills at 50 MiB/s, relative to no fill", mid(p99("reads_budgeted")), 1.2, False),
        _goal("rows/s in time at 3 times the capacity, relative to the capacity", mid(lambda it: it["overload"]["rows_per_s"] / it["capacity"]["rows_per_s"]), 0.9, True),
        _goal("hit ratio of the eviction policy less that of LRU, worst trace", min(_over_lru(it) for it in cache["eviction"]["traces"]), 0, True),
        _goal("bytes written per byte cached, worst trace", max(it["written_ratio"] for it in bireme), 1.3, False),
    ]


def _over_lru(trace: dict) -> float:
    ratios = {it["policy"]: it["hit_ratio"] for it in trace["policies"]}
    return ratios["bireme"] - ratios["LRU"]


def _telemetry_goal(load: str, turns: dict) -> dict:
    name = {"search": "searches/s", "take": "takes of one row/s"}[load]
    return _goal(f"{name} with one request in a hundred traced, relative to none", relative_rate(turns["one_percent"][load]), 0.98, True)


def _access_goal(load: str, turns: dict) -> dict:
    rate = relative_rate(turns["key"][load])
    return _goal(f"{access.LOADS[load].title} of callers with an API key, relative to open access", rate, 0.97, True)


def _fairness_goal(load: str, results: dict) -> dict:
    title = fairness.LOADS[load].title
    name = f"p99 of {title} beside a grant that asks for ten times its share, relative to p99 beside its own share"
    return _goal(name, fairness.median_rise(results, load), 1.5, False)
