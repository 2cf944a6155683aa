"""Turns signals that end a run into KeyboardInterrupt."""

import signal

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


def install() -> None:
    """Makes each of the signals raise KeyboardInterrupt, once."""
    for number in SIGNALS:
        signal.signal(number, _interrupted)


def _interrupted(*_: object) -> None:
    # Further signals are ignored, so that they cannot interrupt the cleanup.
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt
