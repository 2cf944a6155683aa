"""A cable in user space: frames are held back, and some lost, as netem does where the kernel has it.

usage: python -m network.relay NAMESPACE TAP NAMESPACE TAP; then lines of DELAY_MS JITTER_MS LOSS on stdin

Each frame waits for the delay and a jitter drawn evenly from ±JITTER_MS, in each direction; no frame overtakes
another, as on a cable. At most QUEUE_MAX wait; what comes then is lost.
"""

import fcntl
import os
import random
import select
import struct
import sys
import time
from collections import deque

from .namespaces import enter

TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI = 0x0002, 0x1000
FRAME_MAX = 65_536
QUEUE_MAX = 10_000


def tap(namespace: str, device: str) -> int:
    """Its descriptor; the device is there already."""
    enter(namespace)
    handle = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(handle, TUNSETIFF, struct.pack("16sH22x", device.encode(), IFF_TAP | IFF_NO_PI))
    return handle


class Way:
    """One direction."""

    def __init__(self, source: int, sink: int) -> None:
        self.source, self.sink = source, sink
        self.waiting: deque[tuple[float, bytes]] = deque()
        self.last_due = 0.0

    def take(self, delay: float, jitter: float, loss: float) -> None:
        """All that has come."""
        while True:
            try:
                frame = os.read(self.source, FRAME_MAX)
            except OSError:
                # Nothing more; or the device is down, as for a cable that is cut.
                return
            if random.random() < loss or len(self.waiting) >= QUEUE_MAX:
                continue
            self.last_due = max(self.last_due, time.monotonic() + delay + random.uniform(-jitter, jitter))
            self.waiting.append((self.last_due, frame))

    def give(self) -> None:
        """All whose time has come."""
        now = time.monotonic()
        while self.waiting and self.waiting[0][0] <= now:
            try:
                os.write(self.sink, self.waiting.popleft()[1])
            except OSError:
                # The other end is down.
                pass


def main() -> None:
    """Until stdin ends."""
    first_namespace, first, second_namespace, second = sys.argv[1:]
    ends = tap(first_namespace, first), tap(second_namespace, second)
    ways = [Way(*ends), Way(*reversed(ends))]
    how = (0.0, 0.0, 0.0)
    print("ready", flush=True)
    while True:
        dues = [way.waiting[0][0] for way in ways if way.waiting]
        patience = max(0.0, min(dues) - time.monotonic()) if dues else None
        readable, _, _ = select.select([sys.stdin, *ends], [], [], patience)
        if sys.stdin in readable:
            line = sys.stdin.readline()
            if not line:
                return
            delay_ms, jitter_ms, loss = map(float, line.split())
            how = (delay_ms / 1e3, jitter_ms / 1e3, loss)
            print("heard", flush=True)
        for way in ways:
            if way.source in readable:
                way.take(*how)
            way.give()


main()
