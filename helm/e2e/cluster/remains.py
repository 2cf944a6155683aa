"""What a node leaves behind when it ends, and what a run that was killed left."""

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
    """Two runs would take each other's remains away: raises `Impossible` if there is another. What comes back is to
    be kept."""
    LOCK.parent.mkdir(parents=True, exist_ok=True)
    held = open(LOCK, "w")
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Impossible("another run is under way on this machine") from None
    return held


def begin(nodes: int) -> None:
    """Nothing of the last run is there any more, and there is a place for this one's."""
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
            pass  # it went with another
    detach_loops()
    if nodes:
        network.down()
    for number in range(1, nodes + 1):
        cgroup.remove(number)
    shutil.rmtree(STATE, ignore_errors=True)


def detach_loops() -> None:
    """Loop devices of files of the run, and those that a kubelet has made of them to hold them."""
    # A device that somebody still has open is let go when they have ended.
    for _ in range(3):
        listed = run("losetup", "--list", "--noheadings", "--raw", "--output", "NAME,BACK-FILE").splitlines()
        loops = dict(line.split(maxsplit=1) for line in listed if " " in line)
        ours = {name for name, file in loops.items() if file.startswith(f"{STATE}/")}
        upon = {name for name, file in loops.items() if file in ours}
        # One that others stand on goes after them.
        leaves = upon or ours
        if not leaves:
            return
        run("losetup", "--detach", *sorted(leaves))


def end_processes() -> None:
    """Our tools whose command line names the run's folder: components, the shims of containers, and first of all the
    shells that begin components anew."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        found = [process for process in Path("/proc").iterdir() if process.name.isdigit() and ours(process)]
        for process in found:
            try:
                os.kill(int(process.name), number)
            except ProcessLookupError:
                pass
        if not found:
            return
        time.sleep(2)


def ours(process: Path) -> bool:
    try:
        program, words = (process / "exe").readlink(), (process / "cmdline").read_bytes()
    except OSError:
        return False
    begins_anew = words.split(b"\0")[2:3] == [RESTARTED.encode()]
    return (program.parent == BIN or begins_anew) and f"{STATE}/".encode() in words


def mounts() -> list[str]:
    found = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    return [mount for mount in set(found) if mount.startswith(f"{STATE}/")]
