"""The Lance Namespace client for Java reads through Bireme. JAVA_CLASSES is its class path (`make lancedb-java`)."""

import base64
import json
import os
import subprocess

import pyarrow as pa
import pytest


@pytest.mark.skipif("JAVA_CLASSES" not in os.environ, reason="make lancedb-java runs it")
def test_java(served, local, vector):
    command = ["java", "-cp", os.environ["JAVA_CLASSES"], "Read", served.url, json.dumps(vector)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)

    def rows(name: str) -> pa.Table:
        return pa.ipc.open_file(base64.b64decode(found[name])).read_all()

    oracle = local.open_table("items")
    exact = oracle.search(vector).bypass_vector_index().limit(5)
    assert found["tables"] == ["items", "pages", "plain"]
    assert (found["version"], found["rows"]) == (oracle.version, oracle.count_rows("id < 100"))
    assert set(found["indexes"]) == {index.name for index in oracle.list_indices()}
    nearest = exact.to_arrow()["id"].to_pylist()
    assert rows("nearest")["id"].to_pylist() == rows("byIndex")["id"].to_pylist() == nearest
    assert rows("filtered")["id"].to_pylist() == exact.where("id < 300").to_arrow()["id"].to_pylist()
    assert len(rows("words")) == 5 and all("puppy" in text for text in rows("words")["text"].to_pylist())
    assert rows("scanned")["id"].to_pylist() == [10, 11, 12, 13, 14]
    assert found["refused"] == 501
