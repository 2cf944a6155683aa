"""Nodes of Bireme, each in a namespace with an address of its own, and the list of I/O nodes that they follow."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from .check import Failed, Refused
from .namespaces import Network
from .table import NAME

PORT = 7070
METRICS_PORT = 9464
START_SECONDS = 60
SLAB = "256MiB"
CLIENT = "client"
TIERS = ["io", "query", "stranger"]
# Callers give up after it.
TIMEOUT_SECONDS = 15
# Little of everything, as all nodes share one machine; lists are looked at often, so that nobody waits for that.
IO_SETTINGS = {"MEMORY": "1GiB", "TRAFFIC_MEMORY": "256MiB", "LAKE_CACHE": "64MiB", "SEGMENT": "8MiB"}
QUERY_SETTINGS = {
    "CORES": "1", "INDEX_CACHE": "128MiB", "METADATA_CACHE": "64MiB", "MEMBER_REFRESH": "200ms", "SLOW_START": "4s",
}  # fmt: skip


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
class Node:
    """A process under way."""

    name: str
    process: subprocess.Popen
    log: Path
    started_seconds: float = 0.0

    @property
    def endpoint(self) -> str:
        """Where it is."""
        return f"http://{address(self.name)}:{PORT}"

    def cpu_us(self) -> float:
        """CPU time so far, all threads, user and system, as the kernel accounts it."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) * 1e6 / os.sysconf("SC_CLK_TCK")

    def resident_bytes(self) -> int:
        """Memory that it has."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def threads(self) -> int:
        """How many it has."""
        return len(list(Path(f"/proc/{self.process.pid}/task").iterdir()))

    def descriptors(self) -> int:
        """Files and sockets that it has open."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def is_alive(self) -> bool:
        """Whether it runs."""
        return self.process.poll() is None

    def kill(self) -> None:
        """As a machine that loses power would end it."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """As it is asked to; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


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
        """Another list, by a rename as it should be."""
        new = self.list_file.with_suffix(".new")
        new.write_text(text)
        new.rename(self.list_file)

    def io_nodes(self, *names: str) -> str:
        """A list of these."""
        return "".join(entry(name, f"http://{address(name)}:{PORT}") for name in names)

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
        arguments = ["io", "--name", name, "--cores", "1", "--no-pin", "--ram-tier", "0"]
        arguments += ["--drive", f"{self.folder / name}.slab:{SLAB}", "--listen", f"0.0.0.0:{PORT}"]
        return self._start(name, arguments, {f"BIREME_IO_{key}": value for key, value in IO_SETTINGS.items()})

    def start_query(self, name: str, **settings: str) -> Node:
        """A query node that follows the list."""
        if not (Path("/run/netns") / self.network.namespace(name)).exists():
            self.network.attach(name, address(name))
        arguments = ["query", "--name", name, "--listen", f"0.0.0.0:{PORT}", "--io-nodes-from", f"file:{self.list_file}"]
        arguments += ["--table", f"{NAME}={self.table}"]
        settings = {f"BIREME_QUERY_{key}": value for key, value in (QUERY_SETTINGS | settings).items()}
        return self._start(name, arguments, settings)

    def _start(self, name: str, arguments: list[str], settings: dict[str, str]) -> Node:
        log = self.folder / f"{name}.log"
        command = [*self.network.inside(name), str(self.binary), *arguments, "--metrics", f"0.0.0.0:{METRICS_PORT}"]
        began = time.monotonic()
        with log.open("a") as output:
            process = subprocess.Popen(
                command, stdout=output, stderr=output, env=os.environ | settings, start_new_session=True
            )
        node = self.running[name] = Node(name, process, log)
        while not self._listens(node):
            if not node.is_alive() or time.monotonic() > began + START_SECONDS:
                raise Refused(f"{name} didn't start:\n{log.read_text()[-2000:]}")
            time.sleep(0.02)
        node.started_seconds = time.monotonic() - began
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
        asked = ["--endpoint", f"http://{address(query)}:{PORT}", "--timeout", f"{timeout}s"]
        return [*self.network.inside(CLIENT), str(self.binary), *map(str, words), *asked]

    def run(
        self, *words: object, query: str = "query-0", timeout: float = 30, accept: tuple[int, ...] = (0,)
    ) -> list[dict]:
        """Its answers with --json, one or many; raises what it says of a failure."""
        command = [*self.command(*words, query=query, timeout=timeout), "--json"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode not in accept:
            raise Failed(done.stderr.strip() or f"exit code {done.returncode}")
        return [json.loads(line) for line in done.stdout.splitlines()]

    def said(self, *words: object, query: str = "query-0") -> str:
        """What it tells people."""
        return subprocess.run(self.command(*words, query=query), capture_output=True, text=True).stdout

    def status(self, query: str = "query-0") -> dict:
        """The query node's view of both tiers."""
        # 4 while an I/O node does not answer.
        return self.run("status", query=query, accept=(0, 4))[0]

    def settled(self, io: int, patience: float = START_SECONDS) -> None:
        """Every query node has just so many I/O nodes, all of them ready with their whole share."""
        until = time.monotonic() + patience
        for node in self.queries():
            while True:
                if len(self.ready(node.name)) == io == len(self.status(node.name)["io_nodes"]):
                    break
                if time.monotonic() > until:
                    raise Failed(f"{node.name} does not find {io} I/O nodes: {self.status(node.name)['io_nodes']}")
                time.sleep(0.1)

    def ready(self, query: str = "query-0") -> list[dict]:
        """The I/O nodes that serve with their whole share."""
        try:
            nodes = self.status(query)["io_nodes"]
        except Failed:
            return []
        return [it for it in nodes if it["reachable"] and it["state"] == "ready" and it["share"] == it["weight"]]


def entry(name: str, endpoint: str, **more: object) -> str:
    """A member, as the list has it."""
    lines = ["[[io_nodes]]", f'name = "{name}"', f'endpoint = "{endpoint}"']
    lines += [f"{key} = {value}" for key, value in more.items()]
    return "\n".join(lines) + "\n"


# Nodes in a folder of their own, with nothing running yet.
Make = Callable[[], AbstractContextManager[Nodes]]
