"""Runs etcd, the API server, the controllers and the scheduler on the host."""

from ..layout import RUN, STATE
from ..process import RESTARTED, Background, run, until
from .addresses import HOST, PODS_CIDR, SERVICES_CIDR
from .pki import PKI

# A dry run uses its own ports, because a cluster may be running.
ETCD_PORT, ETCD_PEER_PORT = (22379, 22380) if RUN == "cluster" else (22479, 22480)
API_PORT = 6443
# Kubernetes' default ports of its controllers and its scheduler.
COMPONENT_PORTS = (10257, 10259)
ETCD = f"http://127.0.0.1:{ETCD_PORT}"


def etcd() -> Background:
    return Background(
        "etcd", "etcd", f"--data-dir={STATE}/etcd", "--unsafe-no-fsync", f"--listen-client-urls={ETCD}",
        f"--advertise-client-urls={ETCD}", f"--listen-peer-urls=http://127.0.0.1:{ETCD_PEER_PORT}",
    )


def api_server(address: str = HOST, *flags: str) -> Background:
    return Background(
        "kube-apiserver", "kube-apiserver",
        f"--etcd-servers={ETCD}",
        f"--bind-address={address}",
        f"--advertise-address={address}",
        f"--secure-port={API_PORT}",
        f"--cert-dir={PKI}",
        f"--tls-cert-file={PKI}/apiserver.crt",
        f"--tls-private-key-file={PKI}/apiserver.key",
        f"--client-ca-file={PKI}/ca.crt",
        f"--service-account-key-file={PKI}/accounts.pub",
        f"--service-account-signing-key-file={PKI}/accounts.key",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-cluster-ip-range={SERVICES_CIDR}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--kubelet-client-certificate={PKI}/admin.crt",
        f"--kubelet-client-key={PKI}/admin.key",
        f"--kubelet-certificate-authority={PKI}/ca.crt",
        "--kubelet-preferred-address-types=InternalIP",
        # The API server forwards requests for a part of the API to metrics-server.
        "--enable-aggregator-routing=true",
        f"--requestheader-client-ca-file={PKI}/ca.crt",
        "--requestheader-allowed-names=admin",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-username-headers=X-Remote-User",
        f"--proxy-client-cert-file={PKI}/admin.crt",
        f"--proxy-client-key-file={PKI}/admin.key",
        *flags,
    )


def ready() -> None:
    until("the API server", lambda: "ok" in run("kubectl", "get", "--raw", "/readyz", timeout=5))


def component(name: str, *flags: str) -> Background:
    """Runs a component that uses the API server, and restarts it when it exits, which it does if the API server is
    unreachable for long."""
    config = f"{PKI}/{name}.kubeconfig"
    command = [
        f"kube-{name}", f"--kubeconfig={config}", f"--authentication-kubeconfig={config}",
        f"--authorization-kubeconfig={config}", "--bind-address=127.0.0.1", "--leader-elect=false", *flags,
    ]
    return Background(f"kube-{name}", "bash", "-c", RESTARTED, name, *command)


def controllers() -> Background:
    return component(
        "controller-manager",
        f"--service-account-private-key-file={PKI}/accounts.key",
        f"--root-ca-file={PKI}/ca.crt",
        "--use-service-account-credentials",
        f"--cluster-signing-cert-file={PKI}/ca.crt",
        f"--cluster-signing-key-file={PKI}/ca.key",
        f"--cluster-cidr={PODS_CIDR}",
    )


def scheduler() -> Background:
    return component("scheduler")
