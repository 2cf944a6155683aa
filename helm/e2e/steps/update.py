"""Tests upgrades, rollbacks and rolling restarts under load."""

from ..archives import BIREME
from ..check import check, say, step
from ..hits import Hits
from ..load import Load
from ..process import until
from ..release import NAME
from .scale import uids

# The highest allowed share of rows that come from the table because a read of the drive took too long.
LATE_MAX = 0.001
# Another name of the same image.
OTHER = "bireme:e2e-other"


def upgrade_and_rollback(release) -> None:
    step("helm upgrade of the query tier's settings, and rollback")
    io, query = uids(release, "io"), uids(release, "query")
    release.upgrade('query.settings.timeout="20s"')
    release.settled("query", 2)
    changed = uids(release, "query")
    check("query nodes were replaced", not changed & query)
    release.helm("rollback", NAME)
    release.settled("query", 2)
    check("and again by the rollback", not uids(release, "query") & changed)
    check("I/O nodes were left alone", uids(release, "io") == io)
    configuration = release.kubectl("get", "configmap", "bireme-query", "-o", "jsonpath={.data}")
    check("the configuration is the old one", "timeout" not in configuration)


def rolling_restart(release, tier: str) -> None:
    step(f"rolling restart of the {tier} tier under load")
    release.warm()
    before = uids(release, tier)
    kind = {"query": "deployment/bireme-query", "io": "statefulset/bireme-io"}[tier]
    with Load(release, "search", 45), Hits(release) as hits:
        release.kubectl("rollout", "restart", kind)
        release.rollout(tier)
        release.settled(tier, 2)
    hits.show()
    check("every pod was replaced", not uids(release, tier) & before)
    if tier == "io":
        caches_are_warm(release)


def on_every_node(release) -> None:
    nodes = release.nodes()
    step(f"rolling restart under load of a query tier with one pod on each of {len(nodes)} nodes")
    release.upgrade('query.antiAffinity="hard"', f"query.replicas={len(nodes)}")
    release.settled("query", len(nodes))
    on = {pod["spec"]["nodeName"] for pod in release.pods("query").values()}
    check("there is no node for one more", on == set(nodes), sorted(on))
    before = uids(release, "query")
    with Load(release, "search", 60):
        release.kubectl("rollout", "restart", "deployment/bireme-query")
        release.rollout("query")
        release.settled("query", len(nodes))
    check("every pod was replaced", not uids(release, "query") & before)
    release.upgrade()
    release.settled("query", 2)


def caches_are_warm(release) -> None:
    for node in release.io_nodes():
        say(f"   {node['endpoint']}: {node['rows']} rows, {node['table_rows']} of them from the table")
        check("the node found its cache again", node["extents"] > 0, f"{node['extents']} extents")
        # Reads of the drive may be late at times, because other work shares the machine.
        late = node["rows"] * LATE_MAX
        check("what it served since came from its drive", node["rows"] > 0 and node["table_rows"] <= late)


def partition(release) -> None:
    step("a canary: only I/O nodes from the partition on are updated")
    before = {name: pod["metadata"]["uid"] for name, pod in release.pods("io").items()}
    release.upgrade("io.updateStrategy.partition=1", "io.podAnnotations={\"canary\": \"yes\"}")
    release.settled("io", 2)
    after = {name: pod["metadata"]["uid"] for name, pod in release.pods("io").items()}
    check("bireme-io-0 stayed", after["bireme-io-0"] == before["bireme-io-0"])
    check("bireme-io-1 was updated", after["bireme-io-1"] != before["bireme-io-1"])
    release.upgrade()
    release.rollout("io")


def another_image(release) -> None:
    step("rolling upgrade of both tiers to another image, under load, and rollback")
    for worker in release.cluster.workers:
        worker.ctr("images", "tag", f"docker.io/library/{BIREME}", f"docker.io/library/{OTHER}")
    release.warm()
    before = pods(release)
    with Load(release, "search", 90), Hits(release) as hits:
        release.upgrade(f'image.tag="{OTHER.split(":")[1]}"')
        both_settled(release)
        check("every pod was replaced", not pods(release) & before)
        check("all run the other image", images(release) == {OTHER}, images(release))
        until("rows of each", lambda: all(node["rows"] for node in release.io_nodes()))
        caches_are_warm(release)
        upgraded = pods(release)
        release.helm("rollback", NAME)
        both_settled(release)
        check("and every pod again by the rollback", not pods(release) & upgraded)
        check("all run the first image", images(release) == {BIREME}, images(release))
    hits.show()
    caches_are_warm(release)


def both_settled(release) -> None:
    for tier in ("io", "query"):
        release.rollout(tier)
        release.settled(tier, 2)


def pods(release) -> set[str]:
    return uids(release, "io") | uids(release, "query")


def images(release) -> set[str]:
    found = [*release.pods("io").values(), *release.pods("query").values()]
    return {pod["spec"]["containers"][0]["image"] for pod in found}
