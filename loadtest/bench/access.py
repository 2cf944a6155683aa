"""Measures the cost of access control and of TLS. Two pairs of nodes run under the same load at the same time: one pair
checks its callers, the other's access is open."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from . import beside, memory
from .beside import relative_rate, relative_rates
from .bireme import Bireme, Node
from .keys import TABLE
from .profile import Profile
from .tables import KEY

# The kinds of nodes. The control has open access, like the nodes that it runs beside, so their difference is noise.
TITLES = {
    "control": "anyone, open access (noise)",
    "key": "with an API key, under a policy",
    "audit": "with an API key, under a policy, with an audit log",
    "tls": "anyone, over TLS",
}
BESIDE = "control"


@dataclass(frozen=True)
class Load:
    """A load on a query node: the arguments of `bireme bench`, and the title of its rate."""

    title: str
    arguments: list[str]


LOADS = {
    "get": Load("gets of one row/s", ["get", "--key-column", KEY, "--concurrency", "32"]),
    "rows": Load("takes of 1,000 rows/s", ["take", "--rows", "1000", "--concurrency", "8"]),
}
TURNS = 3


def measure(profile: Profile, binary: Path, logs: Path) -> dict:
    """Measures each load on each kind of nodes, beside open ones. Slabs are in memory, so that only CPU counts."""
    turns: dict = {name: {load: [] for load in LOADS} for name in TITLES}
    with memory.folder(profile, slabs=2) as folder, Bireme(binary, logs, profile.folder) as bireme:
        slabs = [folder / f"slab-{number}" for number in range(2)]
        for slab in slabs:
            beside.fill(profile, bireme, slab, TABLE)
        ways = _ways(binary, logs)
        for turn in range(profile.rounds * TURNS):
            print(f"access, turn {turn + 1} of {profile.rounds * TURNS}", flush=True)
            # Each turn begins with another kind, and the pairs swap their slabs.
            names = list(TITLES)
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                # The second pair needs a name of its own, "beside", because the control runs beside nodes of its own
                # kind.
                kinds = {name: ways[name], "beside": ways[BESIDE]}
                pairs = list(zip(kinds, slabs if turn % 2 else slabs[::-1]))
                for load, reports in _loads(profile, bireme, kinds, pairs, turn).items():
                    turns[name][load].append({"measured": reports[name], "beside": reports["beside"]})
                ratios = ", ".join(f"{load} {relative_rate(turns[name][load][-1:]):.3f}" for load in LOADS)
                print(f"  {name}, relative to open access: {ratios}", flush=True)
    return {"turns": turns}


@dataclass
class Way:
    """The settings of a query node, and what its clients send."""

    settings: dict[str, str]
    credentials: list[str]
    scheme: str = "http"


def _ways(binary: Path, folder: Path) -> dict[str, Way]:
    made = subprocess.run([binary, "api-key", "bench", "--json"], check=True, capture_output=True, text=True)
    key = json.loads(made.stdout)
    (folder / "key").write_text(key["key"])
    policy = folder / "access.toml"
    policy.write_text(
        f'[keys.bench]\nsha256 = ["{key["sha256"]}"]\n'
        '[[grants]]\nname = "bench"\nwho = ["key:bench"]\ntables = ["*"]\nmay = ["read", "warm", "observe"]\n'
    )
    checked = {"BIREME_QUERY_ACCESS": str(policy)}
    sends = ["--token-file", str(folder / "key")]
    certificate, private = folder / "tls.crt", folder / "tls.key"
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
            # By default, openssl makes an authority's certificate, which clients don't accept from a server.
            "-subj", "/CN=bench", "-addext", "basicConstraints=critical,CA:FALSE",
            "-addext", "subjectAltName=IP:127.0.0.1", "-out", certificate, "-keyout", private,
        ],
        check=True,
        capture_output=True,
    )
    tls = {"BIREME_QUERY_TLS_CERT": str(certificate), "BIREME_QUERY_TLS_KEY": str(private)}
    return {
        "control": Way({}, []),
        "key": Way(checked, sends),
        "audit": Way(checked | {"BIREME_QUERY_AUDIT": str(folder / "audit.jsonl")}, sends),
        "tls": Way(tls, ["--tls-ca", str(certificate)], "https"),
    }


def _loads(profile: Profile, bireme: Bireme, ways: dict[str, Way], slabs: list[tuple[str, Path]], turn: int) -> dict[str, dict]:
    """Runs both pairs at the same time. Returns their reports by load and kind."""
    queries: dict[str, Node] = {}
    nodes = []
    try:
        for kind, slab in slabs:
            way = ways[kind]
            io = bireme.io_node([slab], profile.slab_gib, keep=True)
            nodes.append(io)
            query = bireme.query_node(io, {TABLE: profile.table(TABLE)}, **way.settings)
            nodes.append(query)
            # `bireme bench` knows the node by its endpoint.
            bireme.uris[query.endpoint.replace("http", way.scheme, 1)] = bireme.uris[query.endpoint]
            query.endpoint = query.endpoint.replace("http", way.scheme, 1)
            query.credentials = way.credentials
            queries[kind] = query
            bireme.ready(query, [TABLE])
        return {name: beside.run(bireme, queries, load.arguments, profile.seconds, turn, TABLE) for name, load in LOADS.items()}
    finally:
        for node in reversed(nodes):
            node.stop()


def section(found: dict) -> list[str]:
    """Returns the lines of the report's section."""
    turns = found["turns"]
    count = len(turns["control"]["get"])
    lines = [
        "## The cost of access control and TLS",
        "",
        "Two pairs of nodes run at the same time under the same load and share the CPUs; slabs are in memory. Callers of one",
        "pair are checked as the table says; the other pair's access is open, without TLS. Rates are relative to the other",
        f"pair's: the median of {count} turns, with the least and the most.",
        "",
        "| callers | " + " | ".join(load.title for load in LOADS.values()) + " |",
        "|---|" + "---|" * len(LOADS),
    ]
    return [*lines, *relative_rates(turns, TITLES, LOADS), ""]
