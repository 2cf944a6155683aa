"""Mounts a tmpfs for slabs in memory, which stand for a drive that takes no time; drops the page cache, and joins free
memory for huge pages."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .profile import Profile


def drop_caches() -> int:
    """Drops the page cache. Returns the bytes that remain in it."""
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3")
    lines = Path("/proc/meminfo").read_text().splitlines()
    fields = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}
    return fields["Cached"] - fields["Shmem"]


@contextmanager
def folder(profile: Profile, slabs: int = 1) -> Iterator[Path]:
    """Mounts the profile's folder in memory, with space for `slabs` slabs. It uses huge pages, because with small
    ones half of a read's time is spent on finding the page. Memory that earlier work has left in small pieces is joined
    first, for this folder and for RAM tiers."""
    drop_caches()
    Path("/proc/sys/vm/compact_memory").write_text("1")
    profile.memory_folder.mkdir(parents=True, exist_ok=True)
    options = f"huge=always,size={slabs * profile.slab_gib + 1}g"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", profile.memory_folder], check=True)
    try:
        yield profile.memory_folder
    finally:
        subprocess.run(["umount", profile.memory_folder], check=True)
