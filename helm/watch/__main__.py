"""The run: nodes, load, Prometheus twice, every query."""

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

# After load has begun, for rates to be of load: two of the windows that dashboards get here.
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
        with nodes.running(bireme) as watched, watching(watched) as servers, load.on(watched):
            say(f"load is on; {SETTLED} s until rates are of it")
            time.sleep(SETTLED)
            return verdict(servers) + fires(servers)
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


def verdict(servers: dict[str, Prometheus]) -> int:
    """Asks everything, and shows how many series there were and the highest value, by either way of scraping."""
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


def fires(servers: dict[str, Prometheus]) -> int:
    """Nothing is wrong with these nodes, and no alert is to say so."""
    query = 'count by (alertname) (ALERTS{alertstate="firing"})'
    firing = {found["metric"]["alertname"] for server in servers.values() for found in server.series(query)}
    for alert in sorted(firing):
        say(f"FIRES: {alert}, on nodes that are well")
    return len(firing)


def line(where: str, what: str, *found: str) -> str:
    return f"{where:18} {what[:64]:64} " + " ".join(f"{it:>24}" for it in found)


def values(server: Prometheus, query: queries.Query) -> list[float]:
    """Those that are numbers, of the series that have the labels that they need."""
    found = [value(series) for series in server.series(query.expr) if query.needs <= series.get("metric", {}).keys()]
    return [it for it in found if not math.isnan(it)]


sys.exit(bool(main()))
