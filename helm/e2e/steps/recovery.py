"""Tests an update that empties caches: the next node is updated once the previous one's hit ratio has recovered."""

import time
from concurrent.futures import ThreadPoolExecutor

from ..check import check, say, step
from ..load import Load
from ..process import Failed, until

WAIT = ["io.hitRatioAtStart=0.9", 'io.startMax="2m"', 'query.settings.member_hold="4m"']
# Another segment size empties the slab; the fill rate is low enough to observe the recovery.
EMPTIED = ['io.settings.segment="16MiB"', 'io.settings.fill_rate="1MiB"']


def before_the_next(release) -> None:
    step("an update that empties the I/O nodes goes on once each one's hit ratio has recovered")
    release.upgrade(*WAIT)
    release.rollout("io")
    release.settled("io", 2)
    release.warm()
    with ThreadPoolExecutor() as aside, Load(release, "search", 150):
        updating = aside.submit(release.upgrade, *WAIT, *EMPTIED)
        last, first = follow(release, "bireme-io-1"), follow(release, "bireme-io-0", "bireme-io-1")
        updating.result()
        release.rollout("io")
        release.settled("io", 2)
    for pod, found in (("bireme-io-1", last), ("bireme-io-0", first)):
        check(f"{pod} was asked before it was ready", found["rows"] > 0, f"{found['rows']} rows")
        check(f"{pod} was not ready while they came from the table", found["table_rows"] > 0,
              f"{found['table_rows']} of them")
        log = release.kubectl("logs", pod)
        said = next((line for line in log.splitlines() if "the hit ratio is reached" in line), "")
        check(f"{pod} says when it is ready", said, said[-120:])
    check("the next node was left alone until then", first["waited_for_the_last"])
    # With the default values, an update does not wait for the hit ratio.
    release.upgrade()
    release.rollout("io")
    release.settled("io", 2)


def follow(release, pod: str, before: str | None = None) -> dict:
    """Follows the pod from its replacement until it is ready. Returns the rows that it answered, and whether `before`
    was ready at the replacement."""
    old = release.pods("io")[pod]["metadata"]["uid"]
    until(f"{pod} to be replaced", lambda: replaced(release, pod, old), 200)
    begun = time.monotonic()
    waited = before is None or before in release.ready_pods("io")
    rows = table_rows = 0
    while pod not in release.ready_pods("io"):
        node = next((it for it in release.io_nodes() if it["name"] == pod and it["reachable"]), None)
        if node and not node["ready"]:
            rows, table_rows = node["rows"], node["table_rows"]
        if time.monotonic() > begun + 150:
            raise Failed(f"{pod} is not ready after 150 s, and should wait for at most 120 s")
        time.sleep(0.5)
    say(f"   {pod} was ready after {time.monotonic() - begun:.0f} s; before, {table_rows} of {rows} rows from the table")
    return {"rows": rows, "table_rows": table_rows, "waited_for_the_last": waited}


def replaced(release, pod: str, old: str) -> bool:
    found = release.pods("io").get(pod)
    return found is not None and found["metadata"]["uid"] != old
