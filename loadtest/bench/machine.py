"""Describes the machine for the report."""

import os
import platform
import subprocess
from pathlib import Path

from . import disk


def describe(drive_folders: list[Path]) -> dict:
    """Returns CPU, memory, kernel and drives."""
    cpuinfo = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(":", 1)[1].strip() for line in cpuinfo if line.startswith("model name")]
    memory = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal"))
    drives = []
    for folder in drive_folders:
        device = disk.device_of(folder)
        queue = Path(f"/sys/class/block/{device}/queue")
        read = lambda name: (queue / name).read_text().strip() if (queue / name).exists() else "?"
        filesystem = subprocess.run(
            ["findmnt", "-n", "-o", "FSTYPE", "-T", str(folder)], capture_output=True, text=True
        ).stdout.strip()
        drives.append({"device": device, "filesystem": filesystem, "scheduler": read("scheduler"), "nr_requests": read("nr_requests")})
    return {
        "cpu": names[0] if names else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(int(memory.split()[1]) / 2**20),
        "kernel": platform.release(),
        "drives": drives,
    }


def text(described: dict) -> str:
    """Returns a description as text."""
    drives = "; ".join(
        f"{it['device']} ({it['filesystem']}, scheduler {it['scheduler']}, nr_requests {it['nr_requests']})"
        for it in described.get("drives", [])
    )
    return (
        f"{described.get('cpu', '?')}, {described.get('cores', '?')}\ncores, {described.get('memory_gib', '?')} GiB, "
        f"Linux {described.get('kernel', '?')}; drive {drives}"
    )
