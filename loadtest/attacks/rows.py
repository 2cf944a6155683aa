"""The rows of the table of attacks in docs/security.md."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One kind of attack, and what stops it."""

    attack: str
    severity: str
    defence: str
    exceptions: str = ""


# The keys are the numbers that the tests report (`report::held`).
ROWS = {
    1: Row(
        "`Open` on an I/O node with the URI of a table that is not configured",
        "critical",
        "an I/O node serves only the tables and prefixes of `serve`, and refuses everything else with one message",
    ),
    2: Row(
        "a served table whose external blobs or base paths name other files of the node",
        "critical",
        "a table reads only from its own folder and from prefixes that the operator allowed",
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
        "only functions of linear cost and bounded output; small batches; a permit is held until the work has ended",
    ),
    7: Row(
        "idle TCP connections",
        "high",
        "time limits for the preface and for idleness; limits in total and per address; memory is allocated after the preface",
    ),
    8: Row(
        "keep-alive clients on the metrics port",
        "high",
        "a thread of its own; a limit on connections; the oldest idle connection is closed for a new one",
    ),
    9: Row(
        "silent TLS connections",
        "high",
        "handshakes have a limit of their own and a timeout",
    ),
    10: Row(
        "a certificate of the authority of the tiers, made for something else: every table at an I/O node",
        "high",
        "an I/O node answers only the names of `peers`; health and reflection excepted",
    ),
    11: Row(
        "`Warm` of one table under many spellings, to evict what others cached",
        "high",
        "quotas, extents and caches use a table's one canonical URI",
    ),
    12: Row(
        "unfinished messages on many streams; slow readers of large answers",
        "high",
        "limits on each method's messages; all of their memory counts against `memory` on both tiers, and is freed",
    ),
    13: Row(
        "without TLS: an impostor at an I/O node's address forges rows; strangers call an I/O node",
        "high",
        "both tiers prove that they know the secret of `peer_secret` before a row is asked for; proofs are for one call, "
        "one address and 30 s",
    ),
    14: Row(
        "descriptors, deadlines, headers, log lines, files, secrets",
        "medium",
        "a limit or check for each, as below",
    ),
    15: Row(
        "a served table with damaged or malicious files",
        "critical",
        "manifests, footers and deletions are checked before Lance reads them; a panic fails only its request",
        "with [known exceptions](../SECURITY.md#threat-model)",
    ),
    16: Row(
        "a caller without the right to a query node's table: with no, forged or guessed credentials, a grant for another "
        "table, or one that was withdrawn",
        "critical",
        "with an access policy, callers are identified before their calls begin, and all others get one answer; a table "
        "without a grant answers like one that does not exist; a stream is authorized again with each request",
    ),
    17: Row(
        "plain HTTP: heads and bodies that never end, answers that nobody reads, JSON that is nested or endless, a web page "
        "whose name leads to the node",
        "high",
        "the same limits on connections and memory as for gRPC; a limit on a body's bytes; time limits for heads; only "
        "allowed origins and hosts",
    ),
}
