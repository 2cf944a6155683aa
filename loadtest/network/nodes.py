"""Runs nodes of Bireme, each in a namespace with an address of its own, and writes their list of I/O nodes."""

import os
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from tiers import arguments, cli, members
from tiers.node import START_SECONDS, Node, spawn

from .namespaces import Network
from .table import NAME

PORT = 7070
METRICS_PORT = 9464
# All addresses of the node's namespace.
LISTEN, METRICS = f"0.0.0.0:{PORT}", f"0.0.0.0:{METRICS_PORT}"
SLAB = "256MiB"
CLIENT = "client"
TIERS = ["io", "query", "stranger"]
# The deadline of the callers' requests.
TIMEOUT_SECONDS = 15
# The interval at which query nodes read the list.
REFRESH_SECONDS = 5
IO_SETTINGS = arguments.IO_SETTINGS | {"ACCESS": "open"}
QUERY_SETTINGS = arguments.QUERY_SETTINGS | {"SLOW_START": "4s", "ACCESS": "open"}


def io_name(number: int) -> str:
    """Returns an I/O node's name, which placement uses."""
    return f"io-{number}"


def address(name: str) -> str:
    """Returns the address of a node or of the client."""
    if name == CLIENT:
        return "10.77.0.1"
    tier, number = name.split("-")
    return f"10.77.{TIERS.index(tier) + 1}.{int(number) + 1}"


@dataclass
class Nodes:
    """The running nodes, used as `with Nodes(…) as nodes: …`. `folder` has logs, slabs and the list."""

    binary: Path
    network: Network
    folder: Path
    table: Path
    running: dict[str, Node] = field(default_factory=dict)

    def __enter__(self) -> "Nodes":
        self.network.attach(CLIENT, address(CLIENT))
        return self

    def __exit__(self, *_: object) -> None:
        # All processes are killed first, because that needs no namespace.
        for node in self.running.values():
            node.process.kill()
        for name in list(self.running):
            self.remove(name)
        self.network.detach(CLIENT)

    @property
    def list_file(self) -> Path:
        """The list of I/O nodes that query nodes follow."""
        return self.folder / "io-nodes.toml"

    def write_list(self, text: str) -> None:
        """Replaces the list."""
        members.write(self.list_file, text)

    def io_nodes(self, *names: str) -> str:
        """Returns a list of these I/O nodes."""
        return "".join(members.entry(name, f"http://{address(name)}:{PORT}") for name in names)

    def up(self, io: int, query: int, relayed: str | None = None) -> None:
        """Starts `io` and `query` nodes, waits until all are ready, and fills the caches."""
        names = [io_name(number) for number in range(io)]
        self.write_list(self.io_nodes(*names))
        for name in names:
            self.start_io(name, relayed=name == relayed)
        for number in range(query):
            self.start_query(f"query-{number}")
        self.settled(io)
        self.run("warm", NAME)

    def start_io(self, name: str, *others: str, relayed: bool = False) -> Node:
        """Starts an I/O node, on its existing slab if it has one."""
        if not (Path("/run/netns") / self.network.namespace(name)).exists():
            self.network.attach(name, address(name), *others, relayed=relayed)
        command = arguments.io(name, LISTEN, METRICS, self.folder / f"{name}.slab", SLAB, str(self.table))
        return self._start(name, command, arguments.environment("io", IO_SETTINGS))

    def start_query(self, name: str, **settings: str) -> Node:
        """Starts a query node that follows the list."""
        if not (Path("/run/netns") / self.network.namespace(name)).exists():
            self.network.attach(name, address(name))
        command = arguments.query(name, LISTEN, METRICS, self.list_file, f"{NAME}={self.table}")
        return self._start(name, command, arguments.environment("query", QUERY_SETTINGS | settings))

    def _start(self, name: str, words: list[str], settings: dict[str, str]) -> Node:
        command = [*self.network.inside(name), str(self.binary), *words]
        endpoint = f"http://{address(name)}:{PORT}"
        node = self.running[name] = spawn(name, endpoint, command, self.folder / f"{name}.log", settings)
        node.serves(self._listens)
        return node

    def _listens(self, node: Node) -> bool:
        """Returns whether the node listens on its port, by the socket table of its namespace."""
        tables = [Path(f"/proc/{node.process.pid}/net/{kind}") for kind in ["tcp", "tcp6"]]
        try:
            lines = [line.split() for table in tables for line in table.read_text().splitlines()[1:]]
        except OSError:
            return False
        # State 0A is LISTEN. Until nsenter has entered the namespace, the table is the host's.
        own = os.readlink(f"/proc/{node.process.pid}/ns/net") != os.readlink("/proc/self/ns/net")
        return own and any(line[3] == "0A" and line[1].endswith(f":{PORT:04X}") for line in lines)

    def remove(self, name: str) -> None:
        """Kills a node and removes its namespace."""
        self.running.pop(name).kill()
        self.network.detach(name)

    def queries(self) -> list[Node]:
        """Returns the running query nodes."""
        return [node for name, node in self.running.items() if name.startswith("query-")]

    def ios(self) -> list[Node]:
        """Returns the running I/O nodes."""
        return [node for name, node in self.running.items() if name.startswith("io-")]

    def command(self, *words: object, query: str = "query-0", timeout: float = 30) -> list[str]:
        """Returns a `bireme` command in the client's namespace, directed at one query node."""
        where = ["--endpoint", f"http://{address(query)}:{PORT}", "--timeout", f"{timeout}s"]
        return [*self.network.inside(CLIENT), str(self.binary), *map(str, words), *where]

    def run(
        self, *words: object, query: str = "query-0", timeout: float = 30, accept: tuple[int, ...] = (0,)
    ) -> list[dict]:
        """Runs a `bireme` command and returns its JSON values. Raises `Failed` with its error message."""
        return cli.answers(self.command(*words, query=query, timeout=timeout), accept)

    def text_output(self, *words: object, query: str = "query-0") -> str:
        """Runs a `bireme` command without --json and returns its output."""
        return subprocess.run(self.command(*words, query=query), capture_output=True, text=True).stdout

    def status(self, query: str = "query-0") -> dict:
        """Returns the query node's view of both tiers."""
        # The exit code is 4 while an I/O node does not answer.
        return self.run("status", query=query, accept=(0, 4))[0]

    def settled(self, io: int, patience: float = START_SECONDS) -> None:
        """Waits until every query node has exactly `io` I/O nodes, all of them ready with their whole share."""
        for node in self.queries():
            cli.settled(node.name, lambda: self.status(node.name), io, patience)


# Makes `Nodes` in a folder of their own, with nothing running yet.
Make = Callable[[], AbstractContextManager[Nodes]]
