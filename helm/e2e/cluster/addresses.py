"""Addresses and names of the cluster. The host's address is the gateway's and the control plane's."""

HOST = "10.201.0.1"
NODES_CIDR = "10.201.0.0/24"
SERVICES_CIDR = "10.203.0.0/16"
KUBERNETES_SERVICE = "10.203.0.1"
PODS_CIDR = "10.202.0.0/16"
# Addresses of fake pods. Nothing answers at them.
FAKE_PODS_CIDR = "10.204.0.0/16"
BRIDGE = "bireme0"
# The port of each tier's service on the chart's pods.
PORTS = {"query": 7070, "io": 7071}
# The port of the metrics on the pods of both tiers.
METRICS_PORT = 9464
# The port of the probes on the pods of both tiers.
PROBES_PORT = 9465


def node_name(number: int) -> str:
    return f"bireme-n{number}"


def node_ip(number: int) -> str:
    return f"10.201.0.{10 + number}"


def zone(number: int) -> str:
    """Returns the zone of a node; each node has its own."""
    return f"zone-{number}"


def node_link(number: int) -> str:
    """Returns the name of the host's end of the node's link."""
    return f"bireme-v{number}"


def pods_cidr(number: int) -> str:
    return f"10.202.{number}.0/24"
