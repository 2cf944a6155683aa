"""Signals that end a run."""

import signal

ENDS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


def heed() -> None:
    """From here on each of them is a KeyboardInterrupt."""
    for number in ENDS:
        signal.signal(number, _interrupted)


def _interrupted(*_: object) -> None:
    # Once: what is cleaned up then is not to be interrupted.
    for number in ENDS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt
