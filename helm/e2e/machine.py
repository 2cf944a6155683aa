"""Whether this machine can have a cluster: what that takes is tried, on a small scale, and taken away again."""

import ipaddress
import json
import os
import shutil
import socket
import tempfile
from collections.abc import Callable

from . import load, store
from .check import Impossible
from .cluster import cgroup, control_plane
from .cluster.addresses import FAKE_PODS_CIDR, HOST, NODES_CIDR, PODS_CIDR, SERVICES_CIDR
from .layout import CACHE
from .process import Failed, run

DISK_GIB = 6
# As a kubelet asks for them.
CONTROLLERS = {"cpu", "cpuset", "memory", "pids"}
DNS_PORT = 53
# Of linux/in.h; Python has no name for it.
IP_FREEBIND = 15
LISTENS = [
    *((HOST, port) for port in (control_plane.API_PORT, store.PORT, DNS_PORT)),
    *(("127.0.0.1", port) for port in (control_plane.ETCD_PORT, control_plane.ETCD_PEER_PORT, load.PORT,
                                       *control_plane.COMPONENT_PORTS)),
]
# What the nodes' networks are made of, in a namespace that goes with its shell.
NETWORK = """
ip link add bridge0 type bridge
ip link add veth0 type veth peer name veth1
ip link set veth0 master bridge0 up
"""
# Of what kube-proxy writes.
RULES = """
table ip proxy {
    chain masquerades { type nat hook postrouting priority 100; meta mark 1 masquerade fully-random; }
    chain services {
        type nat hook prerouting priority -100
        fib daddr type local numgen random mod 2 vmap { 0 : accept }
    }
}
"""
# What containers' roots are, on the disk that they will be on.
OVERLAY = "mount -t overlay overlay -o lowerdir={0}/lower,upperdir={0}/upper,workdir={0}/work {0}/merged"


def able() -> None:
    """Raises `Impossible` with the first reason that is found. To be asked when nothing is left of the last run."""
    for why, holds in CHECKS.items():
        try:
            lacking = holds()
        except (Failed, OSError) as error:
            lacking = str(error)
        if lacking:
            raise Impossible(f"{why}: {lacking}")


def disk() -> str | None:
    free = shutil.disk_usage(CACHE).free >> 30
    return f"{free} GiB are free" if free < DISK_GIB else None


def networks() -> None:
    run("unshare", "--net", "--mount", "bash", "-ec", NETWORK)


def rules() -> None:
    run("unshare", "--net", "bash", "-ec", f"nft -f - <<<'{RULES}'")


def overlays() -> None:
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        for name in ("lower", "upper", "work", "merged"):
            os.mkdir(f"{folder}/{name}")
        run("unshare", "--mount", "bash", "-ec", OVERLAY.format(folder))


def groups() -> str | None:
    try:
        # Nodes begin at 1.
        cgroup.make(0)
        return cgroup.lacking(0, CONTROLLERS)
    finally:
        cgroup.remove(0)


def addresses() -> str:
    """Routes to a part of ours. One to more than them is no hindrance: ours go before it."""
    ours = [ipaddress.ip_network(cidr) for cidr in (NODES_CIDR, PODS_CIDR, SERVICES_CIDR, FAKE_PODS_CIDR)]
    routes = [route["dst"] for route in json.loads(run("ip", "-json", "-4", "route")) if route["dst"] != "default"]
    taken = [dst for dst in routes if any(ipaddress.ip_network(dst).subnet_of(cidr) for cidr in ours)]
    return ", ".join(taken)


def ports() -> str:
    return ", ".join(f"{address}:{port}" for address, port in LISTENS if listens(address, port))


def listens(address: str, port: int) -> bool:
    """Whether somebody does already, there or at all addresses."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # The host's address is not there yet.
        probe.setsockopt(socket.IPPROTO_IP, IP_FREEBIND, 1)
        try:
            probe.bind((address, port))
            probe.listen()
        except OSError:
            return True
    return False


CHECKS: dict[str, Callable[[], str | None]] = {
    f"it takes {DISK_GIB} GiB of disk": disk,
    "network namespaces, bridges and cables can't be made": networks,
    "nftables does not take such rules": rules,
    "no overlay can be mounted": overlays,
    "control groups can't be made": groups,
    "somebody has such addresses": addresses,
    "somebody listens already": ports,
}
