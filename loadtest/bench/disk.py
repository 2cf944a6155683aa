"""What the block layer counted: reads can't be claimed that no drive has made."""

import os
import time
from dataclasses import dataclass
from pathlib import Path


def device_of(folder: Path) -> str:
    """The name in /proc/diskstats of the device that holds a folder."""
    number = os.stat(folder).st_dev
    name = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").resolve().name
    return name


@dataclass
class Counted:
    """Over an interval, all drives together."""

    reads: int
    sectors: int
    busy: float


class Watch:
    """Counts from its making until `counted`."""

    def __init__(self, folders: list[Path]) -> None:
        self.devices = sorted({device_of(folder) for folder in folders})
        self.began = time.monotonic()
        self.before = self._read()

    def counted(self) -> Counted:
        """Reads, 512-byte sectors, and the part of the time in which reads were under way."""
        seconds = time.monotonic() - self.began
        after = self._read()
        reads, sectors, ticks = (
            sum(after[device][at] - self.before[device][at] for device in self.devices) for at in range(3)
        )
        return Counted(reads, sectors, ticks / 1e3 / seconds / max(1, len(self.devices)))

    def _read(self) -> dict[str, tuple[int, int, int]]:
        # Fields as in the kernel's Documentation/admin-guide/iostats.rst: 1 reads completed, 3 sectors
        # read, 10 milliseconds with I/O under way; after major, minor and name.
        found = {}
        for line in Path("/proc/diskstats").read_text().splitlines():
            fields = line.split()
            if fields[2] in self.devices:
                found[fields[2]] = (int(fields[3]), int(fields[5]), int(fields[12]))
        return found
