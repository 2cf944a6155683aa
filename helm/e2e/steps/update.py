"""Upgrades, rollbacks and rolling restarts under load."""

from ..check import check, say, step
from ..load import Load
from ..release import NAME
from .scale import uids

# The share of rows that may come from the table because a read of the drive took too long.
LATE_MAX = 0.001


def upgrade_and_rollback(release) -> None:
    step("helm upgrade of the query tier's settings, and rollback")
    io, query = uids(release, "io"), uids(release, "query")
    release.upgrade("query.settings.nprobes=7")
    release.settled("query", 2)
    changed = uids(release, "query")
    check("query nodes were replaced", not changed & query)
    release.helm("rollback", NAME)
    release.settled("query", 2)
    check("and again by the rollback", not uids(release, "query") & changed)
    check("I/O nodes were left alone", uids(release, "io") == io)
    configuration = release.kubectl("get", "configmap", "bireme-query", "-o", "jsonpath={.data}")
    check("the configuration is the old one", "nprobes" not in configuration)


def rolling_restart(release, tier: str) -> None:
    step(f"rolling restart of the {tier} tier under load")
    release.warm()
    before = uids(release, tier)
    kind = {"query": "deployment/bireme-query", "io": "statefulset/bireme-io"}[tier]
    with Load(release, "search", 45):
        release.kubectl("rollout", "restart", kind)
        release.rollout(tier)
        release.settled(tier, 2)
    check("every pod was replaced", not uids(release, tier) & before)
    if tier == "io":
        caches_are_warm(release)


def caches_are_warm(release) -> None:
    for node in release.io_nodes():
        say(f"   {node['endpoint']}: {node['rows']} rows, {node['table_rows']} of them from the table")
        check("the node found its cache again", node["extents"] > 0, f"{node['extents']} extents")
        # The drive's reads may be late once in a while, on a machine that does other things as well.
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
