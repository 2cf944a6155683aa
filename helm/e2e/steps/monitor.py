"""Tests the chart's monitor and rules with a Prometheus that uses them.

Debian's Prometheus has no Kubernetes discovery, so its configuration lists every pod's ports, with the labels that
discovery would find."""

import json
import re
import urllib.parse
import urllib.request

from ..check import check, step
from ..cluster import definitions
from ..layout import CACHE, STATE
from ..process import Background, Failed, until
from ..release import NAMESPACE

PROMETHEUS, ADDRESS = CACHE / "prometheus" / "usr" / "bin" / "prometheus", "127.0.0.1:29090"


def followed(release) -> None:
    step("PodMonitor and PrometheusRule, and a Prometheus that uses them")
    definitions.install()
    release.upgrade('telemetry.monitor.kind="PodMonitor"', "telemetry.rules.enabled=true")
    home = STATE / "prometheus"
    home.mkdir()
    (home / "rules.yml").write_text(json.dumps(release.objects("prometheusrules")[0]["spec"]))
    (home / "prometheus.yml").write_text(json.dumps(
        configuration(release.objects("podmonitors")[0]["spec"], [*map(ports, release.objects("pods"))])))
    server = Background("prometheus", PROMETHEUS, f"--config.file={home}/prometheus.yml",
                        f"--storage.tsdb.path={home}/data", f"--web.listen-address={ADDRESS}")
    try:
        for tier in ("io", "query"):
            query, pods = f'up{{job="bireme-{tier}", namespace="{NAMESPACE}"}} == 1', set(release.ready_pods(tier))
            until(f"{tier} to be scraped", lambda: instances(query) == pods)
            check(f"{tier}: each pod is scraped under its name", True, ", ".join(sorted(pods)))
        recorded = "instance:bireme_io_batches_shed:ratio_rate5m"
        until("rules", lambda: instances(recorded) == set(release.ready_pods("io")))
        check("rules are evaluated", True, recorded)
    finally:
        server.stop()
    release.upgrade()


def ports(pod: dict) -> list[dict]:
    """Returns a pod's ports as targets, with the labels of Kubernetes' service discovery."""
    labels = {meta("label", name): value for name, value in pod["metadata"]["labels"].items()}
    labels |= {"__meta_kubernetes_namespace": NAMESPACE, "__meta_kubernetes_pod_name": pod["metadata"]["name"]}
    return [
        {"targets": [f"{pod['status']['podIP']}:{port['containerPort']}"],
         "labels": {**labels, "__meta_kubernetes_pod_container_port_name": port["name"]}}
        for container in pod["spec"]["containers"] for port in container.get("ports", [])
    ]


def configuration(monitor: dict, pods: list[list[dict]]) -> dict:
    """Returns Prometheus' configuration as the operator would write it."""
    (endpoint,) = monitor["podMetricsEndpoints"]
    of_target = [{"source_labels": [meta("label", name)], "regex": value, "action": "keep"}
              for name, value in monitor["selector"]["matchLabels"].items()]
    of_target += [{"source_labels": [meta("label", it["key"])], "regex": "|".join(it["values"]), "action": "keep"}
               for it in monitor["selector"]["matchExpressions"]]
    of_target += [{"source_labels": [meta("container", "port_name")], "regex": endpoint["port"], "action": "keep"},
               {"source_labels": ["__meta_kubernetes_namespace"], "target_label": "namespace"}]
    own = [{snake(key): value for key, value in rule.items()} for rule in endpoint["relabelings"]]
    return {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(STATE / "prometheus" / "rules.yml")],
        "scrape_configs": [{"job_name": "monitor", "metrics_path": endpoint["path"],
                            "static_configs": [port for pod in pods for port in pod],
                            "relabel_configs": of_target + own}],
    }


def meta(of: str, name: str) -> str:
    return f"__meta_kubernetes_pod_{of}_" + re.sub(r"[^a-zA-Z0-9_]", "_", name)


def snake(name: str) -> str:
    return re.sub(r"[A-Z]", lambda letter: f"_{letter[0].lower()}", name)


def instances(query: str) -> set[str]:
    asked = urllib.parse.urlencode({"query": query})
    try:
        with urllib.request.urlopen(f"http://{ADDRESS}/api/v1/query?{asked}", timeout=5) as answer:
            return {series["metric"]["instance"] for series in json.load(answer)["data"]["result"]}
    except OSError as error:
        raise Failed(f"Prometheus does not answer: {error}") from None
