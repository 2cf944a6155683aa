"""The kinds of others that the chart makes objects of: their definitions, out of the modules of who defines them."""

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
    apply("others' kinds", FILES.values(), FILES)


def apply(what: str, files: Iterable[tuple[str, str]], kinds: Iterable[str]) -> None:
    """Has the API server serve these kinds, whichever of their files, a module and a path each, it has already."""
    for module, file in files:
        # Some are longer than what an ordinary apply keeps of an object.
        run("kubectl", "apply", "--server-side", "-f", folder(module) / file)
    served = lambda: set(run("kubectl", "api-resources", "--no-headers", "-o", "name").split())
    until(what, lambda: all(any(name.startswith(f"{kind}.") for name in served()) for kind in kinds))


def folder(module: str) -> Path:
    return Path(json.loads(run("go", "mod", "download", "-json", module, timeout=300))["Dir"])
