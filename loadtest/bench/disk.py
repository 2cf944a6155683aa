"""Reads the block layer's counters, which prove that reads reached a drive."""

import os
import time
from dataclasses import dataclass
from pathlib import Path


def device_of(folder: Path) -> str:
    """Returns the name in /proc/diskstats of the device that holds a folder."""
    number = os.stat(folder).st_dev
    name = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").resolve().name
    return name


@dataclass
class Counted:
    """Counts over an interval, summed over all drives; `busy` is their mean share of time with I/O in flight."""

    reads: int
    sectors: int
    busy: float


class Watch:
    """Counts from its creation until `counted`."""

    def __init__(self, folders: list[Path]) -> None:
        self.devices = sorted({device_of(folder) for folder in folders})
        self.began = time.monotonic()
        self.before = self._read()

    def counted(self) -> Counted:
        """Returns reads, 512-byte sectors read, and the share of time with I/O in flight."""
        seconds = time.monotonic() - self.began
        after = self._read()
        reads, sectors, ticks = (
            sum(after[device][at] - self.before[device][at] for device in self.devices) for at in range(3)
        )
        return Counted(reads, sectors, ticks / 1e3 / seconds / max(1, len(self.devices)))

    def _read(self) -> dict[str, tuple[int, int, int]]:
        # Fields after major, minor and name, by the kernel's Documentation/admin-guide/iostats.rst:
        # 1 reads completed, 3 sectors read, 10 milliseconds with I/O in flight.
        found = {}
        for line in Path("/proc/diskstats").read_text().splitlines():
            fields = line.split()
            if fields[2] in self.devices:
                found[fields[2]] = (int(fields[3]), int(fields[5]), int(fields[12]))
        return found
