"""Enforces NetworkPolicies with kube-router's firewall on each node. The bridge plugin ignores them."""

from ..process import Failed, run
from .addresses import SERVICES_CIDR
from .network import inside
from .pki import PKI

# Sets and rules of the kinds that kube-router writes, in a namespace that ends with its shell.
TRIAL = """
sysctl -qw net.bridge.bridge-nf-call-iptables=1
ipset create pods hash:ip timeout 0
ipset create blocks hash:net timeout 0
iptables -A FORWARD -m set --match-set pods dst -m conntrack --ctstate NEW -m comment --comment x -j MARK --set-xmark 1/1
iptables -A FORWARD -m addrtype --src-type LOCAL -j ACCEPT
"""


def lacking() -> str | None:
    """Returns what this machine lacks to enforce policies, or None if it lacks nothing."""
    try:
        run("unshare", "--net", "bash", "-ec", "ip link add bridge0 type bridge\n" + TRIAL)
        return None
    except Failed as error:
        return str(error).splitlines()[-1]


def up(workers: list) -> None:
    for worker in workers:
        # Packets between pods of a node go over the bridge, not through the node's routes. Filter them too.
        run(*inside(worker.number), "sysctl", "-qw", "net.bridge.bridge-nf-call-iptables=1")
        worker.start(
            "kube-router", "kube-router", "--run-firewall=true", "--run-router=false", "--run-service-proxy=false",
            f"--kubeconfig={PKI}/admin.kubeconfig", f"--hostname-override={worker.name}",
            f"--service-cluster-ip-range={SERVICES_CIDR}", "--health-port=0", "--iptables-sync-period=1m",
        )
