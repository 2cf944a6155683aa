"""Runs metrics-server on the host as a part of the API, for autoscalers by CPU."""

from ..process import Background, run, until
from . import api_service
from .addresses import HOST
from .pki import PKI

PORT = 4443


def up() -> Background:
    config = PKI / "admin.kubeconfig"
    server = Background(
        "metrics-server", "metrics-server", f"--kubeconfig={config}", f"--authentication-kubeconfig={config}",
        f"--authorization-kubeconfig={config}", f"--secure-port={PORT}", f"--bind-address={HOST}",
        f"--cert-dir={PKI}/metrics-server", f"--kubelet-certificate-authority={PKI}/ca.crt",
        "--kubelet-preferred-address-types=InternalIP", "--metric-resolution=10s", "--kubelet-request-timeout=5s",
        f"--kubelet-client-certificate={PKI}/admin.crt", f"--kubelet-client-key={PKI}/admin.key",
    )
    api_service.register("metrics-server", PORT, "metrics.k8s.io", "v1beta1")
    until("metrics of nodes", lambda: "%" in run("kubectl", "top", "nodes"), 90)
    return server
