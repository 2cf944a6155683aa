"""Removes what nodes leave behind when they end, and what a killed run left."""

import fcntl
import os
import shutil
import signal
import time
from pathlib import Path

from ..check import Impossible
from ..layout import BIN, LOCK, LOGS, STATE
from ..process import RESTARTED, Failed, run
from . import cgroup, network


def claim():
    """Returns the machine's lock, to be held during the run. Raises `Impossible` if another run holds it, because two
    runs would remove each other's files."""
    LOCK.parent.mkdir(parents=True, exist_ok=True)
    held = open(LOCK, "w")
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Impossible("another run is under way on this machine") from None
    return held


def begin(nodes: int) -> None:
    """Removes everything of the last run and makes this run's folders."""
    remove(nodes)
    shutil.rmtree(LOGS, ignore_errors=True)
    LOGS.mkdir(parents=True)
    STATE.mkdir(parents=True)


def remove(nodes: int) -> None:
    end_processes()
    for mount in sorted(mounts(), reverse=True):
        try:
            run("umount", "-l", mount)
        except Failed:
            pass  # it was unmounted with another
    detach_loops()
    if nodes:
        network.down()
    for number in range(1, nodes + 1):
        cgroup.remove(number)
    shutil.rmtree(STATE, ignore_errors=True)


def detach_loops() -> None:
    """Detaches loop devices of the run's files, and those that a kubelet has put on top of them."""
    # A device that a process still has open is detached once that process has ended.
    for _ in range(3):
        listed = run("losetup", "--list", "--noheadings", "--raw", "--output", "NAME,BACK-FILE").splitlines()
        loops = dict(line.split(maxsplit=1) for line in listed if " " in line)
        ours = {name for name, file in loops.items() if file.startswith(f"{STATE}/")}
        stacked = {name for name, file in loops.items() if file in ours}
        # Devices on top are detached before those below them.
        leaves = stacked or ours
        if not leaves:
            return
        run("losetup", "--detach", *sorted(leaves))


def end_processes() -> None:
    """Ends the cluster's programs whose command line names the run's folder: components, containers' shims, and the
    shells that restart components."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        found = [process for process in Path("/proc").iterdir() if process.name.isdigit() and is_ours(process)]
        for process in found:
            try:
                os.kill(int(process.name), number)
            except ProcessLookupError:
                pass
        if not found:
            return
        time.sleep(2)


def is_ours(process: Path) -> bool:
    try:
        program, words = (process / "exe").readlink(), (process / "cmdline").read_bytes()
    except OSError:
        return False
    restarts = words.split(b"\0")[2:3] == [RESTARTED.encode()]
    return (program.parent == BIN or restarts) and f"{STATE}/".encode() in words


def mounts() -> list[str]:
    found = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    return [mount for mount in set(found) if mount.startswith(f"{STATE}/")]
