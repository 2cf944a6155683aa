"""Makes an authority, and for each component a certificate and a kubeconfig."""

from ..layout import STATE
from ..process import run
from .addresses import HOST, KUBERNETES_SERVICE, node_ip, node_name
from .authority import Authority

PKI = STATE / "pki"

KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "https://{host}:6443", certificate-authority: {pki}/ca.crt}}}}]
users: [{{name: u, user: {{client-certificate: {pki}/{name}.crt, client-key: {pki}/{name}.key}}}}]
contexts: [{{name: x, context: {{cluster: c, user: u}}}}]
current-context: x
"""


def make(nodes: int, host: str = HOST) -> None:
    authority = Authority(PKI, "bireme-e2e")
    names = ["DNS:localhost", "DNS:kubernetes", "DNS:kubernetes.default.svc", "IP:127.0.0.1"]
    authority.sign("apiserver", "/CN=kube-apiserver", [*names, f"IP:{KUBERNETES_SERVICE}", f"IP:{host}"])
    callers = {
        "admin": "/O=system:masters/CN=admin",
        "controller-manager": "/CN=system:kube-controller-manager",
        "scheduler": "/CN=system:kube-scheduler",
        "proxy": "/CN=system:kube-proxy",
    }
    for name, subject in callers.items():
        authority.sign(name, subject)
        kubeconfig(name, host)
    for number in range(1, nodes + 1):
        name = node_name(number)
        authority.sign(name, f"/O=system:nodes/CN=system:node:{name}", [f"DNS:{name}", f"IP:{node_ip(number)}"])
        kubeconfig(name, host)
    run("openssl", "genrsa", "-out", PKI / "accounts.key", 2048)
    run("openssl", "rsa", "-in", PKI / "accounts.key", "-pubout", "-out", PKI / "accounts.pub")


def kubeconfig(name: str, host: str) -> None:
    (PKI / f"{name}.kubeconfig").write_text(KUBECONFIG.format(host=host, pki=PKI, name=name))
