"""Tests that helm uninstall leaves nothing behind."""

from ..check import check, step
from ..process import run, until
from ..release import NAME, NAMESPACE


def clean(release) -> None:
    step("helm uninstall")
    run("helm", "uninstall", NAME, "-n", NAMESPACE, "--wait", timeout=180)
    kinds = ("pods,deployments,statefulsets,daemonsets,services,endpointslices,configmaps,serviceaccounts,roles,"
             "rolebindings,poddisruptionbudgets,horizontalpodautoscalers,networkpolicies,secrets")
    ours = ["get", kinds, "-l", f"app.kubernetes.io/instance={NAME}", "-o", "name"]
    until("everything to be gone", lambda: release.kubectl(*ours) == "", 60)
    check("nothing of the release is left", release.kubectl(*ours) == "")
    claims = ["get", "persistentvolumeclaims", "-o", "name"]
    # Kubernetes keeps the claims of pods that were scaled down before.
    serving = [f"persistentvolumeclaim/nvme0-bireme-io-{number}" for number in range(2)]
    until("the claims to be gone", lambda: not set(release.kubectl(*claims).split()) & set(serving))
    check("the drives of the last I/O nodes are free again", not set(release.kubectl(*claims).split()) & set(serving))
