"""Scrapes the metrics of both tiers from the running pods."""

import re

from .. import store
from ..check import check, step
from ..cluster.addresses import METRICS_PORT
from ..process import run
from ..release import NAMESPACE

# A counter of each tier that is above 0 after a search.
COUNTED = {"io": "bireme_io_rows_total", "query": "rpc_server_call_duration_seconds_count"}


def scraped(release) -> None:
    step("metrics of each pod, through the API server")
    release.ask("search", store.TABLE, "--like", "n02503517", "-k", 5)
    for tier, counter in COUNTED.items():
        texts = {pod: pod_metrics(pod) for pod in release.ready_pods(tier)}
        named = all(f'service_instance_id="{pod}"' in text for pod, text in texts.items())
        check(f"{tier}: each pod's metrics carry its name", texts and named, ", ".join(texts))
        counts = [total(text, counter) for text in texts.values()]
        check(f"{tier}: they have counted", sum(counts) > 0, f"{counter} {counts}")
    # The query nodes' service is of type NodePort, and does not have the metrics port.
    check("the I/O nodes' service has the port", COUNTED["io"] in scrape("services", "bireme-io:metrics"))
    ports = [port["name"] for port in release.objects("service", "query")[0]["spec"]["ports"]]
    check("a service that is open to all has not", ports == ["grpc"], ports)


def pod_metrics(name: str, namespace: str = NAMESPACE) -> str:
    return scrape("pods", f"{name}:{METRICS_PORT}", namespace)


def scrape(kind: str, name: str, namespace: str = NAMESPACE) -> str:
    return run("kubectl", "get", "--raw", f"/api/v1/namespaces/{namespace}/{kind}/{name}/proxy/metrics")


def total(text: str, counter: str) -> float:
    return sum(float(value) for value in re.findall(rf"^{counter}(?:{{.*}})? (\S+)$", text, re.M))
