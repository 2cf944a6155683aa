"""Makes a table whose rows are computed from their numbers, so that any row can be checked without reading the
source."""

import hashlib
import json
import shutil
import subprocess
from pathlib import Path

from .check import say

NAME = "rows"
ROWS = 60_000
# Each fragment is a chunk, so that there are enough chunks to be spread evenly.
FRAGMENT_ROWS = 250
DIMENSION = 32
BODY_BYTES = 300


def row(number: int) -> dict:
    """Returns the row: text that does not compress, and a vector."""
    drawn = hashlib.shake_128(str(number).encode()).digest(BODY_BYTES + DIMENSION)
    return {
        "id": f"r{number:06d}",
        "number": number,
        "body": drawn[:BODY_BYTES].hex(),
        "vector": [round((byte - 127.5) / 128, 4) for byte in drawn[BODY_BYTES:]],
    }


def address(number: int) -> str:
    """Returns the row's address in the form of the command line."""
    return f"{number // FRAGMENT_ROWS}:{number % FRAGMENT_ROWS}"


def make(binary: Path, folder: Path) -> Path:
    """Makes the table, unless it exists. Returns its path."""
    table = folder / f"rows-{ROWS}-{FRAGMENT_ROWS}.lance"
    mark = table.with_suffix(".made")
    if mark.exists():
        return table
    say(f"making a table of {ROWS:,} rows")
    shutil.rmtree(table, ignore_errors=True)
    rows = folder / "rows.jsonl"
    with rows.open("w") as file:
        for number in range(ROWS):
            file.write(json.dumps(row(number)) + "\n")
    for words in [
        ["ingest", rows, "--table", table, "--key", "id", "--fragment-rows", FRAGMENT_ROWS],
        ["index", "--table", table, "--vector", "vector", "--key", "id"],
    ]:
        subprocess.run([str(binary), *map(str, words)], check=True, capture_output=True)
    rows.unlink()
    mark.touch()
    return table
