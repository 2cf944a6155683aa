"""Exceptions that end a run early."""


class Refused(Exception):
    """Something that the run needs is missing or does not start."""


class Failed(Exception):
    """A command failed, with its error message, a wait timed out, or the load did not reach what it should."""
