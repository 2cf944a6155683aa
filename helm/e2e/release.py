"""An installed release of the chart."""

import json
from pathlib import Path

from . import store
from .archives import BIREME
from .cluster.addresses import node_ip
from .cluster.cluster import Cluster
from .cluster.worker import PROFILES, Worker
from .layout import CHART, STATE
from .process import PATIENCE, Failed, run, until

NAME, NAMESPACE = "bireme", "bireme"
NODE_PORT = 30070
KINDS = {"query": "deployment", "io": "statefulset"}
VALUES = Path(__file__).parent / "values.yaml"


def documents(said: str) -> list[dict]:
    """Parses the JSON lines that the binary printed. Raises `Failed` if there are none. In that case the exit code was
    accepted, such as 4, but the query node itself did not answer."""
    if not said:
        raise Failed("the query node did not answer")
    return [json.loads(line) for line in said.splitlines()]


class Release:
    """A release in a namespace of its own. The name of a second release begins with the chart's name."""

    def __init__(self, bireme: Path, cluster: Cluster, store_server: store.Store, name: str = NAME,
                 namespace: str = NAMESPACE, node_port: int = NODE_PORT):
        self.bireme, self.cluster, self.store = bireme, cluster, store_server
        self.name, self.namespace, self.node_port = name, namespace, node_port
        self.endpoint = f"{node_ip(1)}:{node_port}"
        # With TLS, the variables with the callers' certificate files.
        self.tls: dict[str, str] = {}

    # -- helm --

    def prepare(self) -> None:
        run("kubectl", "create", "namespace", self.namespace)
        literals = [f"--from-literal={name}={value}" for name, value in store.SECRET.items()]
        self.kubectl("create", "secret", "generic", "store", *literals)

    def values(self) -> Path:
        """Writes the values that are known only at run time: addresses and folders."""
        found = {
            "image": {"tag": BIREME.split(":")[1]},
            "tables": {store.TABLE: {"uri": store.URI, "key": store.KEY}},
            "storage": {"existingSecret": "store", "options": store.OPTIONS},
            "query": {"service": {"type": "NodePort", "nodePort": self.node_port}},
            "seccompInstaller": {"kubeletDir": str(PROFILES)},
        }
        file = STATE / "values.json"
        file.write_text(json.dumps(found))
        return file

    def upgrade(self, *sets: str, force: bool = False) -> None:
        """Installs or upgrades. With `force`, also sets fields that other managers own, such as replicas set by a
        scaler."""
        flags = [word for value in sets for word in ("--set-json", value)] + ["--force-conflicts"] * force
        self.helm("upgrade", "--install", self.name, CHART, "-f", VALUES, "-f", self.values(), *flags)

    def helm(self, command: str, *words) -> str:
        return run("helm", command, *words, "-n", self.namespace, "--wait", "--timeout", f"{300 * PATIENCE:.0f}s",
                   timeout=320)

    def helm_test(self) -> str:
        """Runs `helm test` and returns its output with that of the tests' pods."""
        return run("helm", "test", self.name, "-n", self.namespace, "--timeout", f"{120 * PATIENCE:.0f}s",
                   timeout=140, errors=True)

    # -- kubectl --

    def kubectl(self, *words, timeout: float = 120) -> str:
        return run("kubectl", "-n", self.namespace, *words, timeout=timeout)

    def objects(self, kind: str, tier: str | None = None) -> list[dict]:
        selector = ["-l", f"app.kubernetes.io/component={tier}"] if tier else []
        return json.loads(self.kubectl("get", kind, *selector, "-o", "json"))["items"]

    def pods(self, tier: str) -> dict[str, dict]:
        return {pod["metadata"]["name"]: pod for pod in self.objects("pods", tier)}

    def nodes(self) -> list[str]:
        return [worker.name for worker in self.cluster.workers]

    def ready_pods(self, tier: str) -> list[str]:
        def is_ready(pod):
            conditions = pod["status"].get("conditions", [])
            serving = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
            return serving and "deletionTimestamp" not in pod["metadata"]

        return sorted(name for name, pod in self.pods(tier).items() if is_ready(pod))

    def container(self, tier: str, pod: str) -> tuple[Worker, str]:
        """Returns the node that runs the pod's container, and the container's id."""
        found = self.pods(tier)[pod]
        own = found["status"]["containerStatuses"][0]["containerID"]
        return self.cluster.worker(found["spec"]["nodeName"]), own.removeprefix("containerd://")

    def pid(self, tier: str, pod: str) -> int:
        worker, container = self.container(tier, pod)
        tasks = worker.ctr("tasks", "list").splitlines()
        return int(next(line.split()[1] for line in tasks if line.startswith(container)))

    def settled(self, tier: str, count: int, timeout: float = 120) -> None:
        """Waits until there are exactly `count` pods, all ready and none terminating."""
        until(f"{count} pods of {tier}",
              lambda: len(self.ready_pods(tier)) == count == len(self.pods(tier)), timeout)

    def rollout(self, tier: str, timeout: float = 240) -> None:
        self.kubectl("rollout", "status", f"{KINDS[tier]}/{self.name}-{tier}", timeout=timeout)

    # -- bireme --

    def ask(self, *words, accept: tuple[int, ...] = (0,)) -> list[dict]:
        """Runs the binary outside the cluster and returns its JSON answers."""
        return documents(self.call(*words, "--json", accept=accept))

    def call(self, *words, **how) -> str:
        scheme = "https" if self.tls else "http"
        env = {f"BIREME_{name}": value for name, value in self.tls.items()}
        return run(self.bireme, *words, "--endpoint", f"{scheme}://{self.endpoint}", env=env, **how)

    def io_nodes(self) -> list[dict]:
        # The exit code is 4 while one of them does not answer, which steps check themselves.
        return self.ask("status", accept=(0, 4))[0]["io_nodes"]

    def warm(self) -> None:
        self.call("warm", store.TABLE, timeout=300)
