"""The steps, in order."""

import argparse
import sys
import time
from pathlib import Path

from . import archives, drives
from .check import CheckFailed, say, step
from .cluster.cluster import Cluster
from .process import Failed
from .release import Release
from .steps import install, scale, uninstall, update
from .store import Store

STEPS = {
    "defaults": install.defaults,
    "install": install.whole,
    "search": install.search,
    "upgrade": update.upgrade_and_rollback,
    "scale-io": scale.io_tier,
    "scale-query": scale.query_tier,
    "restart-query": lambda release: update.rolling_restart(release, "query"),
    "restart-io": lambda release: update.rolling_restart(release, "io"),
    "partition": update.partition,
    "uninstall": uninstall.clean,
}
# Without these there is nothing for the others to look at.
ALWAYS = ["install", "search"]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m e2e", description=__doc__)
    parser.add_argument("--bireme", type=Path, required=True, help="the binary to make the image of")
    parser.add_argument("--nodes", type=int, default=3, help="worker nodes (3)")
    parser.add_argument("--keep", action="store_true", help="wait for Enter before cleaning up")
    parser.add_argument("steps", nargs="*", help=f"steps to take, all by default: {', '.join(STEPS)}")
    chosen = parser.parse_args()
    unknown = set(chosen.steps) - set(STEPS)
    if unknown:
        parser.error(f"no step {', '.join(unknown)}")
    return chosen


def main() -> int:
    chosen = arguments()
    wanted = [name for name in STEPS if not chosen.steps or name in chosen.steps or name in ALWAYS]
    step("images")
    images = archives.make(chosen.bireme)
    cluster, store, fault, begun = Cluster(chosen.nodes), None, None, time.monotonic()
    try:
        step(f"a cluster of {chosen.nodes} nodes")
        cluster.up(images)
        drives.make(cluster)
        store = Store()
        store.fill(chosen.bireme)
        release = Release(chosen.bireme)
        release.cluster, release.store = cluster, store
        for name in wanted:
            STEPS[name](release)
    except (Failed, CheckFailed) as error:
        fault = error
        step(f"FAILED: {error}")
    if chosen.keep:
        input("the cluster is there until Enter\n")
    step("cleaning up")
    if store:
        store.server.stop()
    cluster.down()
    if not fault:
        say(f"{len(wanted)} steps hold, in {time.monotonic() - begun:.0f} s")
    return 1 if fault else 0


sys.exit(main())
