"""What is seen now and then while something else is done."""

import threading
import time

from .process import Failed


class Samples:
    """`with Samples(2, take) as samples: …` has `samples.taken`, pairs of the second and of what `take` gave then. A
    command of `take` that ends with an error gives nothing that time."""

    def __init__(self, every: float, take):
        self.every, self.take = every, take
        self.taken: list[tuple[float, object]] = []
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.go_on, daemon=True)

    def __enter__(self):
        self.begun = time.monotonic()
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()

    def go_on(self) -> None:
        while not self.over.is_set():
            try:
                found = self.take()
                self.taken.append((time.monotonic() - self.begun, found))
            except Failed:
                pass  # it is asked again
            self.over.wait(self.every)

    def values(self) -> list:
        return [found for _, found in self.taken]
