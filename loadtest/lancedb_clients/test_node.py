"""LanceDB's client for Node reads through Bireme. NODE_FOLDER has its modules (`.ci/setup lancedb`).

The oracle is the same client, which reads the same tables locally.
"""

import json
import os
import subprocess
import sys
from operator import itemgetter
from pathlib import Path

import numpy as np
import pytest

TAG = "for-node"


def read(place: str, vector: list[float]) -> dict:
    """Returns what the client reads from a node, or from a folder."""
    node = Path(sys.executable).with_name("node")
    script = Path(__file__).with_name("read.mjs")
    command = [node, script, place, os.environ["NODE_FOLDER"], json.dumps(vector), TAG]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.fixture(scope="module")
def both(served, local):
    """What the client reads through Bireme, and what it reads locally."""
    tags = local.open_table("items").tags
    tags.create(TAG, 2)
    vector = np.random.default_rng(99).normal(size=32).astype(np.float32).tolist()
    try:
        yield read(served.url, vector), read(str(served.folder), vector)
    finally:
        tags.delete(TAG)


def test_lists_versions_and_rows(both):
    found, expected = ({name: it for name, it in one.items() if not isinstance(it, dict)} for one in both)
    refused = found.pop("refused")
    assert found == expected
    assert found["tables"] == ["items", "pages", "plain"]
    assert (found["tags"], found["tagged"], found["ofTag"][0]) == ([[TAG, 2]], 2, 2)
    assert len(found["offsets"]) == len(found["rowIds"]) == 3
    assert "serves reads" in refused


def test_searches_by_vector_and_scans(both):
    found, expected = (it["searches"] for it in both)
    assert found.keys() == expected.keys()
    for name, search in found.items():
        assert len(search["ids"]) > 0, name
        # The oracle returns the rows of several vectors in any order of the vectors.
        of = lambda it: sorted(zip(it["queries"], it["ids"], it["measures"] or it["ids"], strict=True), key=itemgetter(0))
        (queries, ids, measures), wanted = (list(zip(*of(it), strict=True)) for it in (search, expected[name]))
        assert (queries, ids) == tuple(wanted[:2]), name
        # The Lance in this client computes the distances of late interaction without the constant for each vector.
        constant = measures[0] - wanted[2][0] if name == "lateInteraction" else 0
        assert np.allclose(np.subtract(measures, constant), wanted[2], rtol=1e-4), name
    assert set(found["several"]["queries"]) == {0, 1}


def test_searches_by_words(both):
    found, expected = (it["words"] for it in both)
    assert found.keys() == expected.keys()
    for name, search in found.items():
        assert len(search["ids"]) > 0, name
        assert np.allclose(search["measures"], expected[name]["measures"], rtol=1e-3), name
        if name == "hybrid":
            # Rows whose scores tie have other ranks.
            continue
        worst = min(search["measures"])
        better = [id for id, it in zip(search["ids"], search["measures"], strict=True) if it > worst * 1.001]
        assert set(better) <= set(expected[name]["ids"]), name
