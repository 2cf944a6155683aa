"""Sends the requests of LanceDB's tests of its remote client to Bireme too.

test_remote_db.py has a server of its own, which compares each request with the expected one and answers with constants. Here
each read that it answers is sent to a node as well, with the same headers and body. The node has to answer it with success
and the same kind of content: JSON of the same form, or rows with the columns that the request names.
"""

import functools
import http.client
import http.server
import io
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlparse

import lancedb
import pyarrow as pa

from nodes import connect, nodes, scratch
from redirect import writing

READS = [
    "describe",
    "query",
    "count_rows",
    "stats",
    "explain_plan",
    "analyze_plan",
    "index",
    "tags",
    "version",
    "branches",
    "fetch_blobs",
]
ROWS = 300


class Mirror:
    """Sends requests to nodes. `problems` has the differences between answers that were found since it was cleared."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    @functools.cached_property
    def folder(self) -> Path:
        """A database with the table, columns and versions that the tests name."""
        folder = Path(tempfile.mkdtemp(dir=scratch))
        rows = {"id": range(ROWS), "a": range(ROWS), "score": [1.0] * ROWS}
        rows |= {name: ["a puppy", "a cat"] * (ROWS // 2) for name in ["name", "description"]}
        for name, dimension in [("vector", 3), ("vector2", 3), ("embedding", 10)]:
            vectors = [[float(row + at) for at in range(dimension)] for row in range(ROWS)]
            rows[name] = pa.array(vectors, pa.list_(pa.float32(), dimension))
        rows = pa.table(rows)
        image = lancedb.blob("image")
        table = connect(folder).create_table("test", schema=rows.schema.append(image))
        rows = rows.append_column("image", pa.array([b"alpha", None, b"gamma"] * (ROWS // 3), pa.large_binary()))
        table.add(rows)
        # The tests name its version 2.
        table.branches.create("exp")
        table.create_fts_index("name")
        table.create_fts_index("description", name="custom_fts_idx")
        flat = {"num_partitions": 1, "index_type": "IVF_FLAT"}
        table.create_index(vector_column_name="vector", **flat)
        table.create_index(vector_column_name="embedding", name="custom_vector_idx", **flat)
        table.create_scalar_index("id")
        table.create_scalar_index("a", name="custom_scalar_idx")
        return folder

    def send(self, command: str, path: str, headers: http.client.HTTPMessage, body: bytes, answer: bytes) -> None:
        """Sends a request to a node, and compares its answer with that of the test's server."""
        with writing():
            folder = self.folder
        node = nodes.of(folder)
        expected = http.client.HTTPResponse(Answer(answer))
        expected.begin()
        if expected.status != http.HTTPStatus.OK:
            return
        connection = http.client.HTTPConnection(urlparse(node.url).netloc)
        kept = {name: value for name, value in headers.items() if name.lower() not in ("host", "accept-encoding")}
        connection.request(command, path, body or None, kept)
        found = connection.getresponse()
        content = found.read()
        if found.status != http.HTTPStatus.OK:
            self.problems.append(f"{command} {path} {body!r} is answered with {found.status}: {content!r}")
            return
        kinds = [it.headers["Content-Type"] for it in (expected, found)]
        if kinds[0] != kinds[1]:
            self.problems.append(f"{command} {path} is answered with {kinds[1]}, not {kinds[0]}")
        elif kinds[0] == "application/json":
            if not is_like(json.loads(content), json.loads(expected.read())):
                self.problems.append(f"{command} {path} is answered with JSON of another form: {content!r}")
        else:
            is_stream = kinds[0] == "application/vnd.apache.arrow.stream"
            rows = pa.ipc.open_stream(content) if is_stream else pa.ipc.open_file(content)
            asked, names = json.loads(body), rows.schema.names
            wanted = [*(asked.get("columns") or []), *(["_rowid"] if asked.get("with_row_id") else [])]
            wanted += [asked["column"]] if "column" in asked else []
            if not set(wanted) <= set(names):
                self.problems.append(f"{path} {body!r} is answered with the columns {names}")


class Answer(io.BytesIO):
    """The bytes of an answer, in place of a socket."""

    def makefile(self, _mode: str) -> io.BytesIO:
        """Returns itself."""
        return self


def is_like(found: object, expected: object) -> bool:
    """Returns whether `found` has all keys of `expected`, with values of the same types."""
    if isinstance(expected, dict):
        return isinstance(found, dict) and all(key in found and is_like(found[key], it) for key, it in expected.items())
    return isinstance(found, type(expected))


mirror = Mirror()


def is_read(command: str, path: str) -> bool:
    """Returns whether a request only reads a table, or lists tables."""
    parts = [part for part in path.partition("?")[0].split("/") if part]
    if parts[:2] == ["v1", "table"]:
        is_list = len(parts) == 2 and command == "GET"
        return is_list or (
            parts[3:4] and parts[3] in READS and parts[-1] not in ("create", "delete", "update", "drop", "cherry_pick")
        )
    return parts[:2] == ["v1", "namespace"] and command == "GET" and parts[-1] == "list"


def mirrored(handler: type[http.server.BaseHTTPRequestHandler]) -> type[http.server.BaseHTTPRequestHandler]:
    """Returns a subclass of a request handler that also sends the reads to a node."""

    class Mirrored(handler):
        def do_GET(self) -> None:
            self.both(super().do_GET)

        def do_POST(self) -> None:
            self.both(super().do_POST)

        def both(self, answer: Callable[[], None]) -> None:
            if not is_read(self.command, self.path):
                answer()
                return
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            streams = self.rfile, self.wfile
            self.rfile, self.wfile = io.BytesIO(body), io.BytesIO()
            try:
                answer()
            finally:
                answered = self.wfile.getvalue()
                self.rfile, self.wfile = streams
            try:
                mirror.send(self.command, self.path, self.headers, body, answered)
            except (http.client.HTTPException, OSError, ValueError, pa.ArrowException) as error:
                mirror.problems.append(f"{self.command} {self.path}: {error!r}")
            self.wfile.write(answered)

    return Mirrored


class MirroredServer(http.server.HTTPServer):
    """The tests' server."""

    def __init__(self, address: tuple[str, int], handler: type[http.server.BaseHTTPRequestHandler]) -> None:
        super().__init__(address, mirrored(handler))


http.server.HTTPServer = MirroredServer
