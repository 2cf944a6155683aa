"""Tests that a tier's pods are in different zones, as the chart's constraints require."""

from ..check import check, step
from ..cluster.addresses import zone


def spread(release) -> None:
    step("pods of a tier are in different zones, and query nodes know them")
    zones = {node: zone(release.cluster.worker(node).number) for node in release.nodes()}
    on = {tier: {name: zones[pod["spec"]["nodeName"]] for name, pod in release.pods(tier).items()}
          for tier in ("io", "query")}
    for tier, found in on.items():
        check(f"{tier}: each pod is in a zone of its own", len(set(found.values())) == len(found) == 2, found)
    # Query nodes learn the zones from the EndpointSlices.
    known = {node["name"]: node["zone"] for node in release.io_nodes()}
    check("discovery has learned the I/O nodes' zones", known == on["io"], known)
