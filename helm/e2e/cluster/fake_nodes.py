"""Makes fake nodes with kwok. The scheduler places pods on them as on any node; the pods are ready at once, but nothing
runs, and nothing answers at their addresses."""

from ..layout import KUBECONFIG
from ..process import Background, run, until
from .addresses import FAKE_PODS_CIDR, HOST
from .definitions import folder
from .manifest import apply

MODULE = "sigs.k8s.io/kwok@v0.8.0"
# kwok's rules for the states of nodes and pods.
STAGES = ["node/fast/node-initialize", "node/heartbeat-with-lease/node-heartbeat-with-lease", "pod/fast/pod-ready",
          "pod/fast/pod-delete"]
LABEL = {"bireme.e2e/fake": "yes"}
SELECTOR = ",".join(f"{key}={value}" for key, value in LABEL.items())
# Pods without the toleration stay on real nodes.
TAINT = {"key": "bireme.e2e/fake", "value": "yes", "effect": "NoSchedule"}
TOLERATION = {"key": TAINT["key"], "operator": "Exists"}


class FakeNodes:
    """`with FakeNodes(cluster, 200, zones=4): …`; zones are assigned in turn."""

    def __init__(self, cluster, count: int, zones: int):
        self.cluster, self.count = cluster, count
        self.zones = {f"fake-{number}": f"fake-zone-{number % zones}" for number in range(count)}

    def __enter__(self):
        stages = [f"--config={folder(MODULE)}/kustomize/stage/{name}.yaml" for name in STAGES]
        self.cluster.processes["kwok"] = self.kwok = Background(
            "kwok", "kwok", f"--kubeconfig={KUBECONFIG}", f"--manage-nodes-with-label-selector={SELECTOR}",
            f"--cidr={FAKE_PODS_CIDR}", f"--node-ip={HOST}", "--node-lease-duration-seconds=40", *stages,
        )
        nodes = [{"apiVersion": "v1", "kind": "Node", "spec": {"taints": [TAINT]},
                  "metadata": {"name": name, "labels": {**LABEL, "kubernetes.io/hostname": name,
                                                        "topology.kubernetes.io/zone": zone}}}
                 for name, zone in self.zones.items()]
        apply({"apiVersion": "v1", "kind": "List", "items": nodes})
        until(f"{self.count} fake nodes", lambda: self.ready() == self.count)
        return self

    def ready(self) -> int:
        return run("kubectl", "get", "nodes", "-l", SELECTOR, "--no-headers").count(" Ready ")

    def __exit__(self, *_):
        run("kubectl", "delete", "nodes", "-l", SELECTOR)
        self.kwok.stop()
