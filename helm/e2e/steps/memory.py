"""Tests memory limits: a node's memory settings keep it below the limit at which it would be killed."""

from ..check import check, step
from ..cluster import cgroup
from ..load import Load
from .faults import containers
from .update import both_settled

MIB = 1 << 20
# In MiB: about 1.5 times the memory that was measured under this step's load.
LIMITS = {"io": 64, "query": 80}
TIGHT = [f'{tier}.resources.{which}.memory="{mib}Mi"'
         for tier, mib in LIMITS.items() for which in ("requests", "limits")]
PARTS = ['query.settings.index_cache="16MiB"', 'query.settings.key_index="4MiB"']
# Another segment size empties the slab, so that the memory of fills is tested too.
EMPTIED = 'io.settings.segment="4MiB"'


def held(release) -> None:
    step("tight memory limits are held, under a mixed load and in a spike")
    release.upgrade(*TIGHT, *PARTS, EMPTIED)
    both_settled(release)
    before = containers(release)
    with Load(release, "mixed", 20, rate=60):
        release.warm()
    with Load(release, "spike", 55, overload=True):
        pass
    check("no container was restarted", containers(release) == before)
    for tier, mib in LIMITS.items():
        for name, pod in sorted(release.pods(tier).items()):
            (status,) = pod["status"]["containerStatuses"]
            check(f"{name} was not killed", status["restartCount"] == 0 and not status["lastState"])
            peak, limit = cgroup.memory(release.pid(tier, name))
            check(f"{name} has the limit", limit == mib * MIB)
            check(f"{name} stayed below it", peak < limit, f"{peak / MIB:.0f} of {mib} MiB")
    release.upgrade()
    both_settled(release)
