"""Addresses: the host is the gateway, and the control plane's."""

HOST = "10.201.0.1"
NODES_CIDR = "10.201.0.0/24"
SERVICES_CIDR = "10.203.0.0/16"
KUBERNETES_SERVICE = "10.203.0.1"
PODS_CIDR = "10.202.0.0/16"
# Of pods that nobody is behind.
FAKE_PODS_CIDR = "10.204.0.0/16"
BRIDGE = "bireme0"
# Of the chart's pods: what each tier serves at, and where both tell their metrics.
PORTS = {"query": 7070, "io": 7071}
METRICS_PORT = 9464


def node_name(number: int) -> str:
    return f"bireme-n{number}"


def node_ip(number: int) -> str:
    return f"10.201.0.{10 + number}"


def zone(number: int) -> str:
    """Each node is in one of its own."""
    return f"zone-{number}"


def node_link(number: int) -> str:
    """The host's end of the node's cable."""
    return f"bireme-v{number}"


def pods_cidr(number: int) -> str:
    return f"10.202.{number}.0/24"
