"""Prints steps and checks."""

import sys
import time

BEGUN = time.monotonic()


class CheckFailed(Exception):
    """A check failed."""


class Impossible(Exception):
    """This machine cannot run the tests, or cannot run them now. That says nothing about the chart."""


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
