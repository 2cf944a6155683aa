"""Runs a node of Bireme as a process."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .fault import Refused

START_SECONDS = 60


@dataclass
class Node:
    """A node's process."""

    name: str
    endpoint: str
    process: subprocess.Popen
    log: Path
    started_seconds: float = 0.0

    def serves(self, is_up: Callable[["Node"], bool]) -> None:
        """Waits until `is_up`. Raises `Refused` with the end of the log if the process ends or takes too long."""
        began = time.monotonic()
        while not is_up(self):
            if not self.is_alive() or time.monotonic() > began + START_SECONDS:
                raise Refused(f"{self.name} did not start:\n{self.log.read_text()[-2000:]}")
            time.sleep(0.02)
        self.started_seconds = time.monotonic() - began

    def cpu_us(self) -> float:
        """Returns the CPU time so far, as the kernel accounts it: all threads, user and system."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) * 1e6 / os.sysconf("SC_CLK_TCK")

    def resident_bytes(self) -> int:
        """Returns the resident memory."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def threads(self) -> int:
        """Returns the number of threads."""
        return len(list(Path(f"/proc/{self.process.pid}/task").iterdir()))

    def descriptors(self) -> int:
        """Returns the number of open files and sockets."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def is_alive(self) -> bool:
        """Returns whether the process runs."""
        return self.process.poll() is None

    def kill(self) -> None:
        """Kills the process by SIGKILL."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """Stops the process by SIGTERM. Returns its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


def spawn(name: str, endpoint: str, command: list[str], log: Path, settings: dict[str, str]) -> Node:
    """Starts a node with `settings` in its environment, and does not wait until it serves."""
    with log.open("a") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, env=os.environ | settings, start_new_session=True
        )
    return Node(name, endpoint, process, log)
