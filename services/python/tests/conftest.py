"""A real server for all tests: both tiers, serving the sample of WordNet that is in the repository."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bireme

SAMPLE = Path(__file__).parents[2] / "bireme/demo/wordnet-sample.parquet"

#: The position of the row `n02503517`.
ELEPHANT = 3601


def run(*arguments: str) -> None:
    """Runs the binary."""
    subprocess.run([os.environ["BIREME_BINARY"], *arguments], check=True, stdout=subprocess.DEVNULL)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The working folder, with `words.lance`: the sample with its indexes."""
    folder = tmp_path_factory.mktemp("tables")
    before = Path.cwd()
    os.chdir(folder)
    run("ingest", str(SAMPLE), "--table", "words.lance", "--key", "synset")
    indexes = ["--vector", "vector", "--metric", "cosine", "--text", "gloss", "--scalar", "domain", "--key", "synset"]
    run("index", "--table", "words.lance", *indexes)
    yield folder
    os.chdir(before)


@pytest.fixture(scope="session", autouse=True)
def server(folder: Path) -> Iterator[bireme.Server]:
    """A server of `words`. `bireme.connect()` without arguments connects to it."""
    with bireme.serve("words.lance") as server:
        os.environ["BIREME_ENDPOINT"] = server.endpoint
        yield server


@pytest.fixture(scope="session")
def rows() -> pa.Table:
    """The sample, as pyarrow reads it."""
    return pq.read_table(SAMPLE)


@pytest.fixture
def words(server: bireme.Server) -> bireme.Table:
    """The table."""
    return server.table("words")
