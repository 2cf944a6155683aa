"""Runs the chart's own load test in the cluster."""

import json

from .. import store
from ..check import check, say, step
from ..process import Failed, until

SELECTOR = "app.kubernetes.io/component=loadtest"


def load(release) -> None:
    step("helm test with load: k6 in the cluster")
    values = {"enabled": True, "table": store.TABLE, "duration": "10s", "settings": {"P99_MS": "60000", "VERBOSE": "1"}}
    release.upgrade(f"loadtest={json.dumps(values)}")
    # Helm prints the test's output as one line, with escaped line breaks.
    said = release.helm_test().replace("\\n", "\n")
    for line in said.splitlines():
        if line.startswith("|"):
            say(f"   {line}")
    check("helm test succeeds and shows the load's results", "All thresholds hold." in said)
    until("nothing of it to be left", lambda: left(release) == "")
    check("nothing of it is left", True)
    failed_load(release, {**values, "duration": "2s", "settings": {"P99_MS": "0"}})
    release.upgrade()


def left(release) -> str:
    return release.kubectl("get", "jobs,pods,configmaps", "-l", SELECTOR, "-o", "name")


def failed_load(release, values: dict) -> None:
    """Checks a load with a threshold that cannot hold."""
    release.upgrade(f"loadtest={json.dumps(values)}")
    try:
        release.helm_test()
        said = ""
    except Failed as error:
        said = str(error)
    check("helm test fails if a threshold does not hold, and names it", "**Does not hold:**" in said)
    check("its pod stays for inspection", "Does not hold" in release.kubectl("logs", "job/bireme-loadtest"))
    release.kubectl("delete", "job", "-l", SELECTOR)
    until("its pod to be gone", lambda: left(release) == "")
