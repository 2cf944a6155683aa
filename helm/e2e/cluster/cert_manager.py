"""Runs cert-manager's controller on the host, without its webhook. It makes and renews the chart's certificates."""

from ..process import Background
from . import definitions
from .pki import PKI

# The kinds that the chart uses, and further ones that the controller watches too.
KINDS = ["certificates", "certificaterequests", "issuers", "clusterissuers"]
ACME_KINDS = ["orders", "challenges"]


def up() -> Background:
    files = [f"cert-manager.io_{kind}.yaml" for kind in KINDS] + [f"acme.cert-manager.io_{kind}.yaml" for kind in ACME_KINDS]
    paths = [(definitions.CERT_MANAGER, f"deploy/crds/{file}") for file in files]
    definitions.apply("cert-manager's kinds", paths, KINDS + ACME_KINDS)
    return Background("cert-manager", "cert-manager", f"--kubeconfig={PKI}/admin.kubeconfig", "--leader-elect=false",
                      "--cluster-resource-namespace=kube-system", "--metrics-listen-address=127.0.0.1:9402")
