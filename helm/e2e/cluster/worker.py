"""Runs a worker node: containerd, kubelet and kube-proxy in the node's network namespace."""

import json

from ..layout import BIN, STATE
from ..process import Background, Failed, run, until
from . import cgroup
from .addresses import HOST, PODS_CIDR, NODES_CIDR, node_ip, node_name, pods_cidr, zone
from .network import inside
from .pki import PKI

PAUSE = "docker.io/library/pause:1"
# All nodes share one folder of seccomp profiles, so that the installer's path is right on each.
PROFILES = STATE / "profiles"

CONTAINERD = """\
version = 3
root = '{home}/containerd'
state = '{home}/containerd-state'
[grpc]
  address = '{home}/containerd.sock'
# NRI is off, because all nodes' runtimes would use the same socket.
[plugins.'io.containerd.nri.v1.nri']
  disable = true
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = '{pause}'
[plugins.'io.containerd.cri.v1.runtime']
  # Not every sandbox allows a lower OOM score.
  restrict_oom_score_adj = true
  # The mounts of pods' networks are removed with the run's folder.
  netns_mounts_under_state_dir = true
  # Raw devices belong to the pod's user, which is not root.
  device_ownership_from_security_context = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ['{bin}']
  conf_dir = '{home}/cni'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = 'io.containerd.runc.v2'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  BinaryName = '{bin}/runc'
  SystemdCgroup = false
"""


class Worker:
    def __init__(self, number: int):
        self.number, self.name = number, node_name(number)
        self.home = STATE / self.name
        self.socket = self.home / "containerd.sock"
        self.processes: list[Background] = []

    def up(self, archives: list) -> None:
        (self.home / "kubelet").mkdir(parents=True)
        (PROFILES / "seccomp").mkdir(parents=True, exist_ok=True)
        (self.home / "kubelet" / "seccomp").symlink_to(PROFILES / "seccomp")
        cgroup.make(self.number)
        self.write_configuration()
        self.start("containerd", "containerd", "-c", self.home / "containerd.toml")
        until("containerd", lambda: run("ctr", "-a", self.socket, "version"))
        for archive in archives:
            self.ctr("images", "import", archive)
        self.start(
            "kubelet", "kubelet", f"--config={self.home}/kubelet.json", f"--kubeconfig={PKI}/{self.name}.kubeconfig",
            f"--hostname-override={self.name}", f"--node-ip={node_ip(self.number)}",
            f"--root-dir={self.home}/kubelet", f"--cert-dir={self.home}/certificates",
            f"--node-labels=topology.kubernetes.io/zone={zone(self.number)}",
        )
        self.start("kube-proxy", "kube-proxy", f"--config={self.home}/proxy.json")

    def start(self, name: str, *command) -> None:
        self.processes.append(Background(f"{self.name}-{name}", *inside(self.number), *command))

    def ctr(self, *command) -> str:
        return run("ctr", "-a", self.socket, "-n", "k8s.io", *command)

    def write_configuration(self) -> None:
        (self.home / "containerd.toml").write_text(CONTAINERD.format(home=self.home, pause=PAUSE, bin=BIN))
        (self.home / "cni").mkdir()
        (self.home / "cni" / "bridge.conflist").write_text(json.dumps(self.cni()))
        (self.home / "kubelet.json").write_text(json.dumps(self.kubelet()))
        (self.home / "proxy.json").write_text(json.dumps(self.proxy()))

    def cni(self) -> dict:
        ipam = {
            "type": "host-local",
            "dataDir": f"{self.home}/addresses",
            "ranges": [[{"subnet": pods_cidr(self.number)}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        }
        bridge = {"type": "bridge", "bridge": "pods0", "isGateway": True, "hairpinMode": True, "ipam": ipam}
        return {"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge]}

    def kubelet(self) -> dict:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": f"{PKI}/ca.crt"},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": f"{PKI}/{self.name}.crt",
            "tlsPrivateKeyFile": f"{PKI}/{self.name}.key",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self.name}",
            "failCgroupV1": False,
            "failSwapOn": False,
            "oomScoreAdj": 0,
            "makeIPTablesUtilChains": False,
            "containerRuntimeEndpoint": f"unix://{self.socket}",
            "clusterDNS": [HOST],
            "clusterDomain": "cluster.local",
            "resolvConf": "",
            # The nodes share the machine's disk, which may be nearly full.
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "100Mi", "imagefs.available": "100Mi"},
            "imageGCHighThresholdPercent": 100,
            "podLogsDir": f"{self.home}/logs",
            # Pods that request whole CPUs get them exclusively; all other pods and the system use the rest, at least
            # the first.
            "cpuManagerPolicy": "static",
            "reservedSystemCPUs": "0",
            # Changed Secrets reach the pods soon.
            "syncFrequency": "5s",
        }

    def proxy(self) -> dict:
        return {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "nftables",
            "clientConnection": {"kubeconfig": f"{PKI}/proxy.kubeconfig"},
            "hostnameOverride": self.name,
            "clusterCIDR": PODS_CIDR,
            "oomScoreAdj": 0,
            "conntrack": {"maxPerCore": 0},
            "nodePortAddresses": [NODES_CIDR],
        }

    def down(self) -> None:
        """Stops kube-proxy and kubelet, then the containers while containerd still runs, then containerd."""
        if not self.processes:
            return
        for process in reversed(self.processes[1:]):
            process.stop()
        for container in self.containers():
            try:
                self.ctr("tasks", "delete", "-f", container)
            except Failed:
                pass  # it ended by itself
        self.processes[0].stop()

    def containers(self) -> list[str]:
        try:
            return self.ctr("tasks", "list", "-q").split()
        except Failed:
            return []  # containerd never started, which was reported before
