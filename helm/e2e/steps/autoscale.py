"""Scales the query tier under load, by CPU and by its requests in progress, and checks that the I/O tier's scaler sees
its metrics."""

import json
import re
import time

from ..check import check, step
from ..cluster import metrics
from ..cluster.custom_metrics import CustomMetrics
from ..load import Load
from ..process import until
from ..samples import Samples
from .metrics import total
from .scale import uids

# The pods request so little CPU that the load exceeds the target.
LITTLE = 'query.resources.requests.cpu="20m"'
ONE_TO_THREE = {"enabled": True, "minReplicas": 1, "maxReplicas": 3}
BY_CPU = f"query.autoscaling={json.dumps(ONE_TO_THREE | {'targetCPUUtilization': 50})}"
# Scales by a metric that nothing serves here, so that the number of I/O nodes stays as the chart sets it.
BY_ABSENT_METRIC = f"io.autoscaling={json.dumps({'type': 'hpa', 'minReplicas': 1, 'readQueue': {'enabled': True}})}"

# The chart's default metrics.
UNDER_WAY, READ_QUEUE = "bireme_query_requests_under_way", "bireme_io_ring_queue"
MISS_RATIO = "instance:bireme_io_rows_from_table:ratio_rate5m"
OF_REQUESTS = {"targetCPUUtilization": 0, "requestsUnderWay": {"enabled": True, "target": 1}}
BY_REQUESTS = f"query.autoscaling={json.dumps(ONE_TO_THREE | OF_REQUESTS)}"
# The scaler sees these metrics, but cannot scale, because its minimum equals its maximum.
BOTH = {"readQueue": {"enabled": True}, "missRatio": {"enabled": True}}
OF_IO = {"type": "hpa", "minReplicas": 2, "maxReplicas": 2, **BOTH}
SEEN = f"io.autoscaling={json.dumps(OF_IO)}"
# Another segment size empties the slab, and rows come from the table until it is filled again, slowly.
EMPTIED = ['io.settings.segment="16MiB"', 'io.settings.fill_rate="1MiB"']


def by_cpu(release) -> None:
    step("both tiers get scalers under load, and the query tier is scaled by its CPU")
    release.cluster.processes["metrics"] = metrics.up()
    release.upgrade(LITTLE)
    release.settled("query", 2)
    io = uids(release, "io")
    with Load(release, "search", 75, rate=60), Samples(0.2, lambda: wanted(release)) as seen:
        release.upgrade(LITTLE, BY_CPU, BY_ABSENT_METRIC)
        until("three query nodes", lambda: len(release.ready_pods("query")) == 3, 65)
    fewest = {tier: min(counts[tier] for counts in seen.values()) for tier in ("query", "io")}
    check("no tier had fewer nodes than before at any time", fewest == {"query": 2, "io": 2}, fewest)
    check("no I/O node was restarted", uids(release, "io") == io)
    release.upgrade(LITTLE, BY_CPU)
    check("another upgrade leaves the number to the scaler", wanted(release)["query"] == 3)
    release.upgrade(force=True)
    release.settled("query", 2)
    check("without a scaler the number is that of the values again", wanted(release) == {"query": 2, "io": 2})


def wanted(release) -> dict[str, int]:
    """Returns the number of replicas that each tier is set to."""
    found = release.objects("deployments,statefulsets")
    return {it["metadata"]["labels"]["app.kubernetes.io/component"]: it["spec"]["replicas"] for it in found}


def by_requests(release) -> None:
    step("both tiers' scalers see the chart's custom metrics, and the query tier is scaled by its requests in progress")
    ratio = RecentRatio("bireme_io_rows_from_table_total", "bireme_io_rows_total")
    release.cluster.processes["custom_metrics"] = CustomMetrics(
        {UNDER_WAY: gauge(UNDER_WAY), READ_QUEUE: gauge(READ_QUEUE), MISS_RATIO: ratio.of})
    release.upgrade("query.replicas=1", *EMPTIED)
    release.rollout("io")
    release.settled("io", 2)
    release.settled("query", 1)
    # Each caller repeats its request as soon as it is answered.
    with Load(release, "get", 75, callers=24), Samples(1, lambda: seen_by_scalers(release)) as seen:
        release.upgrade(*EMPTIED, BY_REQUESTS, SEEN)
        until("three query nodes", lambda: len(release.ready_pods("query")) == 3, 65)
        until("the I/O tier's metrics", lambda: {READ_QUEUE, MISS_RATIO} <= set(seen_by_scalers(release)))
    most = {name: max(it[name] for it in seen.values() if name in it) for name in (UNDER_WAY, READ_QUEUE, MISS_RATIO)}
    check("the scaler saw requests in progress", most[UNDER_WAY] > 1, f"{most[UNDER_WAY]:g} per node")
    check("the I/O tier's scaler saw the share of rows from the table, and the reads waiting", 0 < most[MISS_RATIO] < 1,
          f"{most[MISS_RATIO]:.1%}, {most[READ_QUEUE]:g} per node")
    release.upgrade(force=True)
    release.rollout("io")
    release.settled("io", 2)
    release.settled("query", 2)


def gauge(name: str):
    return lambda _, text: total(text, name) if re.search(rf"^{name}[ {{]", text, re.M) else None


class RecentRatio:
    """The ratio of two counters' growth for each pod, over the last 5 minutes, or since the pod was first scraped or
    started. It stands for the chart's recording rule."""

    SECONDS = 300

    def __init__(self, part: str, whole: str):
        self.part, self.whole = part, whole
        self.seen: dict[str, list[tuple[float, float, float]]] = {}

    def of(self, pod: str, text: str) -> float | None:
        now = (time.monotonic(), total(text, self.part), total(text, self.whole))
        kept = self.seen.setdefault(pod, [(now[0], 0, 0)])
        if now[2] < kept[-1][2]:
            kept[:] = [(now[0], 0, 0)]
        kept.append(now)
        while kept[0][0] < now[0] - self.SECONDS:
            kept.pop(0)
        grown = now[2] - kept[0][2]
        return (now[1] - kept[0][1]) / grown if grown else None


def seen_by_scalers(release) -> dict[str, float]:
    """Returns each metric's value per pod, as the scalers report it."""
    found = {}
    for scaler in release.objects("horizontalpodautoscalers"):
        for metric in scaler["status"].get("currentMetrics") or []:
            if metric.get("pods"):
                found[metric["pods"]["metric"]["name"]] = quantity(metric["pods"]["current"]["averageValue"])
    return found


def quantity(text: str) -> float:
    return float(text[:-1]) / 1000 if text.endswith("m") else float(text)
