"""Applies the definitions of custom resources that the chart uses, from the Go modules that define them."""

import json
from collections.abc import Iterable
from pathlib import Path

from ..process import run, until

OPERATOR, KEDA = "github.com/prometheus-operator/prometheus-operator@v0.89.0", "github.com/kedacore/keda/v2@v2.21.0"
CERT_MANAGER = "github.com/cert-manager/cert-manager@v1.19.1"
FILES = {
    "podmonitors": (OPERATOR, "example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml"),
    "servicemonitors": (OPERATOR, "example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml"),
    "prometheusrules": (OPERATOR, "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml"),
    "scaledobjects": (KEDA, "config/crd/bases/keda.sh_scaledobjects.yaml"),
    "certificates": (CERT_MANAGER, "deploy/crds/cert-manager.io_certificates.yaml"),
    "issuers": (CERT_MANAGER, "deploy/crds/cert-manager.io_issuers.yaml"),
}


def install() -> None:
    apply("custom resources", FILES.values(), FILES)


def apply(what: str, files: Iterable[tuple[str, str]], kinds: Iterable[str]) -> None:
    """Applies `files`, each a module and a path in it, and waits until the API server serves `kinds`."""
    for module, file in files:
        # Some definitions are too long for the annotation in which a client-side apply keeps an object.
        run("kubectl", "apply", "--server-side", "-f", folder(module) / file)
    served = lambda: set(run("kubectl", "api-resources", "--no-headers", "-o", "name").split())
    until(what, lambda: all(any(name.startswith(f"{kind}.") for name in served()) for kind in kinds))


def folder(module: str) -> Path:
    return Path(json.loads(run("go", "mod", "download", "-json", module, timeout=300))["Dir"])
