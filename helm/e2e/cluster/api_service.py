"""Registers a server on the host as a part of the Kubernetes API."""

from .addresses import HOST
from .manifest import apply

NAMESPACE = "kube-system"


def register(name: str, port: int, group: str, version: str) -> None:
    metadata = {"name": name, "namespace": NAMESPACE}
    apply({"apiVersion": "v1", "kind": "Service", "metadata": metadata,
           "spec": {"ports": [{"port": 443, "targetPort": port}]}})
    apply({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
           "metadata": {**metadata, "labels": {"kubernetes.io/service-name": name}},
           "ports": [{"name": "", "port": port}], "endpoints": [{"addresses": [HOST]}]})
    apply({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
           "metadata": {"name": f"{version}.{group}"},
           "spec": {"group": group, "version": version, "groupPriorityMinimum": 100,
                    "versionPriority": 100, "insecureSkipTLSVerify": True,
                    "service": {"name": name, "namespace": NAMESPACE}}})
