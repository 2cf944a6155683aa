"""The load test that the chart brings along, in the cluster."""

import json

from .. import store
from ..check import check, say, step
from ..process import Failed
from ..release import NAME


def load(release) -> None:
    step("helm test with load: k6 in the cluster")
    values = {"enabled": True, "table": store.TABLE, "duration": "10s", "settings": {"P99_MS": "60000", "VERBOSE": "1"}}
    release.upgrade(f"loadtest={json.dumps(values)}")
    try:
        release.helm_test(NAME)
        fault = ""
    except Failed as error:
        fault = str(error)
    for line in release.kubectl("logs", "job/bireme-loadtest").splitlines():
        if fault or line.startswith("|"):
            say(f"   {line}")
    check("helm test holds", not fault, fault)
    release.upgrade()
