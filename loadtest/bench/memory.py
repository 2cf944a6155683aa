"""Mounts a tmpfs for slabs in memory, which stand for a drive that takes no time, and prepares memory for huge pages."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .profile import Profile


@contextmanager
def folder(profile: Profile, slabs: int = 1) -> Iterator[Path]:
    """Mounts the profile's folder in memory, with space for `slabs` slabs. It uses huge pages, because with small
    ones half of a read's time is spent on finding the page. Memory that earlier work has left in small pieces is joined
    first, for this folder and for RAM tiers."""
    Path("/proc/sys/vm/drop_caches").write_text("3")
    Path("/proc/sys/vm/compact_memory").write_text("1")
    profile.memory_folder.mkdir(parents=True, exist_ok=True)
    options = f"huge=always,size={slabs * profile.slab_gib + 1}g"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", profile.memory_folder], check=True)
    try:
        yield profile.memory_folder
    finally:
        subprocess.run(["umount", profile.memory_folder], check=True)
