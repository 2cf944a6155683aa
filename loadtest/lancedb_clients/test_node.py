"""LanceDB's client for Node reads through Bireme. NODE_FOLDER has its modules (`.ci/setup lancedb`)."""

import json
import os
import subprocess
import sys
from pathlib import Path


def test_node(served, local, vector):
    node = Path(sys.executable).with_name("node")
    script = Path(__file__).with_name("read.mjs")
    command = [node, script, served.url, os.environ["NODE_FOLDER"], json.dumps(vector)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    oracle = local.open_table("items")
    exact = oracle.search(vector).bypass_vector_index()
    assert found["tables"] == ["items", "pages", "plain"]
    assert found["rows"] == oracle.count_rows("id < 100")
    assert found["nearest"] == exact.limit(5).to_arrow()["id"].to_pylist()
    assert found["filtered"] == exact.where("id < 300").to_arrow()["id"].to_pylist()
    assert len(found["words"]) == 5 and all("puppy" in text for text in found["words"])
    assert found["scanned"] == [10, 11, 12, 13, 14]
    assert "serves reads" in found["refused"]
