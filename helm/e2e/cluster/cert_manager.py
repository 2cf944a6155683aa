"""cert-manager's controller on the host, without its webhook: what makes and renews the chart's certificates."""

from ..process import Background, run, until
from . import definitions
from .pki import PKI

# With the others the controller watches these as well.
KINDS = ["certificates", "certificaterequests", "issuers", "clusterissuers"]
ACME_KINDS = ["orders", "challenges"]


def up() -> Background:
    folder = definitions.folder(definitions.CERT_MANAGER) / "deploy" / "crds"
    for kind in KINDS:
        run("kubectl", "create", "-f", folder / f"cert-manager.io_{kind}.yaml")
    for kind in ACME_KINDS:
        run("kubectl", "create", "-f", folder / f"acme.cert-manager.io_{kind}.yaml")
    served = lambda: set(run("kubectl", "api-resources", "--no-headers", "-o", "name").split())
    until("cert-manager's kinds", lambda: all(f"{kind}.cert-manager.io" in served() for kind in KINDS))
    return Background("cert-manager", "cert-manager", f"--kubeconfig={PKI}/admin.kubeconfig", "--leader-elect=false",
                      "--cluster-resource-namespace=kube-system", "--metrics-listen-address=127.0.0.1:9402")
