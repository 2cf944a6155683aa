"""The query tier by its CPU: more nodes under load."""

import json

from ..check import check, step
from ..cluster import metrics
from ..load import Load
from ..process import until
from ..samples import Samples
from .scale import uids

# So little is requested that the load is more than the target.
LITTLE = 'query.resources.requests.cpu="20m"'
ONE_TO_THREE = {"enabled": True, "minReplicas": 1, "maxReplicas": 3}
BY_CPU = f"query.autoscaling={json.dumps(ONE_TO_THREE | {'targetCPUUtilization': 50})}"
# By a metric that nobody serves here, so that the number is left to the chart.
BY_NOBODY = f"io.autoscaling={json.dumps({'type': 'hpa', 'minReplicas': 1, 'readQueue': {'enabled': True}})}"


def by_cpu(release) -> None:
    step("both tiers are scaled from now on, under load, and the query tier by its CPU")
    release.cluster.processes["metrics"] = metrics.up()
    release.upgrade(LITTLE)
    release.settled("query", 2)
    io = uids(release, "io")
    with Load(release, "search", 75, rate=60), Samples(0.2, lambda: wanted(release)) as seen:
        release.upgrade(LITTLE, BY_CPU, BY_NOBODY)
        until("three query nodes", lambda: len(release.ready_pods("query")) == 3, 65)
    fewest = {tier: min(counts[tier] for counts in seen.values()) for tier in ("query", "io")}
    check("no tier had fewer nodes than before meanwhile", fewest == {"query": 2, "io": 2}, fewest)
    check("no I/O node was restarted", uids(release, "io") == io)
    release.upgrade(LITTLE, BY_CPU)
    check("another release leaves the number to the scaler", wanted(release)["query"] == 3)
    release.upgrade(force=True)
    release.settled("query", 2)
    check("without a scaler the number is the values' again", wanted(release) == {"query": 2, "io": 2})


def wanted(release) -> dict[str, int]:
    """How many nodes each tier is to have."""
    found = release.objects("deployments,statefulsets")
    return {it["metadata"]["labels"]["app.kubernetes.io/component"]: it["spec"]["replicas"] for it in found}
