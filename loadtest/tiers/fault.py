"""Why a run ends before it is done."""


class Refused(Exception):
    """What is needed is not there."""


class Failed(Exception):
    """A command that ended with an error, with what it said; or what was waited for in vain."""
