"""The figures of the project's README.md, written from the same results as the report."""

import textwrap
from pathlib import Path

from .lookups import KEYS_PER_S
from .store import FAR

README = Path(__file__).parents[2] / "README.md"
BEGIN, END = "<!-- figures, by make bench -->\n", "<!-- end of figures -->"
COLUMNS = 120
FROM_DRIVE = "vector search, index warm, rows from the drive"
TEXT = """\
`make bench` compares Bireme with the drive's limit and with other readers of the same table; the results are in
[docs/benchmarks](docs/benchmarks/README.md). On {cores} cores that also run the load generator, one I/O node whose drive is a file
in memory (tmpfs) scores {scored:.2f} million rows per second or sends {whole:.2f} million whole vectors per second, and both tiers together
answer {warm:.1f} times as many warm vector searches per core-second as pylance. With the rows in the I/O node's own cache in RAM, both tiers look
up {keys:.1f} million rows by key per second. With the index in memory and the rows on the
drive, the drive is {busy:.0f} % busy, and Bireme answers {cold:.1f} times as many searches per second as pylance with the faster
of its two file readers. Over a store that is 30 ms away, a query node that has just started answers its first search in
{restart:.0f} ms and with {requests:.0f} requests to the store if the I/O nodes have the table's index; pylance takes {peer:.0f} times as long."""


def write(results: dict, output: Path) -> None:
    """Replaces the paragraph between the markers, if `output` is the folder of the published report."""
    if not {"rounds", "store", "lookups"} <= results.keys() or output.resolve() != README.parent / "docs" / "benchmarks":
        return
    text = README.read_text()
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    README.write_text(text[:begin] + paragraph(results) + text[end:])


def paragraph(results: dict) -> str:
    """Returns the paragraph, filled with the medians that the report compares with goals."""
    value = {goal["name"]: goal["value"] for goal in results["goals"]}
    filled = TEXT.format(
        cores=results["machine"]["cores"],
        scored=value["vectors scored on the node, slab in memory: rows/s"] / 1e6,
        whole=value["whole vectors, slab in memory: rows/s"] / 1e6,
        warm=value["vector search, all warm: searches per core-second, relative to pylance's"],
        keys=value[KEYS_PER_S] / 1e6,
        busy=value[f"{FROM_DRIVE}: share of time in which the drive is busy"] * 100,
        restart=value[f"{FAR}first search after a restart, ms"],
        requests=value[f"{FAR}requests to the store from the start to that search"],
        peer=value[f"{FAR}pylance's first search over that one"],
        cold=value[f"{FROM_DRIVE}: searches/s, relative to pylance's with the page cache dropped"],
    )
    return textwrap.fill(filled, COLUMNS, break_long_words=False, break_on_hyphens=False) + "\n"
