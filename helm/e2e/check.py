"""Steps and their checks, told as they go."""

import sys
import time

BEGUN = time.monotonic()


class CheckFailed(Exception):
    """What was to hold and did not."""


class Impossible(Exception):
    """Why nothing can be checked on this machine, or not now: no fault of what is to be checked."""


def say(text: str) -> None:
    print(f"[{time.monotonic() - BEGUN:6.1f} s] {text}", flush=True)


def step(text: str) -> None:
    bold = ("\033[1m", "\033[0m") if sys.stdout.isatty() else ("", "")
    say(f"{bold[0]}{text}{bold[1]}")


def check(what: str, holds, found="") -> None:
    shown = f" ({found})" if found != "" else ""
    if not holds:
        raise CheckFailed(f"{what}{shown}")
    say(f"   ok: {what}{shown}")
