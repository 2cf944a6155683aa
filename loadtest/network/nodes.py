"""Nodes of Bireme, each in a namespace with an address of its own, and the list of I/O nodes that they follow."""

import os
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from tiers import arguments, asked, members
from tiers.node import START_SECONDS, Node, begun

from .namespaces import Network
from .table import NAME

PORT = 7070
METRICS_PORT = 9464
# Wherever its namespace has addresses.
LISTEN, METRICS = f"0.0.0.0:{PORT}", f"0.0.0.0:{METRICS_PORT}"
SLAB = "256MiB"
CLIENT = "client"
TIERS = ["io", "query", "stranger"]
# Callers give up after it.
TIMEOUT_SECONDS = 15
QUERY_SETTINGS = arguments.QUERY_SETTINGS | {"SLOW_START": "4s"}


def io_name(number: int) -> str:
    """What placement goes by."""
    return f"io-{number}"


def address(name: str) -> str:
    """Of a node, or of the client."""
    if name == CLIENT:
        return "10.77.0.1"
    tier, number = name.split("-")
    return f"10.77.{TIERS.index(tier) + 1}.{int(number) + 1}"


@dataclass
class Nodes:
    """`with Nodes(…) as nodes: …`; the folder has logs, slabs and the list."""

    binary: Path
    network: Network
    folder: Path
    table: Path
    running: dict[str, Node] = field(default_factory=dict)

    def __enter__(self) -> "Nodes":
        self.network.attach(CLIENT, address(CLIENT))
        return self

    def __exit__(self, *_: object) -> None:
        # Before anything else, as no namespace is needed for it.
        for node in self.running.values():
            node.process.kill()
        for name in list(self.running):
            self.remove(name)
        self.network.detach(CLIENT)

    @property
    def list_file(self) -> Path:
        """The file that query nodes follow."""
        return self.folder / "io-nodes.toml"

    def write_list(self, text: str) -> None:
        """Another list."""
        members.write(self.list_file, text)

    def io_nodes(self, *names: str) -> str:
        """A list of these."""
        return "".join(members.entry(name, f"http://{address(name)}:{PORT}") for name in names)

    def up(self, io: int, query: int, relayed: str | None = None) -> None:
        """So many of each, all of them ready, all that is cached warm."""
        names = [io_name(number) for number in range(io)]
        self.write_list(self.io_nodes(*names))
        for name in names:
            self.start_io(name, relayed=name == relayed)
        for number in range(query):
            self.start_query(f"query-{number}")
        self.settled(io)
        self.run("warm", NAME)

    def start_io(self, name: str, *others: str, relayed: bool = False) -> Node:
        """An I/O node, on the slab that it had, if it had one."""
        if not (Path("/run/netns") / self.network.namespace(name)).exists():
            self.network.attach(name, address(name), *others, relayed=relayed)
        command = arguments.io(name, LISTEN, METRICS, self.folder / f"{name}.slab", SLAB, str(self.table))
        return self._start(name, command, arguments.environment("io", arguments.IO_SETTINGS))

    def start_query(self, name: str, **settings: str) -> Node:
        """A query node that follows the list."""
        if not (Path("/run/netns") / self.network.namespace(name)).exists():
            self.network.attach(name, address(name))
        command = arguments.query(name, LISTEN, METRICS, self.list_file, f"{NAME}={self.table}")
        return self._start(name, command, arguments.environment("query", QUERY_SETTINGS | settings))

    def _start(self, name: str, words: list[str], settings: dict[str, str]) -> Node:
        command = [*self.network.inside(name), str(self.binary), *words]
        endpoint = f"http://{address(name)}:{PORT}"
        node = self.running[name] = begun(name, endpoint, command, self.folder / f"{name}.log", settings)
        node.serves(self._listens)
        return node

    def _listens(self, node: Node) -> bool:
        """Whether somebody listens at its port, by the kernel's table of its namespace."""
        tables = [Path(f"/proc/{node.process.pid}/net/{kind}") for kind in ["tcp", "tcp6"]]
        try:
            lines = [line.split() for table in tables for line in table.read_text().splitlines()[1:]]
        except OSError:
            return False
        # State 0A is LISTEN. Before nsenter has entered, the table is the host's.
        own = os.readlink(f"/proc/{node.process.pid}/ns/net") != os.readlink("/proc/self/ns/net")
        return own and any(line[3] == "0A" and line[1].endswith(f":{PORT:04X}") for line in lines)

    def remove(self, name: str) -> None:
        """Ends it at once, with its namespace."""
        self.running.pop(name).kill()
        self.network.detach(name)

    def queries(self) -> list[Node]:
        """The query tier."""
        return [node for name, node in self.running.items() if name.startswith("query-")]

    def ios(self) -> list[Node]:
        """The I/O tier."""
        return [node for name, node in self.running.items() if name.startswith("io-")]

    def command(self, *words: object, query: str = "query-0", timeout: float = 30) -> list[str]:
        """The command line in the client's namespace, before one query node."""
        where = ["--endpoint", f"http://{address(query)}:{PORT}", "--timeout", f"{timeout}s"]
        return [*self.network.inside(CLIENT), str(self.binary), *map(str, words), *where]

    def run(
        self, *words: object, query: str = "query-0", timeout: float = 30, accept: tuple[int, ...] = (0,)
    ) -> list[dict]:
        """Its answers with --json, one or many; raises what it says of a failure."""
        return asked.answers(self.command(*words, query=query, timeout=timeout), accept)

    def said(self, *words: object, query: str = "query-0") -> str:
        """What it tells people."""
        return subprocess.run(self.command(*words, query=query), capture_output=True, text=True).stdout

    def status(self, query: str = "query-0") -> dict:
        """The query node's view of both tiers."""
        # 4 while an I/O node does not answer.
        return self.run("status", query=query, accept=(0, 4))[0]

    def settled(self, io: int, patience: float = START_SECONDS) -> None:
        """Every query node has just so many I/O nodes, all of them ready with their whole share."""
        for node in self.queries():
            asked.settled(node.name, lambda: self.status(node.name), io, patience)


# Nodes in a folder of their own, with nothing running yet.
Make = Callable[[], AbstractContextManager[Nodes]]
