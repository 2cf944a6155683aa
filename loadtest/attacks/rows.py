"""The rows of the table of attacks."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One kind of attack, and what stops it."""

    attack: str
    severity: str
    defence: str


# By the numbers that the tests report (`report::held`).
ROWS = {
    1: Row(
        "`Open` on an I/O node with the URI of a table that nobody configured",
        "critical",
        "an I/O node serves the tables and prefixes of `serve` alone; one refusal for everything else",
    ),
    2: Row(
        "a served table whose external blobs or base paths name other files of the node",
        "critical",
        "a table reads from its own folder, and from prefixes that the operator allowed it",
    ),
    3: Row(
        "`Open s3://any-bucket/…`, to have requests signed with the node's key",
        "critical",
        "`serve` is checked before a store is touched; stores check every path",
    ),
    4: Row(
        "filters that make the SQL parser or planner recurse until the stack overflows",
        "critical",
        "bounds on a filter's bytes, tokens, nesting and chains, checked before any parser sees it",
    ),
    5: Row(
        "searches for very many words",
        "critical",
        "words are deduplicated; bounds on their bytes and their number",
    ),
    6: Row(
        "filters whose functions take minutes or gigabytes",
        "critical",
        "functions of linear cost and bounded output alone; small batches; a permit is held until work has ended",
    ),
    7: Row(
        "idle TCP connections",
        "high",
        "time limits for the preface and for idleness; caps in total and by address; memory is taken after the preface",
    ),
    8: Row(
        "keep-alive clients on the metrics port",
        "high",
        "a thread of its own; caps on connections; the oldest idle connection makes room for a probe",
    ),
    9: Row(
        "silent TLS connections",
        "high",
        "handshakes are bounded apart from connections that are served, and time out",
    ),
    11: Row(
        "`Warm` of one table under many spellings, to evict what others cached",
        "high",
        "a table has one canonical URI, which quotas, extents and caches go by",
    ),
    12: Row(
        "unfinished messages on many streams; slow readers of large answers",
        "high",
        "bounds on each method's messages; all of it counts against `memory`, on both tiers, and is given back",
    ),
    14: Row(
        "descriptors, deadlines, headers, log lines, files, secrets",
        "medium",
        "what is seen below, each by its own bound or check",
    ),
    15: Row(
        "damaged or malicious files of a served table",
        "critical",
        "what a file announces is checked before Lance reads it; a panic in Lance is an error of the request",
    ),
    15: Row(
        "a served table whose files are damaged or made to do harm",
        "critical",
        "manifests, footers and deletions are checked before Lance reads them; panics become errors of their request",
    ),
}
