"""Runs MinIO on the host, with a table in it."""

from pathlib import Path

from .cluster.addresses import HOST
from .cluster.cluster import Cluster
from .layout import ROOT, STATE
from .process import Background, run, until

PORT = 29000
ENDPOINT = f"http://{HOST}:{PORT}"
SECRET = {"AWS_ACCESS_KEY_ID": "bireme-e2e", "AWS_SECRET_ACCESS_KEY": "bireme-e2e-secret"}
OPTIONS = {"aws_endpoint": ENDPOINT, "aws_region": "us-east-1", "aws_allow_http": "true"}
STORAGE = [word for name, value in OPTIONS.items() for word in ("--storage", f"{name}={value}")]
TABLE, URI, KEY = "words", "s3://tables/words.lance", "synset"
SAMPLE = ROOT / "services" / "bireme" / "demo" / "wordnet-sample.parquet"


class Store:
    def __init__(self, cluster: Cluster):
        # MinIO treats a folder as a bucket.
        (STATE / "minio" / "tables").mkdir(parents=True)
        self.server = Background(
            "minio", "minio", "server", STATE / "minio", f"--address={HOST}:{PORT}", "--console-address=127.0.0.1:0",
            env={"MINIO_ROOT_USER": SECRET["AWS_ACCESS_KEY_ID"],
                 "MINIO_ROOT_PASSWORD": SECRET["AWS_SECRET_ACCESS_KEY"], "MINIO_UPDATE": "off"},
        )
        cluster.processes["minio"] = self.server

    def fill(self, bireme: Path) -> None:
        """Makes a table of the sample, in many small fragments, so that every I/O node owns some."""
        until("MinIO", lambda: run("curl", "-fsS", f"{ENDPOINT}/minio/health/ready") == "")
        ingest(bireme, URI, 250)
        run(bireme, "index", "--table", URI, "--vector", "vector", "--metric", "cosine", "--key", KEY, *STORAGE,
            env=SECRET, timeout=300)


def ingest(bireme: Path, uri: str, fragment_rows: int) -> None:
    """Makes a table of the sample. Each fragment has `fragment_rows` rows and is a chunk."""
    run(bireme, "ingest", SAMPLE, "--table", uri, "--key", KEY, "--fragment-rows", fragment_rows, *STORAGE, env=SECRET,
        timeout=300)
