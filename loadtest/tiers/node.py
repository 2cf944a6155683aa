"""A node of Bireme as a process."""

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
    """A process under way."""

    name: str
    endpoint: str
    process: subprocess.Popen
    log: Path
    started_seconds: float = 0.0

    def serves(self, is_up: Callable[["Node"], bool]) -> None:
        """Waits until it does; one that ends instead, or takes too long, is refused with what it said last."""
        began = time.monotonic()
        while not is_up(self):
            if not self.is_alive() or time.monotonic() > began + START_SECONDS:
                raise Refused(f"{self.name} didn't start:\n{self.log.read_text()[-2000:]}")
            time.sleep(0.02)
        self.started_seconds = time.monotonic() - began

    def cpu_us(self) -> float:
        """CPU time so far, all threads, user and system, as the kernel accounts it."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) * 1e6 / os.sysconf("SC_CLK_TCK")

    def resident_bytes(self) -> int:
        """Memory that it has."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def threads(self) -> int:
        """How many it has."""
        return len(list(Path(f"/proc/{self.process.pid}/task").iterdir()))

    def descriptors(self) -> int:
        """Files and sockets that it has open."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def is_alive(self) -> bool:
        """Whether it runs."""
        return self.process.poll() is None

    def kill(self) -> None:
        """As a machine that loses power would end it."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """As it is asked to; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


def begun(name: str, endpoint: str, command: list[str], log: Path, settings: dict[str, str]) -> Node:
    """A node that may not serve yet; `settings` are of its environment."""
    with log.open("a") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, env=os.environ | settings, start_new_session=True
        )
    return Node(name, endpoint, process, log)
