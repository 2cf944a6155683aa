"""Checks whether this machine can run a cluster, by small trials that are undone."""

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
# The controllers that a kubelet needs.
CONTROLLERS = {"cpu", "cpuset", "memory", "pids"}
DNS_PORT = 53
# From linux/in.h; Python's socket module does not define it.
IP_FREEBIND = 15
LISTENS = [
    *((HOST, port) for port in (control_plane.API_PORT, store.PORT, DNS_PORT)),
    *(("127.0.0.1", port) for port in (control_plane.ETCD_PORT, control_plane.ETCD_PEER_PORT, load.PORT,
                                       *control_plane.COMPONENT_PORTS)),
]
# Makes the parts of the nodes' networks, in a namespace that ends with its shell.
NETWORK = """
ip link add bridge0 type bridge
ip link add veth0 type veth peer name veth1
ip link set veth0 master bridge0 up
"""
# Rules of the kinds that kube-proxy writes.
RULES = """
table ip proxy {
    chain masquerades { type nat hook postrouting priority 100; meta mark 1 masquerade fully-random; }
    chain services {
        type nat hook prerouting priority -100
        fib daddr type local numgen random mod 2 vmap { 0 : accept }
    }
}
"""
# Mounts an overlay like a container's root, on the disk that containers will use.
OVERLAY = "mount -t overlay overlay -o lowerdir={0}/lower,upperdir={0}/upper,workdir={0}/work {0}/merged"


def check_capabilities() -> None:
    """Raises `Impossible` with the first reason found. It is called once nothing of the last run is left."""
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
        # The numbers of nodes begin at 1, so no node has this group.
        cgroup.make(0)
        return cgroup.lacking(0, CONTROLLERS)
    finally:
        cgroup.remove(0)


def addresses() -> str:
    """Returns existing routes to parts of the cluster's networks. Routes to larger networks do no harm: the cluster's
    routes are more specific and take precedence."""
    ours = [ipaddress.ip_network(cidr) for cidr in (NODES_CIDR, PODS_CIDR, SERVICES_CIDR, FAKE_PODS_CIDR)]
    routes = [route["dst"] for route in json.loads(run("ip", "-json", "-4", "route")) if route["dst"] != "default"]
    taken = [dst for dst in routes if any(ipaddress.ip_network(dst).subnet_of(cidr) for cidr in ours)]
    return ", ".join(taken)


def ports() -> str:
    return ", ".join(f"{address}:{port}" for address, port in LISTENS if listens(address, port))


def listens(address: str, port: int) -> bool:
    """Returns whether a process listens there already, or on all addresses."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # The bridge's address does not exist yet.
        probe.setsockopt(socket.IPPROTO_IP, IP_FREEBIND, 1)
        try:
            probe.bind((address, port))
            probe.listen()
        except OSError:
            return True
    return False


CHECKS: dict[str, Callable[[], str | None]] = {
    f"it needs {DISK_GIB} GiB of disk": disk,
    "network namespaces, bridges and links cannot be made": networks,
    "nftables refuses rules like kube-proxy's": rules,
    "no overlay can be mounted": overlays,
    "control groups cannot be made": groups,
    "there are routes to its addresses": addresses,
    "its ports are in use": ports,
}
