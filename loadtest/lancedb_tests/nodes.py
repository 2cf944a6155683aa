"""Nodes that serve the folders of local databases, and LanceDB's remote connections to the nodes. BIREME names the
binary."""

import atexit
import functools
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections import OrderedDict
from datetime import timedelta
from pathlib import Path

import lancedb
from lancedb.background_loop import BackgroundEventLoop
from lancedb.db import AsyncConnection
from lancedb.remote.db import RemoteDBConnection

PATIENCE_S = 60
NODES_MAX = 4

# A loop of its own, because LanceDB's loop may be waiting for a node.
loop = BackgroundEventLoop()
scratch = Path(tempfile.mkdtemp(prefix="bireme-lancedb-tests-"))
# LanceDB's own functions, kept because the tests' calls of them are redirected.
connect, connect_async = lancedb.connect, lancedb.connect_async


class Node:
    """A node that serves the tables of a folder, and the connections to it."""

    def __init__(self, folder: Path, tables: set[str]) -> None:
        self.tables = tables
        home = Path(tempfile.mkdtemp(dir=scratch))
        ready = home / "ready.json"
        served = [f"--table={table}={folder / table}.lance" for table in sorted(tables)]
        cache = ["--cache-dir", str(home / "cache"), "--cache-size", "256MiB", "--allow-buffered", "--grace", "1s"]
        command = [os.environ["BIREME"], "up", "--listen", "127.0.0.1:0", "--ready-file", str(ready), *cache, *served]
        self.home = home
        with open(home / "log", "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        until = time.monotonic() + PATIENCE_S
        while not ready.exists():
            assert self.process.poll() is None and time.monotonic() < until, (home / "log").read_text()
            time.sleep(0.01)
        self.url = json.loads(ready.read_text())["query"]

    @functools.cached_property
    def connection(self) -> RemoteDBConnection:
        """LanceDB's remote connection."""
        return connect("db://default", **self.options())

    @functools.cached_property
    def async_connection(self) -> AsyncConnection:
        """LanceDB's remote connection for asyncio."""
        return loop.run(connect_async("db://default", **self.options()))

    def options(self) -> dict[str, object]:
        """Returns the options of both connections. With them, each read is of the latest version."""
        return {"api_key": "any", "host_override": self.url, "read_consistency_interval": timedelta(0)}

    def stop(self) -> None:
        """Ends the process, and removes its files."""
        self.process.terminate()
        self.process.wait(PATIENCE_S)
        shutil.rmtree(self.home, ignore_errors=True)


class Nodes:
    """The nodes by folder, and the numbers of reads through them and of local writes."""

    def __init__(self) -> None:
        self.by_folder: OrderedDict[Path, Node] = OrderedDict()
        self.reads = 0
        self.writes = 0

    def of(self, folder: Path) -> Node | None:
        """Returns the node that serves a folder; None if the folder has no tables."""
        tables = {entry.stem for entry in folder.glob("*.lance")}
        node = self.by_folder.pop(folder, None)
        if node is not None and node.tables != tables:
            node.stop()
            node = None
        if node is None and tables:
            node = Node(folder, tables)
        if node is not None:
            self.by_folder[folder] = node
            self.reads += 1
        while len(self.by_folder) > NODES_MAX:
            self.by_folder.popitem(last=False)[1].stop()
        return node

    def stop(self) -> None:
        """Ends all nodes."""
        for node in self.by_folder.values():
            node.stop()
        shutil.rmtree(scratch, ignore_errors=True)


nodes = Nodes()
atexit.register(nodes.stop)
os.environ.setdefault("NO_PROXY", "127.0.0.1")
