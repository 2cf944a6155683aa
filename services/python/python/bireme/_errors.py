"""Exceptions: one class for each thing that a program can do about an error."""

from collections.abc import Mapping


class Error(Exception):
    """A request failed.

    `message` is the server's own sentence, which says what is wrong and how to fix it. `reason` is for programs, such
    as `COLUMN_NOT_FOUND`. `metadata` has the offending values.

    >>> import bireme
    >>> try:
    ...     bireme.connect().table("word").get("n02503517")
    ... except bireme.Error as error:
    ...     print(type(error).__name__, error.reason, error.metadata["table"])
    NotFoundError TABLE_NOT_FOUND word
    """

    message: str
    reason: str
    metadata: dict[str, str]

    def __init__(self, message: str, reason: str = "INTERNAL", metadata: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason
        self.metadata = dict(metadata or {})


class NotFoundError(Error, LookupError):
    """There is no such table, version or row."""


class BadRequestError(Error, ValueError):
    """An argument is wrong, or the table lacks an index or a key column that the request needs."""


class DeniedError(Error, PermissionError):
    """The caller's credentials are missing or not accepted, or do not allow the request."""


class UnavailableError(Error, ConnectionError):
    """A node or the object store can't be reached. The request can be sent again."""


class DeadlineError(Error, TimeoutError):
    """The time limit passed before the answer arrived."""


class OverloadedError(Error):
    """The node is overloaded, or a limit of the caller is reached. The request can be sent again after a pause."""


_CLASSES: dict[str, type[Error]] = {
    "TABLE_NOT_FOUND": NotFoundError,
    "VERSION_NOT_FOUND": NotFoundError,
    "ROW_NOT_FOUND": NotFoundError,
    "KEY_NOT_FOUND": NotFoundError,
    "COLUMN_NOT_FOUND": BadRequestError,
    "BAD_VECTOR": BadRequestError,
    "BAD_FILTER": BadRequestError,
    "BAD_ARGUMENT": BadRequestError,
    "NO_INDEX": BadRequestError,
    "RECALL_UNKNOWN": BadRequestError,
    "UNSUPPORTED_TYPE": BadRequestError,
    "TOO_LARGE": BadRequestError,
    "UNIMPLEMENTED": BadRequestError,
    "TABLE_NOT_SERVED": DeniedError,
    "UNAUTHENTICATED": DeniedError,
    "FORBIDDEN": DeniedError,
    "STORE_REFUSED": DeniedError,
    "STORE_UNREACHABLE": UnavailableError,
    "NODE_UNAVAILABLE": UnavailableError,
    "DEADLINE_EXCEEDED": DeadlineError,
    "OVERLOADED": OverloadedError,
    "LIMIT_REACHED": OverloadedError,
    # Defects, damage, calls that were cancelled, and conflicts of writers, which readers never meet.
    "CONFLICT": Error,
    "TABLE_DAMAGED": Error,
    "BAD_PROTOCOL": Error,
    "CANCELLED": Error,
    "INTERNAL": Error,
}


def _error(reason: str, message: str, metadata: Mapping[str, str]) -> Error:
    """Returns the exception for a reason. The native module calls this."""
    return _CLASSES.get(reason, Error)(message, reason, metadata)
