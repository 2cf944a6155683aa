"""Starts the `bireme` binary for a table, and connects to it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
import weakref
from collections.abc import Mapping
from pathlib import Path

from . import _bireme
from ._arguments import endpoint
from ._connection import Connection
from ._errors import BadRequestError, DeadlineError, Error, NotFoundError

#: The pause between checks for the ready file, in seconds.
_PAUSE = 0.02

#: The time that a server gets to end, in seconds. It waits up to 10 seconds for running requests.
_GRACE = 15.0


class Server(Connection):
    """A connection to nodes that `serve` started. The nodes end with the connection: at `close`, at the end of a `with`
    block, when neither the connection nor a table or search of it is used any more, or when the process ends, even by
    SIGKILL; if it was forked, when its forks have ended too. Their cache is removed then.
    """

    def __init__(self, client: _bireme.Client, timeout: float | None, running: _Running) -> None:
        super().__init__(client, timeout)
        self._end = weakref.finalize(self, running.end)

    def close(self) -> None:
        """Ends the nodes and removes their cache."""
        self._end()

    def __enter__(self) -> Server:
        return self


class _Running:
    """A process of the binary, with the folder of its cache."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self._folder = folder
        self._owner = os.getpid()
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - `end` closes it
        # The process has a session of its own, so that Ctrl-C in a terminal does not end it. It ends when its stdin is
        # closed, as it is when this process ends in any way.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=self._said, start_new_session=True
        )

    def ended(self) -> str | None:
        """Returns the last line of the process's stderr if the process has ended, else None."""
        code = self._process.poll()
        if code is None:
            return None
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"it ended with code {code} and said nothing"

    def end(self) -> None:
        """Ends the process and removes the folder. Does nothing in a fork."""
        if os.getpid() != self._owner:
            return
        self._process.terminate()
        try:
            self._process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdin:
            self._process.stdin.close()
        self._said.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def serve(
    uri: str | os.PathLike[str] | Mapping[str, str | os.PathLike[str]],
    *,
    timeout: float | None = 30.0,
    start_timeout: float = 60.0,
) -> Server:
    """Starts both tiers for a table on free ports of this machine, and connects to them.

    `uri` is a folder, or an `s3://`, `gs://` or `az://` URI, whose last part without `.lance` becomes the table's name;
    or a dictionary from names to such URIs. The credentials of a store come from the environment. The nodes run in a
    process of the `bireme` binary (BIREME_BINARY, or the one on the PATH), with a cache in a temporary folder.

    `timeout` is the time limit of each request in seconds, and `start_timeout` that of the start.

    >>> import bireme
    >>> with bireme.serve("words.lance") as db:
    ...     db.table("words").exists("n02503517")
    True
    """
    binary = _binary()
    tables = uri if isinstance(uri, Mapping) else {_name(os.fspath(uri)): uri}
    folder = Path(tempfile.mkdtemp(prefix="bireme-"))
    ready = folder / "ready.json"
    command = [binary, "up", "--listen", "127.0.0.1:0", "--allow-buffered"]
    command += ["--temporary", "--cache-dir", str(folder), "--ready-file", str(ready)]
    for name, at in tables.items():
        command += ["--table", f"{name}={os.fspath(at)}"]
    try:
        running = _Running(command, folder)
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        message = f"{binary} can't be run: {error.strerror}; name another in BIREME_BINARY"
        raise NotFoundError(message, "BINARY_NOT_FOUND") from error
    try:
        at = _wait(running, ready, start_timeout)
        client = _bireme.connect(endpoint(at), None, None, None, None, None).wait()
        return Server(client, timeout, running)
    except BaseException:
        running.end()
        raise


def _wait(running: _Running, ready: Path, start_timeout: float) -> str:
    """Returns the endpoint of the query node once it serves."""
    until = time.monotonic() + start_timeout
    while not ready.exists():
        if (said := running.ended()) is not None:
            raise Error(said.removeprefix("bireme: ").removeprefix("error: "), "SERVER_NOT_STARTED")
        if time.monotonic() > until:
            message = f"`bireme up` does not serve after {start_timeout:g} s; allow more time with start_timeout"
            raise DeadlineError(message, "DEADLINE_EXCEEDED")
        time.sleep(_PAUSE)
    query: str = json.loads(ready.read_text())["query"]
    return query


def _binary() -> str:
    """Returns the path of the binary."""
    binary = os.environ.get("BIREME_BINARY") or shutil.which("bireme")
    if not binary:
        message = (
            "there is no `bireme` on the PATH, and BIREME_BINARY does not name one; build it with `make release`, "
            "or connect to running nodes with bireme.connect"
        )
        raise NotFoundError(message, "BINARY_NOT_FOUND")
    return binary


def _name(uri: str) -> str:
    """Returns the name of the table at a URI."""
    name = uri.rstrip("/").rsplit("/", 1)[-1].removesuffix(".lance")
    if not name or "=" in name:
        raise BadRequestError(f"the URI {uri!r} names no table; give a dictionary from a name to it", "BAD_ARGUMENT")
    return name
