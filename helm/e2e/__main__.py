"""Runs the steps in order."""

import argparse
import os
import signal
import sys
import time
from pathlib import Path

from . import archives, drives, machine
from .check import CheckFailed, Impossible, say, step
from .cluster import remains
from .cluster.cluster import Cluster
from .process import Failed
from .release import Release
from .steps import (
    access, autoscale, devices, discovery, faults, hundreds, in_cluster, install, memory, metrics, monitor,
    network_policies, placement, recovery, scale, seccomp, tls, uninstall, update, volume,
)
from .store import Store

STEPS = {
    "defaults": install.defaults,
    "install": install.both_tiers,
    "search": install.search,
    "spread": placement.spread,
    "metrics": metrics.scraped,
    "monitor": monitor.followed,
    "upgrade": update.upgrade_and_rollback,
    "scale-io": scale.io_tier,
    "scale-query": scale.query_tier,
    "restart-query": lambda release: update.rolling_restart(release, "query"),
    "restart-query-everywhere": update.on_every_node,
    "restart-io": lambda release: update.rolling_restart(release, "io"),
    "partition": update.partition,
    "another-image": update.another_image,
    "hits-recover": recovery.before_the_next,
    "tls": tls.renewed,
    "cert-manager": tls.by_cert_manager,
    "access": access.by_policy,
    "network-policies": network_policies.in_force,
    "devices": devices.raw_and_pinned,
    "dns": discovery.by_dns,
    "hundreds": hundreds.io_nodes,
    "autoscale": autoscale.by_cpu,
    "autoscale-by-requests": autoscale.by_requests,
    "load-in-cluster": in_cluster.load,
    "memory": memory.held,
    "killed": faults.killed,
    "volume-lost": volume.lost,
    "node-cut-off": faults.node_cut_off,
    "api-server-away": faults.api_server_away,
    "store-away": faults.store_away,
    "drained": faults.drained,
    "query-drained": faults.query_tier_drained,
    "seccomp-fallback": seccomp.fallback,
    "seccomp-profile": seccomp.in_force,
    "uninstall": uninstall.clean,
}
# The other steps need these.
ALWAYS = ["install", "search"]
# The exit code if no cluster is possible here, so that the chart was not tested.
NO_CLUSTER = 75


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m e2e", description=__doc__)
    parser.add_argument("--bireme", type=Path, required=True, help="the binary for the image")
    parser.add_argument("--nodes", type=int, default=3, help="worker nodes (3)")
    parser.add_argument("--keep", action="store_true", help="wait for Enter before cleaning up")
    parser.add_argument("steps", nargs="*", help=f"the steps to run, all by default: {', '.join(STEPS)}")
    chosen = parser.parse_args()
    unknown = set(chosen.steps) - set(STEPS)
    if unknown:
        parser.error(f"there is no step {', '.join(unknown)}; --help lists the steps")
    return chosen


def main() -> int:
    chosen = arguments()
    wanted = [name for name in STEPS if not chosen.steps or name in chosen.steps or name in ALWAYS]
    cluster, begun = Cluster(chosen.nodes), time.monotonic()
    # The parent process may have set these signals to be ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        claimed = claim(chosen.nodes)
    except Impossible as why:
        step(f"a cluster is not possible here: {why}")
        return NO_CLUSTER
    try:
        run_steps(wanted, cluster, chosen.bireme)
        say(f"{len(wanted)} steps hold, in {time.monotonic() - begun:.0f} s")
        return 0
    except (Failed, CheckFailed) as error:
        step(f"FAILED: {error}")
        return 1
    except KeyboardInterrupt:
        step("FAILED: interrupted")
        return 1
    finally:
        if chosen.keep:
            input("the cluster runs until Enter\n")
        step("cleaning up")
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        cluster.down()
        claimed.close()


def claim(nodes: int):
    """Returns the lock to hold while the cluster is up. Raises `Impossible` if no cluster is possible here."""
    if os.geteuid():
        raise Impossible("it needs root: run as root")
    claimed = remains.claim()
    remains.remove(nodes)
    machine.check_capabilities()
    return claimed


def run_steps(wanted: list[str], cluster: Cluster, bireme: Path) -> None:
    step("images")
    images = archives.make(bireme)
    step(f"a cluster of {cluster.nodes} nodes")
    cluster.up(images)
    drives.make(cluster)
    store = Store(cluster)
    store.fill(bireme)
    release = Release(bireme, cluster, store)
    for name in wanted:
        STEPS[name](release)


sys.exit(main())
