"""helm uninstall leaves nothing behind."""

from ..check import check, step
from ..process import run, until
from ..release import NAME, NAMESPACE


def clean(release) -> None:
    step("helm uninstall")
    run("helm", "uninstall", NAME, "-n", NAMESPACE, "--wait", timeout=180)
    kinds = ("pods,deployments,statefulsets,daemonsets,services,endpointslices,configmaps,serviceaccounts,roles,"
             "rolebindings,poddisruptionbudgets,horizontalpodautoscalers,persistentvolumeclaims")
    ours = ["get", kinds, "-l", f"app.kubernetes.io/instance={NAME}", "-o", "name"]
    until("everything to be gone", lambda: release.kubectl(*ours) == "", 60)
    check("nothing of the release is left", release.kubectl(*ours) == "")
