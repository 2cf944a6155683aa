"""Tests the chart's NetworkPolicies: the pods and ports that they select, and what they let through."""

import json
import socketserver
import threading
from contextlib import contextmanager

from .. import store
from ..check import check, say, step
from ..cluster.addresses import HOST, METRICS_PORT, PORTS, PROBES_PORT
from ..cluster.control_plane import API_PORT
from ..cluster.manifest import apply
from ..process import Failed, run, until
from ..release import NAMESPACE

# A pod of the namespace that no policy selects.
STRANGER = "stranger"
# A port of the host that nothing in the values names.
UNNAMED = 29100


def in_force(release) -> None:
    step("network policies select each tier's pods, and let through what the tiers need and nothing else")
    for tier in PORTS:
        selected(release, tier)
    if not release.cluster.enforces_policies:
        say("   whether they are enforced is left out: this machine cannot enforce them")
        return
    apply(stranger())
    with listener():
        until("a pod that no policy selects", lambda: STRANGER in release.ready_pods(STRANGER))
        between_pods(release)
        out_of_the_cluster(release)
    scraped_by_some(release)
    release.kubectl("delete", "pod", STRANGER, "--grace-period=0")
    rows = release.ask("search", store.TABLE, "--like", "n02503517", "-k", 5)
    check("a search from outside goes through both tiers", rows[0][store.KEY] == "n02503517")


def selected(release, tier: str) -> None:
    policy = json.loads(release.kubectl("get", "networkpolicy", f"bireme-{tier}", "-o", "json"))["spec"]
    labels = ",".join(f"{name}={value}" for name, value in policy["podSelector"]["matchLabels"].items())
    pods = json.loads(release.kubectl("get", "pods", "-l", labels, "-o", "json"))["items"]
    check(f"the policy of {tier} selects its pods", {it["metadata"]["name"] for it in pods} == set(release.pods(tier)))
    named = {port["port"] for rule in policy["ingress"] for port in rule["ports"]}
    ports = {port["name"]: port["containerPort"] for port in pods[0]["spec"]["containers"][0]["ports"]}
    expected = {"grpc": PORTS[tier], "metrics": METRICS_PORT, "probes": PROBES_PORT}
    check("its ports are those of the pods", named == set(ports) and ports == expected, ports)


def between_pods(release) -> None:
    query, io = (address(release, tier) for tier in PORTS)
    for what, tier, to, port, open_ in (
        ("other pods reach query nodes", STRANGER, query, PORTS["query"], True),
        ("other pods reach no I/O nodes", STRANGER, io, PORTS["io"], False),
        ("query nodes reach I/O nodes", "query", io, PORTS["io"], True),
        ("I/O nodes reach no query nodes", "io", query, PORTS["query"], False),
        ("other pods reach the probes of I/O nodes", STRANGER, io, PROBES_PORT, True),
    ):
        settled(release, what, tier, to, port, open_)


def out_of_the_cluster(release) -> None:
    for tier in PORTS:
        settled(release, f"pods of {tier} reach the object store", tier, HOST, store.PORT, True)
        settled(release, f"pods of {tier} reach no port that the values don't name", tier, HOST, UNNAMED, False)
    settled(release, "query nodes reach the API server", "query", HOST, API_PORT, True)
    settled(release, "other pods reach that port", STRANGER, HOST, UNNAMED, True)


def scraped_by_some(release) -> None:
    io = address(release, "io")
    settled(release, "everybody may scrape", STRANGER, io, METRICS_PORT, True)
    release.upgrade('networkPolicy.metricsFrom=[{"namespaceSelector": {"matchLabels": {"scrapes": "yes"}}}]')
    settled(release, "only the namespaces of the values may scrape", STRANGER, io, METRICS_PORT, False)
    run("kubectl", "label", "namespace", NAMESPACE, "scrapes=yes")
    settled(release, "those may", STRANGER, io, METRICS_PORT, True)
    release.upgrade()


def settled(release, what: str, tier: str, to: str, port: int, open_: bool) -> None:
    """Checks whether a pod of the tier reaches an address, once the enforcer has followed the last change."""
    pid = release.pid(tier, min(release.pods(tier)))
    try:
        until(what, lambda: reaches(pid, to, port) == open_, 30, every=1)
        check(what, True)
    except Failed:
        check(what, False)


def reaches(pid: int, to: str, port: int) -> bool:
    """Returns whether a connection from the pod's network is accepted."""
    connect = ["timeout", "2", "bash", "-c", f"exec 3<>/dev/tcp/{to}/{port}"]
    try:
        run("nsenter", f"--net=/proc/{pid}/ns/net", *connect)
        return True
    except Failed:
        return False


def address(release, tier: str) -> str:
    return min(release.pods(tier).items())[1]["status"]["podIP"]


@contextmanager
def listener():
    """Accepts connections at the host's port that nothing names."""
    server = socketserver.TCPServer((HOST, UNNAMED), socketserver.BaseRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


def stranger() -> dict:
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": STRANGER, "namespace": NAMESPACE, "labels": {"app.kubernetes.io/component": STRANGER}},
        "spec": {"automountServiceAccountToken": False, "terminationGracePeriodSeconds": 0, "containers": [{
            "name": STRANGER, "image": "busybox:1.37", "imagePullPolicy": "Never", "command": ["sleep", "infinity"],
        }]},
    }
