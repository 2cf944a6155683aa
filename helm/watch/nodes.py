"""Runs an S3 server with the sample in it, two I/O nodes and a query node, which are watched. The tiers use TLS."""

import json
import socket
from contextlib import contextmanager
from pathlib import Path

from e2e.cluster.authority import Authority
from e2e.layout import CACHE, ROOT, STATE
from e2e.process import Background, run, until

SAMPLE = ROOT / "services" / "bireme" / "demo" / "wordnet-sample.parquet"
TABLE, URI, KEY = "words", "s3://tables/words.lance", "synset"
SECRET = {"AWS_ACCESS_KEY_ID": "someone", "AWS_SECRET_ACCESS_KEY": "something"}
# One node reads by io_uring, if that is allowed, and one by pread.
ENGINES = {"io-0": "auto", "io-1": "pread"}
# The name in the I/O nodes' certificate. Callers reach the query node without TLS.
IO_NAME = "io.watched"


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


class Nodes:
    """The running processes. `targets` lists the metrics to scrape: job, instance, address."""

    def __init__(self, bireme: Path):
        self.bireme, self.processes, self.targets = bireme, [], []
        self.store = f"http://127.0.0.1:{free_port()}"
        options = {"aws_endpoint": self.store, "aws_region": "us-east-1", "aws_allow_http": "true"}
        self.storage = [word for name, value in options.items() for word in ("--storage", f"{name}={value}")]

    def write_tls(self) -> None:
        """Writes a configuration for each tier, with TLS between them."""
        authority = Authority(STATE / "tls", "watched")
        authority.sign("nodes", f"/CN={IO_NAME}", [f"DNS:{IO_NAME}"])
        own = {"cert": authority.folder / "nodes.crt", "key": authority.folder / "nodes.key"}
        sections = {
            "io": ("tls", own | {"client_ca": authority.cert}),
            "query": ("io_tls", own | {"ca": authority.cert, "server_name": IO_NAME}),
        }
        for tier, (section, settings) in sections.items():
            lines = [f"[{section}]", *(f'{name} = "{value}"' for name, value in settings.items())]
            (STATE / f"{tier}.toml").write_text("\n".join(lines) + "\n")

    def start(self) -> None:
        self.write_tls()
        self.fill_store()
        members = []
        for name, engine in ENGINES.items():
            address = f"127.0.0.1:{free_port()}"
            self.node("io", name, "--listen", address, "--drive", f"{STATE}/{name}:96MiB", "--engine", engine,
                      "--serve", URI, "--ram-tier", "1MiB", "--cores", "1", "--no-pin")
            members += ["--io-node", f"{name}=https://{address}"]
        self.endpoint = f"http://127.0.0.1:{free_port()}"
        self.node("query", "query-0", "--listen", self.endpoint.removeprefix("http://"), "--table", f"{TABLE}={URI}",
                  *members)
        until("both tiers", self.both_serve)

    def fill_store(self) -> None:
        port = self.store.rsplit(":", 1)[1]
        server = Background("s3", CACHE / "s3/bin/moto_server", "-H", "127.0.0.1", "-p", port)
        self.processes.append(server)
        until("the S3 server", lambda: run("curl", "-fsS", "-X", "PUT", f"{self.store}/tables") is not None)
        # Small fragments, so that both I/O nodes own some.
        self.ask("ingest", SAMPLE, "--table", URI, "--key", KEY, "--fragment-rows", 250, *self.storage)
        self.ask("index", "--table", URI, "--vector", "vector", "--metric", "cosine", "--text", "gloss", "--scalar",
                 "domain", "--key", KEY, *self.storage)

    def node(self, tier: str, name: str, *words) -> None:
        metrics = f"127.0.0.1:{free_port()}"
        flags = ["--config", STATE / f"{tier}.toml", "--name", name, "--metrics", metrics, *words, *self.storage]
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
