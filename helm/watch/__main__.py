"""Starts nodes, load and two Prometheus servers, and evaluates every query."""

import argparse
import math
import shutil
import sys
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

from e2e.check import say
from e2e.layout import LOGS, STATE
from e2e.process import Failed

from . import load, nodes, queries
from .prometheus import FLAGS, Prometheus, value

# The time for which load runs before the queries, in seconds: two of the rate windows that dashboards use here.
SETTLED = 40


def main() -> int:
    parser = argparse.ArgumentParser(prog="python3 -m watch", description=__doc__)
    parser.add_argument("--bireme", type=Path, required=True, help="the binary")
    bireme = parser.parse_args().bireme
    shutil.rmtree(STATE, ignore_errors=True)
    shutil.rmtree(LOGS, ignore_errors=True)
    LOGS.mkdir(parents=True)
    STATE.mkdir(parents=True)
    try:
        with nodes.running(bireme) as watched, watching(watched) as servers, load.running(watched):
            say(f"the load runs; queries follow after {SETTLED} s, when it fills the rates' windows")
            time.sleep(SETTLED)
            return count_empty(servers) + count_firing(servers)
    except Failed as error:
        say(f"FAILED: {error}; logs are in {LOGS}")
        return 1
    finally:
        shutil.rmtree(STATE, ignore_errors=True)


@contextmanager
def watching(watched: nodes.Nodes):
    servers = {histograms: Prometheus(histograms, watched.targets) for histograms in FLAGS}
    try:
        for server in servers.values():
            server.ready()
        yield servers
    finally:
        for server in servers.values():
            server.stop()


def count_empty(servers: dict[str, Prometheus]) -> int:
    """Evaluates every query and prints the number of series and the highest value, by both ways of scraping. Returns
    the number of queries without a value."""
    rules = queries.of_rules(servers["classic"])
    asked = [*queries.of_dashboards(), *rules, *queries.of_scalers(), *queries.of_runbooks()]
    print(line("", "", *(f"{name}: series, highest" for name in servers)))
    empty = []
    for query in asked:
        found = [values(server, query) for server in servers.values()]
        print(line(query.where, query.what, *(f"{len(it)} {max(it):12.4g}" if it else "none" for it in found)))
        if not all(found):
            empty.append(query)
    for query in empty:
        say(f"NO VALUE: {query.where}, {query.what}: {query.expr}")
    counts = Counter(query.where for query in asked)
    say(f"{len(asked) - len(empty)} of {len(asked)} queries have values: {dict(counts)}")
    return len(empty)


def count_firing(servers: dict[str, Prometheus]) -> int:
    """Returns the number of alerts that fire. None should, because the nodes are healthy."""
    query = 'count by (alertname) (ALERTS{alertstate="firing"})'
    firing = {found["metric"]["alertname"] for server in servers.values() for found in server.series(query)}
    for alert in sorted(firing):
        say(f"FIRES: {alert}, although the nodes are healthy")
    return len(firing)


def line(where: str, what: str, *found: str) -> str:
    return f"{where:18} {what[:64]:64} " + " ".join(f"{it:>24}" for it in found)


def values(server: Prometheus, query: queries.Query) -> list[float]:
    """Returns the values, except NaN, of the series that have the labels that the query needs."""
    found = [value(series) for series in server.series(query.expr) if query.needs <= series.get("metric", {}).keys()]
    return [it for it in found if not math.isnan(it)]


sys.exit(bool(main()))
