"""Tests the loss of an I/O node's volume."""

from ..check import check, step
from ..hits import Hits
from ..load import Load
from ..process import until
from .scale import reachable

POD, CLAIM = "bireme-io-1", "nvme0-bireme-io-1"
# The fill rate is low enough to observe the recovery.
SLOWLY = 'io.settings.fill_rate="1MiB"'


def lost(release) -> None:
    step("an I/O node loses its volume under load")
    release.upgrade(SLOWLY)
    release.rollout("io")
    release.settled("io", 2)
    release.warm()
    old = claim(release)
    with Load(release, "search", 60), Hits(release) as hits:
        hits.until(0.99)
        release.kubectl("delete", "persistentvolumeclaim", CLAIM, "--wait=false")
        release.kubectl("delete", "pod", POD, "--wait=false")
        until("another volume", lambda: claim(release) not in (None, old), 60)
        release.settled("io", 2)
        until("its answers", lambda: POD in {node["name"] for node in reachable(release)})
        hits.until(0.99)
    hits.show()
    check("it has another volume", claim(release) != old, f"{old} before, {claim(release)} now")
    check("rows came from the table at first", hits.missed() > 0, f"{hits.missed()} of {hits.rows()}")
    check("and then from the drives again", hits.last() >= 0.99, f"{hits.last():.1%}")
    release.upgrade()
    release.rollout("io")
    release.settled("io", 2)


def claim(release) -> str | None:
    """Returns the name of the claim's volume."""
    found = release.kubectl("get", "persistentvolumeclaim", CLAIM, "--ignore-not-found",
                            "-o", "jsonpath={.spec.volumeName}")
    return found or None
