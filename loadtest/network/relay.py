"""A link in user space that delays and loses frames, for kernels without netem.

usage: python -m network.relay NAMESPACE TAP NAMESPACE TAP; then lines of DELAY_MS JITTER_MS LOSS on stdin

In each direction, each frame waits for the delay plus a jitter drawn uniformly from ±JITTER_MS. Frames keep their order.
At most QUEUE_MAX frames wait; further ones are lost.
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
    """Opens an existing TAP device and returns its descriptor."""
    enter(namespace)
    handle = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(handle, TUNSETIFF, struct.pack("16sH22x", device.encode(), IFF_TAP | IFF_NO_PI))
    return handle


class Direction:
    """One direction of the link."""

    def __init__(self, source: int, sink: int) -> None:
        self.source, self.sink = source, sink
        self.waiting: deque[tuple[float, bytes]] = deque()
        self.last_due = 0.0

    def receive(self, delay: float, jitter: float, loss: float) -> None:
        """Queues all frames that have arrived."""
        while True:
            try:
                frame = os.read(self.source, FRAME_MAX)
            except OSError:
                # There are no more frames, or the device is down because the link is cut.
                return
            if random.random() < loss or len(self.waiting) >= QUEUE_MAX:
                continue
            self.last_due = max(self.last_due, time.monotonic() + delay + random.uniform(-jitter, jitter))
            self.waiting.append((self.last_due, frame))

    def send(self) -> None:
        """Sends all frames that are due."""
        now = time.monotonic()
        while self.waiting and self.waiting[0][0] <= now:
            try:
                os.write(self.sink, self.waiting.popleft()[1])
            except OSError:
                # The device at the other end is down.
                pass


def main() -> None:
    """Relays frames until stdin ends."""
    first_namespace, first, second_namespace, second = sys.argv[1:]
    ends = tap(first_namespace, first), tap(second_namespace, second)
    directions = [Direction(*ends), Direction(*reversed(ends))]
    delay_jitter_loss = (0.0, 0.0, 0.0)
    print("ready", flush=True)
    while True:
        dues = [it.waiting[0][0] for it in directions if it.waiting]
        patience = max(0.0, min(dues) - time.monotonic()) if dues else None
        readable, _, _ = select.select([sys.stdin, *ends], [], [], patience)
        if sys.stdin in readable:
            line = sys.stdin.readline()
            if not line:
                return
            delay_ms, jitter_ms, loss = map(float, line.split())
            delay_jitter_loss = (delay_ms / 1e3, jitter_ms / 1e3, loss)
            print("heard", flush=True)
        for direction in directions:
            if direction.source in readable:
                direction.receive(*delay_jitter_loss)
            direction.send()


main()
