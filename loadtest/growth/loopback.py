"""Starts nodes on loopback and lists them for the query nodes."""

import http.client
from dataclasses import dataclass, field
from pathlib import Path

from bench.bireme import free_port
from tiers import arguments, cli, counters, members
from tiers.fault import Failed
from tiers.node import START_SECONDS, Node, spawn

HOST = "127.0.0.1"
SLAB = "96MiB"
# So short that a node that joins has its whole share before the next one joins.
QUERY_SETTINGS = arguments.QUERY_SETTINGS | {"SLOW_START": "500ms"}


@dataclass
class Loopback:
    """The nodes, used as `with Loopback(…) as nodes: …`.

    `folder` has logs, slabs and the list of I/O nodes; `table` is NAME=URI.
    """

    binary: Path
    folder: Path
    table: str
    ios: list[Node] = field(default_factory=list)
    queries: list[Node] = field(default_factory=list)
    metrics: dict[str, int] = field(default_factory=dict)

    def __enter__(self) -> "Loopback":
        return self

    def __exit__(self, *_: object) -> None:
        for node in [*self.queries, *self.ios]:
            node.kill()
        for slab in self.folder.glob("*.slab"):
            slab.unlink()

    @property
    def list_file(self) -> Path:
        """The list of I/O nodes that query nodes follow."""
        return self.folder / "io-nodes.toml"

    def start(self, io: int, query: int) -> None:
        """Starts nodes until there are `io` and `query`. New I/O nodes are not listed yet."""
        joining = []
        if not self.ios:
            # A query node needs a list to start.
            joining = [self._begin_io()]
            self._list(1)
        joining += [self._begin_io() for _ in range(io - len(self.ios))]
        joining += [self._begin_query() for _ in range(query - len(self.queries))]
        for node in joining:
            node.serves(self._is_ready)

    def join(self, io: int, query: int) -> None:
        """Lists the first `io` I/O nodes and waits until the first `query` query nodes use all of them."""
        self._list(io)
        for node in self.queries[:query]:
            cli.settled(node.name, lambda: self._status(node), io, START_SECONDS)

    def warm(self) -> None:
        """Fills the caches of the I/O nodes with all rows that they own."""
        cli.answers(self._command(self.queries[0], "warm", self.table.split("=")[0]))

    def served(self, io: int, query: int) -> dict[str, dict[str, float]]:
        """Returns the counters of the first `io` I/O nodes and the first `query` query nodes."""
        nodes = [*self.ios[:io], *self.queries[:query]]
        return {node.name: self._counted(node) for node in nodes}

    def _counted(self, node: Node) -> dict[str, float]:
        try:
            return counters.scrape(HOST, self.metrics[node.name])
        except OSError as problem:
            raise Failed(f"the metrics of {node.name} cannot be read: {problem}") from None

    def _list(self, io: int) -> None:
        members.write(self.list_file, "".join(members.entry(node.name, node.endpoint) for node in self.ios[:io]))

    def _begin_io(self) -> Node:
        name = f"io-{len(self.ios)}"
        listen, metrics = self._addresses(name)
        words = arguments.io(name, listen, metrics, self.folder / f"{name}.slab", SLAB, self.table.split("=", 1)[1])
        return self._begin(self.ios, name, listen, words, arguments.environment("io", arguments.IO_SETTINGS))

    def _begin_query(self) -> Node:
        name = f"query-{len(self.queries)}"
        listen, metrics = self._addresses(name)
        words = arguments.query(name, listen, metrics, self.list_file, self.table)
        return self._begin(self.queries, name, listen, words, arguments.environment("query", QUERY_SETTINGS))

    def _addresses(self, name: str) -> tuple[str, str]:
        """Returns addresses with free ports for the node and its metrics."""
        self.metrics[name] = free_port()
        return f"{HOST}:{free_port()}", f"{HOST}:{self.metrics[name]}"

    def _begin(self, tier: list[Node], name: str, listen: str, words: list[str], settings: dict[str, str]) -> Node:
        log = self.folder / f"{name}.log"
        node = spawn(name, f"http://{listen}", [str(self.binary), *words], log, settings)
        tier.append(node)
        return node

    def _is_ready(self, node: Node) -> bool:
        """Returns whether the node's /ready answers 200, as a readiness probe checks it."""
        connection = http.client.HTTPConnection(HOST, self.metrics[node.name], timeout=2)
        try:
            connection.request("GET", "/ready")
            return connection.getresponse().status == http.client.OK
        except OSError:
            return False
        finally:
            connection.close()

    def _status(self, query: Node) -> dict:
        # The exit code is 4 while an I/O node does not answer.
        return cli.answers(self._command(query, "status"), accept=(0, 4))[0]

    def _command(self, query: Node, *words: str) -> list[str]:
        return [str(self.binary), *words, "--endpoint", query.endpoint]
