"""The query tier by its CPU: more nodes under load."""

from ..check import check, step
from ..cluster import metrics
from ..load import Load
from ..process import until


def by_cpu(release) -> None:
    step("the query tier is scaled by CPU under load")
    release.cluster.processes["metrics"] = metrics.up()
    # So little is requested that the load is more than the target.
    release.upgrade("query.autoscaling={\"enabled\": true, \"minReplicas\": 1, \"maxReplicas\": 3, "
                    "\"targetCPUUtilization\": 50}", "query.resources.requests.cpu=\"20m\"")
    io = {pod["metadata"]["uid"] for pod in release.pods("io").values()}
    with Load(release, "search", 90, rate=60):
        until("three query nodes", lambda: len(release.ready_pods("query")) == 3, 80)
    check("no I/O node was restarted", {pod["metadata"]["uid"] for pod in release.pods("io").values()} == io)
    release.upgrade()
    release.settled("query", 2)
