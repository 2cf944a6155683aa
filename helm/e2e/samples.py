"""Samples a value repeatedly in the background."""

import threading
import time

from .process import Failed


class Samples:
    """`with Samples(2, take) as samples: …` fills `samples.taken` with pairs of a time in seconds and the result of
    `take`. If a command of `take` fails, that sample is skipped."""

    def __init__(self, every: float, take):
        self.every, self.take = every, take
        self.taken: list[tuple[float, object]] = []
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.sample, daemon=True)

    def __enter__(self):
        self.begun = time.monotonic()
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()

    def sample(self) -> None:
        while not self.over.is_set():
            try:
                found = self.take()
                self.taken.append((time.monotonic() - self.begun, found))
            except Failed:
                pass  # the next sample follows
            self.over.wait(self.every)

    def values(self) -> list:
        return [found for _, found in self.taken]
