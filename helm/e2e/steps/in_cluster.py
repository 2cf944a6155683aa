"""The load test that the chart brings along, in the cluster."""

from .. import store
from ..check import check, step
from ..release import NAME


def load(release) -> None:
    step("helm test with load: k6 in the cluster")
    release.upgrade("loadtest.enabled=true", f"loadtest.table=\"{store.TABLE}\"", "loadtest.duration=\"10s\"")
    said = release.helm_test(NAME)
    check("its thresholds hold", said.count("Succeeded") >= 2)
    for line in release.kubectl("logs", "job/bireme-loadtest").splitlines():
        if line.startswith("|"):
            print("          ", line)
    release.upgrade()
