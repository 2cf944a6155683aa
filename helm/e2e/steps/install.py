"""Installs the chart with default values and a table, and searches through both tiers from outside the cluster."""

import json

from .. import store
from ..check import check, step
from ..layout import CHART
from ..process import run


def defaults(release) -> None:
    step("helm install --wait with the fewest values, in a namespace of its own; helm test; uninstall")
    namespace = ["-n", "defaults"]
    run("helm", "install", "plain", CHART, *namespace, "--create-namespace", "--wait", "--timeout", "180s",
        "--set", "image.tag=e2e,access.mode=open", "--set-json", 'io.serve=["s3://tables/"]', timeout=200)
    check("helm test finds both tiers", "Succeeded" in run("helm", "test", "plain", *namespace, timeout=120))
    run("helm", "uninstall", "plain", *namespace, "--wait")
    run("kubectl", "delete", "namespace", "defaults")


def both_tiers(release) -> None:
    step("helm install with a table in MinIO and local drives")
    release.prepare()
    release.upgrade()
    check("two query nodes are ready", len(release.ready_pods("query")) == 2)
    check("two I/O nodes are ready", len(release.ready_pods("io")) == 2)


def search(release) -> None:
    step("a search from outside, through both tiers")
    release.warm()
    before = sum(node["rows"] for node in release.io_nodes())
    rows = release.ask("search", store.TABLE, "--like", "n02503517", "-k", 5, "--columns", f"{store.KEY},words")
    check("an elephant is nearest to itself", rows[0][store.KEY] == "n02503517", json.dumps(rows[0])[:80])
    nodes = release.io_nodes()
    check("both I/O nodes are known", len([node for node in nodes if node["reachable"]]) == 2)
    check("both have a part of the cache", all(node["extents"] for node in nodes),
          [node["extents"] for node in nodes])
    check("its rows came from the I/O nodes", sum(node["rows"] for node in nodes) > before)
