"""Starts and stops the cluster."""

from concurrent.futures import ThreadPoolExecutor

from ..check import say
from ..layout import BIN, KUBECONFIG, STATE
from ..process import Background, run, until
from . import control_plane, network, pki, policies, remains
from .addresses import HOST
from .worker import Worker

COREFILE = """\
.:53 {{
    bind {host}
    errors
    kubernetes cluster.local {{
        kubeconfig {kubeconfig}
        ttl 1
    }}
}}
"""


class Cluster:
    def __init__(self, nodes: int):
        self.nodes = nodes
        self.workers = [Worker(number) for number in range(1, nodes + 1)]
        self.processes: dict[str, Background] = {}
        self.enforces_policies = False

    def up(self, archives: list) -> None:
        remains.begin(self.nodes)
        pki.make(self.nodes)
        network.up(self.nodes)
        self.processes["etcd"] = control_plane.etcd()
        self.processes["api_server"] = control_plane.api_server()
        control_plane.ready()
        self.processes["controllers"] = control_plane.controllers()
        self.processes["scheduler"] = control_plane.scheduler()
        run("kubectl", "create", "clusterrolebinding", "proxy", "--clusterrole=system:node-proxier",
            "--user=system:kube-proxy")
        with ThreadPoolExecutor() as all_at_once:
            list(all_at_once.map(lambda worker: worker.up(archives), self.workers))
        corefile = STATE / "Corefile"
        corefile.write_text(COREFILE.format(host=HOST, kubeconfig=KUBECONFIG))
        self.processes["coredns"] = Background("coredns", BIN / "coredns", "-conf", corefile)
        until("the nodes", lambda: self.ready_nodes() == self.nodes)
        lacking = policies.lacking()
        self.enforces_policies = not lacking
        if lacking:
            say(f"NetworkPolicies are not enforced: {lacking}")
        else:
            policies.up(self.workers)

    def ready_nodes(self) -> int:
        return run("kubectl", "get", "nodes", "--no-headers").count(" Ready ")

    def worker(self, name: str) -> Worker:
        return next(worker for worker in self.workers if worker.name == name)

    def down(self) -> None:
        with ThreadPoolExecutor() as all_at_once:
            list(all_at_once.map(Worker.down, self.workers))
        for process in reversed(self.processes.values()):
            process.stop()
        remains.remove(self.nodes)
