"""Exceptions that end a run early."""


class Refused(Exception):
    """Something that the run needs is missing."""


class Failed(Exception):
    """A command failed, with its error message, or a wait timed out."""
