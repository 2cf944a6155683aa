"""Records checks and prints progress."""

import time

BEGUN = time.monotonic()


class Checks:
    """The results of all checks. A run continues after a check that fails, and itself fails at its end."""

    def __init__(self) -> None:
        self.done: list[dict] = []

    def check(self, what: str, holds: object, found: object = "") -> None:
        """Records and prints whether the check holds."""
        self.done.append({"what": what, "holds": bool(holds), "found": str(found)})
        shown = f" ({found})" if found != "" else ""
        say(f"   {'ok' if holds else 'DOES NOT HOLD'}: {what}{shown}")

    def broken(self) -> list[dict]:
        """Returns the checks that failed."""
        return [it for it in self.done if not it["holds"]]


def say(text: str) -> None:
    """Prints a line of progress with the time."""
    print(f"[{time.monotonic() - BEGUN:6.1f} s] {text}", flush=True)
