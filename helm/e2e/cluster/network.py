"""Makes a bridge on the host, and for each node a network namespace with a link to it. Pods are routed by node."""

from ..process import Failed, run
from .addresses import BRIDGE, FAKE_PODS_CIDR, HOST, node_ip, node_link, node_name, pods_cidr


def up(nodes: int) -> None:
    run("ip", "link", "add", BRIDGE, "type", "bridge")
    run("ip", "address", "add", f"{HOST}/24", "dev", BRIDGE)
    run("ip", "link", "set", BRIDGE, "up")
    # Packets to fake pods go to the bridge, where nothing has their addresses, so they do not leave the machine.
    run("ip", "route", "add", FAKE_PODS_CIDR, "dev", BRIDGE)
    for number in range(1, nodes + 1):
        connect(number)
    for number in range(1, nodes + 1):
        run("ip", "route", "add", pods_cidr(number), "via", node_ip(number))
        for other in range(1, nodes + 1):
            if other != number:
                run("ip", "-n", node_name(number), "route", "add", pods_cidr(other), "via", node_ip(other))


def connect(number: int) -> None:
    name = node_name(number)
    run("ip", "netns", "add", name)
    run("ip", "link", "add", node_link(number), "type", "veth", "peer", "name", "eth0", "netns", name)
    run("ip", "link", "set", node_link(number), "master", BRIDGE, "up")
    run("ip", "-n", name, "link", "set", "lo", "up")
    run("ip", "-n", name, "address", "add", f"{node_ip(number)}/24", "dev", "eth0")
    run("ip", "-n", name, "link", "set", "eth0", "up")
    run("ip", "-n", name, "route", "add", "default", "via", HOST)
    run(*inside(number), "sysctl", "-qw", "net.ipv4.ip_forward=1")


def inside(number: int) -> list[str]:
    """Returns the start of a command line that runs a command in the node's network. `ip netns exec` would also hide
    the cgroups."""
    return ["nsenter", f"--net=/var/run/netns/{node_name(number)}"]


def cut(number: int) -> None:
    run("ip", "link", "set", node_link(number), "down")


def mend(number: int) -> None:
    run("ip", "link", "set", node_link(number), "up")


def down() -> None:
    """Removes the networks, including those of a killed run."""
    for line in run("ip", "netns", "list").splitlines():
        name = line.split()[0]
        if name.removeprefix("bireme-n").isdigit():
            run("ip", "netns", "delete", name)
    try:
        run("ip", "link", "delete", BRIDGE)
    except Failed:
        pass  # there is none
