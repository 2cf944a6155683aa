"""Starts Bireme's nodes as processes, and runs `bireme bench` on them."""

import json
import os
import signal
import socket
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from .cpu import process_us

START_SECONDS = 600


def free_port() -> int:
    """Returns a port on which nothing listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def tool(binary: Path, *arguments: str) -> dict:
    """Runs a command that needs no node, with --json. Returns its report."""
    done = subprocess.run([binary, *arguments, "--json"], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)}: {done.stderr}")
    return json.loads(done.stdout) | {"command": f"bireme {' '.join(arguments)}"}


@dataclass
class Node:
    """A node's process. Its CPU time is the kernel's account of the process."""

    endpoint: str
    process: subprocess.Popen
    log: Path
    credentials: list[str] = field(default_factory=list)
    """The flags with which a client of the node says who it is, and whom it trusts."""

    def cpu_us(self) -> float:
        """Returns the CPU time so far."""
        return process_us(self.process.pid)

    def cpu_us_by_threads(self) -> Counter[str]:
        """Returns the CPU time of each kind of thread, by name without number. Threads that have ended are left out."""
        times: Counter[str] = Counter()
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            head, fields = (task / "stat").read_text().rsplit(")", 1)
            name = head.split("(", 1)[1].rstrip("-0123456789")
            times[name] += sum(map(int, fields.split()[11:13])) * 1_000_000 // os.sysconf("SC_CLK_TCK")
        return times

    def memory_bytes(self, kind: str, file: str = "smaps_rollup") -> int:
        """Returns a line of a file about the process's memory, such as `AnonHugePages` (proc_pid_smaps(5)), or `VmHWM` of
        `status`."""
        lines = Path(f"/proc/{self.process.pid}/{file}").read_text().splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith(f"{kind}:"))) * 1024

    def stop(self) -> None:
        """Stops the node by SIGTERM."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


@dataclass
class Bireme:
    """The binary and the nodes that it runs."""

    binary: Path
    logs: Path
    tables: Path | str
    """The folder or bucket of all tables that nodes serve."""
    storage: list[str] = field(default_factory=list)
    """The flags of the object store of the tables."""
    wrapper: list[str] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    uris: dict[str, dict[str, str]] = field(default_factory=dict)
    """The tables' URIs, by the endpoint of their query node."""

    def __enter__(self) -> "Bireme":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def io_node(
        self, slabs: list[Path], slab_gib: int, ram_tier_gib: int = 0, keep: bool = False, **variables: str
    ) -> Node:
        """Starts an I/O node. Slabs begin empty unless `keep` is set."""
        arguments = ["io", "--ram-tier", f"{ram_tier_gib}GiB", "--serve", f"{self.tables}/", *self.storage]
        for slab in slabs:
            slab.parent.mkdir(parents=True, exist_ok=True)
            if not keep:
                slab.unlink(missing_ok=True)
            arguments += ["--drive", f"{slab}:{slab_gib // len(slabs)}GiB"]
        return self._start(arguments, variables)

    def query_node(self, io_node: Node, tables: dict[str, str], **variables: str) -> Node:
        """Starts a query node that uses one I/O node."""
        arguments = ["query", "--io-node", io_node.endpoint, *self.storage]
        for name, uri in tables.items():
            arguments += ["--table", f"{name}={uri}"]
        node = self._start(arguments, variables)
        self.uris[node.endpoint] = tables
        return node

    def _start(self, arguments: list[str], variables: dict[str, str]) -> Node:
        address = f"127.0.0.1:{free_port()}"
        log = self.logs / f"{len(self.nodes)}-{arguments[0]}.log"
        with log.open("w") as output:
            process = subprocess.Popen(
                [*self.wrapper, self.binary, *arguments, "--listen", address],
                stdout=output,
                stderr=output,
                env=os.environ | variables,
            )
        node = Node(f"http://{address}", process, log)
        self.nodes.append(node)
        until = time.monotonic() + START_SECONDS
        host, port = address.split(":")
        while True:
            with socket.socket() as probe:
                if probe.connect_ex((host, int(port))) == 0:
                    return node
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"a node did not start:\n{log.read_text()[-2000:]}")
            time.sleep(0.05)

    def run(self, query: Node, *arguments: str) -> list[dict]:
        """Runs a command with --json. Returns its JSON values."""
        command = [self.binary, *arguments, "--endpoint", query.endpoint, *query.credentials, "--json"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{' '.join(map(str, command))}: {done.stderr}{done.stdout}")
        decoder, text, answers = json.JSONDecoder(), done.stdout.strip(), []
        while text:
            answer, end = decoder.raw_decode(text)
            answers.append(answer)
            text = text[end:].lstrip()
        return answers

    def ready(self, query: Node, tables: list[str]) -> None:
        """Waits until the query node has opened its tables."""
        until = time.monotonic() + START_SECONDS
        for table in tables:
            while True:
                try:
                    self.run(query, "describe", table)
                    break
                except RuntimeError:
                    if time.monotonic() > until:
                        raise
                    time.sleep(0.2)

    def warm(self, query: Node, table: str, columns: list[str] | None = None) -> None:
        """Fills the drive with the table's rows."""
        extra = ["--columns", ",".join(columns)] if columns else []
        self.run(query, "warm", table, *extra)

    def bench(self, query: Node, kind: str, table: str, seconds: float, *arguments: str) -> dict:
        """Runs `bireme bench` and returns its report. `services/bireme/src/bench/report.rs` explains the fields.

        `table` is empty for a load that needs none."""
        place = ["--uri", self.uris[query.endpoint][table]] if kind == "fetch" else []
        command = ["bench", kind, *filter(None, [table]), *place, "--seconds", str(seconds), *arguments]
        [report] = self.run(query, *command)
        report["command"] = f"bireme {' '.join(command)}"
        return report

    def stop(self) -> None:
        """Stops all nodes that still run, the newest first."""
        for node in reversed(self.nodes):
            if node.process.poll() is None:
                node.stop()
