"""Scales each tier up and down under load, and checks that the other one is not restarted."""

from ..check import check, say, step
from ..hits import Hits
from ..load import Load
from ..process import until


def io_tier(release) -> None:
    step("I/O tier 2 -> 4 -> 2 under load")
    query = uids(release, "query")
    with Load(release, "search"), Hits(release) as hits:
        release.upgrade("io.replicas=4")
        check("four I/O nodes", len(release.ready_pods("io")) == 4)
        until("query nodes to know them", lambda: len(reachable(release)) == 4)
        # New nodes take over their chunks gradually, and fill them when they are requested.
        until("a cache on each", lambda: all(node["extents"] for node in reachable(release)))
        say(f"   extents on each: {[node['extents'] for node in reachable(release)]}")
        release.upgrade("io.replicas=2")
        release.settled("io", 2)
        until("query nodes to forget the others", lambda: len(release.io_nodes()) == 2)
    hits.show()
    check("no query node was restarted", uids(release, "query") == query)


def query_tier(release) -> None:
    step("query tier 1 -> 3 -> 1 under load")
    release.upgrade("query.replicas=1")
    release.settled("query", 1)
    io = uids(release, "io")
    with Load(release, "search"):
        release.upgrade("query.replicas=3")
        check("three query nodes", len(release.ready_pods("query")) == 3)
        release.upgrade("query.replicas=1")
        release.settled("query", 1)
    check("no I/O node was restarted", uids(release, "io") == io)
    release.upgrade()
    release.settled("query", 2)


def uids(release, tier: str) -> set[str]:
    return {pod["metadata"]["uid"] for pod in release.pods(tier).values()}


def reachable(release) -> list[dict]:
    return [node for node in release.io_nodes() if node["reachable"]]
