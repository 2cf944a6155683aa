"""Each tier up and down under load; the other one is not touched."""

from ..check import check, step
from ..load import Load


def io_tier(release) -> None:
    step("I/O tier 2 -> 4 -> 2 under load")
    query = uids(release, "query")
    with Load(release, "search", 60):
        release.upgrade("io.replicas=4")
        check("four I/O nodes", len(release.ready_pods("io")) == 4)
        release.upgrade("io.replicas=2")
        release.settled("io", 2)
    check("no query node was restarted", uids(release, "query") == query)


def query_tier(release) -> None:
    step("query tier 1 -> 3 -> 1 under load")
    release.upgrade("query.replicas=1")
    release.settled("query", 1)
    io = uids(release, "io")
    with Load(release, "search", 40):
        release.upgrade("query.replicas=3")
        check("three query nodes", len(release.ready_pods("query")) == 3)
        release.upgrade("query.replicas=1")
        release.settled("query", 1)
    check("no I/O node was restarted", uids(release, "io") == io)
    release.upgrade()
    release.settled("query", 2)


def uids(release, tier: str) -> set[str]:
    return {pod["metadata"]["uid"] for pod in release.pods(tier).values()}
