"""metrics-server on the host, as a part of the API: what an autoscaler by CPU asks."""

from ..process import Background, run, until
from .addresses import HOST
from .manifest import apply
from .pki import PKI

PORT = 4443
NAME, NAMESPACE = "metrics-server", "kube-system"


def up() -> Background:
    config = PKI / "admin.kubeconfig"
    server = Background(
        "metrics-server", "metrics-server", f"--kubeconfig={config}", f"--authentication-kubeconfig={config}",
        f"--authorization-kubeconfig={config}", f"--secure-port={PORT}", f"--bind-address={HOST}",
        f"--cert-dir={PKI}/metrics-server", f"--kubelet-certificate-authority={PKI}/ca.crt",
        "--kubelet-preferred-address-types=InternalIP", "--metric-resolution=10s", "--kubelet-request-timeout=5s",
        f"--kubelet-client-certificate={PKI}/admin.crt", f"--kubelet-client-key={PKI}/admin.key",
    )
    metadata = {"name": NAME, "namespace": NAMESPACE}
    apply({"apiVersion": "v1", "kind": "Service", "metadata": metadata,
           "spec": {"ports": [{"port": 443, "targetPort": PORT}]}})
    apply({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
           "metadata": {**metadata, "labels": {"kubernetes.io/service-name": NAME}},
           "ports": [{"name": "", "port": PORT}], "endpoints": [{"addresses": [HOST]}]})
    apply({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
           "metadata": {"name": "v1beta1.metrics.k8s.io"},
           "spec": {"group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100,
                    "versionPriority": 100, "insecureSkipTLSVerify": True,
                    "service": {"name": NAME, "namespace": NAMESPACE}}})
    until("metrics of nodes", lambda: "%" in run("kubectl", "top", "nodes"), 90)
    return server
