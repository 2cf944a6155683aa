"""What is to hold, told as it goes."""

import time

BEGUN = time.monotonic()


class Checks:
    """All that was to hold; a run goes on after what does not, and fails in the end."""

    def __init__(self) -> None:
        self.done: list[dict] = []

    def check(self, what: str, holds: object, found: object = "") -> None:
        """Notes whether it holds."""
        self.done.append({"what": what, "holds": bool(holds), "found": str(found)})
        shown = f" ({found})" if found != "" else ""
        say(f"   {'ok' if holds else 'DOES NOT HOLD'}: {what}{shown}")

    def broken(self) -> list[dict]:
        """What does not hold."""
        return [it for it in self.done if not it["holds"]]


def say(text: str) -> None:
    """A line of progress."""
    print(f"[{time.monotonic() - BEGUN:6.1f} s] {text}", flush=True)
