"""An S3 server with the sample in it, two I/O nodes, a query node: what is watched."""

import json
import socket
from contextlib import contextmanager
from pathlib import Path

from e2e.layout import CACHE, ROOT, STATE
from e2e.process import Background, run, until

SAMPLE = ROOT / "services" / "bireme" / "demo" / "wordnet-sample.parquet"
TABLE, URI, KEY = "words", "s3://tables/words.lance", "synset"
SECRET = {"AWS_ACCESS_KEY_ID": "someone", "AWS_SECRET_ACCESS_KEY": "something"}
# One reads by io_uring, where that is allowed, and one by pread.
ENGINES = {"io-0": "auto", "io-1": "pread"}


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


class Nodes:
    """`targets` are where metrics are: job, instance, address."""

    def __init__(self, bireme: Path):
        self.bireme, self.processes, self.targets = bireme, [], []
        self.store = f"http://127.0.0.1:{free_port()}"
        options = {"aws_endpoint": self.store, "aws_region": "us-east-1", "aws_allow_http": "true"}
        self.storage = [word for name, value in options.items() for word in ("--storage", f"{name}={value}")]

    def start(self) -> None:
        self.fill_store()
        members = []
        for name, engine in ENGINES.items():
            address = f"127.0.0.1:{free_port()}"
            self.node("io", name, "--listen", address, "--drive", f"{STATE}/{name}:96MiB", "--engine", engine,
                      "--ram-tier", "1MiB", "--cores", "1", "--no-pin")
            members += ["--io-node", f"{name}={address}"]
        self.endpoint = f"http://127.0.0.1:{free_port()}"
        self.node("query", "query-0", "--listen", self.endpoint.removeprefix("http://"), "--table", f"{TABLE}={URI}",
                  *members)
        until("both tiers", self.both_serve)

    def fill_store(self) -> None:
        port = self.store.rsplit(":", 1)[1]
        server = Background("s3", CACHE / "s3/bin/moto_server", "-H", "127.0.0.1", "-p", port)
        self.processes.append(server)
        until("the S3 server", lambda: run("curl", "-fsS", "-X", "PUT", f"{self.store}/tables") is not None)
        # Small fragments, so that both nodes own some.
        self.ask("ingest", SAMPLE, "--table", URI, "--key", KEY, "--fragment-rows", 250, *self.storage)
        self.ask("index", "--table", URI, "--vector", "vector", "--metric", "cosine", "--text", "gloss", "--scalar",
                 "domain", "--key", KEY, *self.storage)

    def node(self, tier: str, name: str, *words) -> None:
        metrics = f"127.0.0.1:{free_port()}"
        flags = ["--name", name, "--metrics", metrics, *words, *self.storage]
        node = Background(name, self.bireme, tier, *flags, env=SECRET)
        self.processes.append(node)
        self.targets.append((f"bireme-{tier}", name, metrics))

    def both_serve(self) -> bool:
        status = json.loads(self.ask("status", "--endpoint", self.endpoint, "--json"))
        return sum(node["reachable"] for node in status["io_nodes"]) == len(ENGINES)

    def ask(self, *words) -> str:
        return run(self.bireme, *words, env=SECRET, timeout=300)

    def stop(self) -> None:
        for process in reversed(self.processes):
            process.stop()


@contextmanager
def running(bireme: Path):
    nodes = Nodes(bireme)
    try:
        nodes.start()
        yield nodes
    finally:
        nodes.stop()
