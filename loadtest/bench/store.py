"""Measures first requests and cold caches over an object store that is far away, beside pylance on the same store.

MinIO keeps the tables, and a relay (`relay.py`) in front of it delays and counts requests. Tables are copied to MinIO once.
"""

import http.client
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import lance
import pyarrow as pa
from lance.fragment import FragmentMetadata, LanceFragment
from pyarrow import fs

from . import machine
from .bireme import Bireme, Node, free_port
from .profile import Profile
from .store_requests import K, NPROBES, REFINE, TAKEN, question, rows_of

MINIO = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "bireme/kubernetes/bin/minio"
SECRET = {"AWS_ACCESS_KEY_ID": "bireme-bench", "AWS_SECRET_ACCESS_KEY": "bireme-bench-secret"}
BUCKET = "bench"
TABLES = ["vectors", "payload", "lineitem"]
# The numbers of fragments of the tables whose next version is measured.
FRAGMENTS = [100, 100_000]
RESTARTS = 20
PEER_STARTS = 5
QUERY_NODES = 4
# The number of turns of first requests over empty drives, by each side.
COLD_TURNS = 3
# The number of requests for rows of a table that is on no drive.
COLD_TAKES = 10
# The beginning of the goals' names.
FAR = "store 30 ms away: "
RELAYS = {"30 ms": [], "p50 30, p99 200 ms": ["--spread"]}


@dataclass
class Store:
    """MinIO with the tables, and a relay in front of it."""

    port: int
    relay: int

    def files(self) -> fs.S3FileSystem:
        """Returns the store's files, without the relay."""
        return fs.S3FileSystem(
            access_key=SECRET["AWS_ACCESS_KEY_ID"], secret_key=SECRET["AWS_SECRET_ACCESS_KEY"],
            endpoint_override=f"127.0.0.1:{self.port}", scheme="http", region="us-east-1",
        )

    def index_bytes(self, table: str) -> int:
        """Returns the bytes of all files of a table's indexes."""
        folder = fs.FileSelector(f"{BUCKET}/{table}.lance/_indices", recursive=True)
        return sum(it.size or 0 for it in self.files().get_file_info(folder))

    def options(self, port: int) -> dict[str, str]:
        """Returns the storage options of a client that connects to `port`."""
        return {"aws_endpoint": f"http://127.0.0.1:{port}", "aws_region": "us-east-1", "allow_http": "true"}

    def flags(self) -> list[str]:
        """Returns the flags with which a node reads the store through the relay."""
        pairs = self.options(self.relay).items()
        return [word for name, value in pairs for word in ("--storage", f"{name}={value}")]

    def counts(self) -> dict:
        """Returns the relay's counts so far."""
        connection = http.client.HTTPConnection("127.0.0.1", self.relay)
        connection.request("GET", "/relay")
        return json.loads(connection.getresponse().read())

    @contextmanager
    def counted(self) -> Iterator[dict]:
        """Counts what the relay counts during a `with` block."""
        before, counts = self.counts(), {}
        yield counts
        counts |= {name: value - before[name] for name, value in self.counts().items()}


@contextmanager
def processes(commands: list[list]) -> Iterator[None]:
    """Runs servers during a `with` block."""
    running = [subprocess.Popen(it, env=os.environ | {"MINIO_UPDATE": "off"}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for it in commands]
    try:
        yield
    finally:
        for process in running:
            process.terminate()
            process.wait(30)


@contextmanager
def store(profile: Profile, relay: list[str]) -> Iterator[Store]:
    """Runs MinIO and a relay during a `with` block. Copies the tables that MinIO lacks."""
    it = Store(free_port(), free_port())
    folder = profile.folder / "minio"
    (folder / BUCKET).mkdir(parents=True, exist_ok=True)
    os.environ |= SECRET | {"MINIO_ROOT_USER": SECRET["AWS_ACCESS_KEY_ID"], "MINIO_ROOT_PASSWORD": SECRET["AWS_SECRET_ACCESS_KEY"]}
    minio = [MINIO, "server", folder, f"--address=127.0.0.1:{it.port}", "--console-address=127.0.0.1:0", "--quiet"]
    command = [sys.executable, "-m", "bench.relay", "--port", str(it.relay), "--upstream", str(it.port), *relay]
    with processes([minio, command]):
        _await(it.port, "/minio/health/ready")
        _await(it.relay, "/relay")
        for name in TABLES:
            made, mark = (profile.folder / f"{name}.made").read_text(), profile.folder / f"{name}.stored"
            if not mark.exists() or mark.read_text() != made:
                print(f"copying table {name} to MinIO", flush=True)
                fs.copy_files(profile.table(name), f"{BUCKET}/{name}.lance", fs.LocalFileSystem(), it.files())
                mark.write_text(made)
        yield it


def _await(port: int, path: str) -> None:
    """Waits until a server answers with 200."""
    until = time.monotonic() + 60
    while True:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", path)
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        if time.monotonic() > until:
            raise RuntimeError(f"nothing answers on port {port}")
        time.sleep(0.02)


@dataclass
class Bench:
    """The nodes over one store."""

    profile: Profile
    bireme: Bireme
    store: Store

    def io_node(self) -> Node:
        """Starts an I/O node with an empty slab."""
        return self.bireme.io_node([self.profile.folder / "store-slab"], self.profile.slab_gib)

    def query_node(self, io: Node, table: str, **variables: str) -> Node:
        """Starts a query node, and waits until it says that it is ready."""
        node = self.bireme.query_node(io, {table: f"s3://{BUCKET}/{table}.lance"}, **variables)
        _await(_port(node), "/healthz")
        return node

    def post(self, node: Node, table: str, body: dict) -> float:
        """Sends a query by HTTP, and returns the seconds until its answer is there."""
        began = time.perf_counter()
        connection = http.client.HTTPConnection("127.0.0.1", _port(node), timeout=600)
        connection.request("POST", f"/v1/table/{table}/query/", json.dumps(body), {"content-type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{answer.status}: {text[:500]!r}")
        return time.perf_counter() - began

    def search(self, node: Node, number: int) -> float:
        """Searches, and returns the seconds."""
        body = {"vector": question(number), "k": K, "nprobes": NPROBES, "refine_factor": REFINE, "columns": ["id"]}
        return self.post(node, "vectors", body)

    def take(self, node: Node, number: int, rows: int) -> float:
        """Reads random rows, and returns the seconds."""
        positions = ", ".join(map(str, rows_of(number, rows)))
        return self.post(node, "lineitem", {"vector": [], "k": TAKEN, "filter": f"_rowoffset IN ({positions})"})

    def get(self, node: Node, number: int) -> float:
        """Gets a row by its key, and returns the seconds, which include the start and the end of a client process."""
        began = time.perf_counter()
        self.bireme.run(node, "get", "payload", f"SKU-{number:09d}", "--columns", "price")
        return time.perf_counter() - began

    def pylance(self, table: str, kind: str) -> dict:
        """Makes two requests by pylance in a new process. Returns their seconds, and the store's requests and bytes."""
        options = json.dumps(self.store.options(self.store.relay))
        with self.store.counted() as counts:
            ran = subprocess.run(
                [sys.executable, "-m", "bench.first_requests", f"s3://{BUCKET}/{table}.lance", kind, options],
                capture_output=True, text=True, check=True,
            )
        return json.loads(ran.stdout) | counts


def _port(node: Node) -> int:
    return int(node.endpoint.rsplit(":", 1)[1])


def measure(profile: Profile, binary: Path, logs: Path) -> dict:
    """Measures with each relay."""
    found = {}
    for title, relay in RELAYS.items():
        with store(profile, relay) as it, Bireme(binary, logs, f"s3://{BUCKET}", it.flags()) as bireme:
            bench = Bench(profile, bireme, it)
            found[title] = {"cold": _cold(bench), "restarts": _restarts(bench)}
            if not relay:
                found[title] |= {"small_cache": _small_cache(bench), "together": _together(bench), "takes": _takes(bench), "versions": _versions(bench)}
        print(f"store, {title}: {json.dumps(found[title])}", flush=True)
    return found | {"machine": machine.describe([profile.folder])}


def _rows(bench: Bench, node: Node, table: str) -> int:
    return bench.bireme.run(node, "describe", table)[0]["rows"]


def _cold(bench: Bench) -> dict:
    """Measures first and second requests over empty drives, by a query node that has just started."""
    found = {}
    requests = {"search": ("vectors", bench.search), "get": ("payload", bench.get), "take": ("lineitem", None)}
    for kind, (table, request) in requests.items():
        turns = [_first_two(bench, table, request) for _ in range(COLD_TURNS)]
        # The turn whose first request took the median time.
        bireme = sorted(turns, key=lambda it: it["seconds"][0])[COLD_TURNS // 2]
        pylance = [bench.pylance(table, kind) for _ in range(COLD_TURNS)]
        found[kind] = {"bireme": bireme, "pylance": pylance}
    return found


def _first_two(bench: Bench, table: str, request: Callable[[Node, int], float] | None) -> dict:
    """Measures two requests over empty drives; takes if `request` is not given."""
    io = bench.io_node()
    with bench.store.counted() as counts:
        node = bench.query_node(io, table)
        if not request:
            rows = _rows(bench, node, table)
            request = lambda node, number: bench.take(node, number, rows)
        seconds = [request(node, number) for number in range(2)]
    for it in (node, io):
        it.stop()
    return {"seconds": seconds} | counts


def _warmed(bench: Bench) -> Node:
    """Starts an I/O node and fills it with the vectors and their index."""
    io = bench.io_node()
    node = bench.query_node(io, "vectors")
    bench.bireme.run(node, "warm", "vectors", "--columns", "vector,id")
    bench.bireme.run(node, "warm", "vectors", "--indexes")
    node.stop()
    return io


def _restarts(bench: Bench) -> dict:
    """Measures the first search of query nodes that have just started, over drives that have everything."""
    io, seconds, requests = _warmed(bench), [], []
    for number in range(RESTARTS):
        with bench.store.counted() as counts:
            node = bench.query_node(io, "vectors")
            seconds.append(bench.search(node, number))
        requests.append(counts["requests"])
        node.stop()
    io.stop()
    pylance = [bench.pylance("vectors", "search") for _ in range(PEER_STARTS)]
    return {"seconds": seconds, "requests": requests, "pylance": pylance}


def _small_cache(bench: Bench) -> dict:
    """Measures searches by a query node whose cache holds a tenth of the index, and by one whose cache holds all."""
    io, found = _warmed(bench), {}
    index_bytes = bench.store.index_bytes("vectors")
    for title, cache in [("tenth", index_bytes // 10), ("whole", 4 * index_bytes)]:
        node = bench.query_node(io, "vectors", BIREME_QUERY_INDEX_CACHE=str(cache))
        load = ["-k", str(K), f"--nprobes={NPROBES}", f"--refine={REFINE}", "--columns", "id"]
        bench.bireme.bench(node, "search", "vectors", bench.profile.seconds, *load)
        before = (time.monotonic(), io.cpu_us(), node.cpu_us())
        with bench.store.counted() as counts:
            report = bench.bireme.bench(node, "search", "vectors", bench.profile.seconds, *load, "--seed", "7")
        cpu = {"io_cpu_us": io.cpu_us() - before[1], "query_cpu_us": node.cpu_us() - before[2], "seconds": time.monotonic() - before[0]}
        found[title] = {"report": report, "cpu": cpu} | counts
        node.stop()
    io.stop()
    return found | {"index_bytes": index_bytes}


def _together(bench: Bench) -> dict:
    """Measures query nodes over empty drives that warm the same index at the same time."""
    io = bench.io_node()
    with bench.store.counted() as counts:
        nodes = [bench.query_node(io, "vectors") for _ in range(QUERY_NODES)]
        warms = [threading.Thread(target=bench.bireme.run, args=(node, "warm", "vectors", "--indexes")) for node in nodes]
        for warm in warms:
            warm.start()
        for warm in warms:
            warm.join()
    for node in [*nodes, io]:
        node.stop()
    return counts | {"index_bytes": bench.store.index_bytes("vectors")}


def _takes(bench: Bench) -> dict:
    """Measures batches of random rows of a table that is on no drive, in several turns."""
    seconds = []
    for _ in range(COLD_TURNS):
        io = bench.io_node()
        node = bench.query_node(io, "lineitem")
        rows = _rows(bench, node, "lineitem")
        seconds.append([bench.take(node, number, rows) for number in range(COLD_TAKES)])
        for it in (node, io):
            it.stop()
    return {"seconds": seconds, "pylance": [bench.pylance("lineitem", "take")["seconds"] for _ in range(COLD_TURNS)]}


def _versions(bench: Bench) -> dict:
    """Measures the cost of a new version that adds one fragment to few or many. All others share one data file."""
    options = bench.store.options(bench.store.port) | {name.lower(): value for name, value in SECRET.items()}
    rows, found = pa.table({"id": pa.array(range(100), pa.int64())}), {}
    for fragments in FRAGMENTS:
        uri = f"s3://{BUCKET}/fragments-{fragments}.lance"
        # In a table that exists, the numbers of fragments would not begin at 0.
        bench.store.files().delete_dir_contents(uri.removeprefix("s3://"), missing_dir_ok=True)
        first = LanceFragment.create(uri, rows, storage_options=options).to_json()
        all_of_them = [FragmentMetadata.from_json(json.dumps(first | {"id": number})) for number in range(fragments)]
        operation = lance.LanceOperation.Overwrite(rows.schema, all_of_them)
        lance.LanceDataset.commit(uri, operation, storage_options=options)
        io = bench.io_node()
        node = bench.bireme.query_node(io, {"fragments": uri})
        _await(_port(node), "/healthz")
        bench.bireme.run(node, "take", "fragments", "0")
        version = bench.bireme.run(node, "describe", "fragments")[0]["version"]
        lance.write_dataset(rows, uri, mode="append", storage_options=options)
        with bench.store.counted() as switch:
            while bench.bireme.run(node, "describe", "fragments")[0]["version"] == version:
                time.sleep(0.05)
        with bench.store.counted() as take:
            bench.bireme.run(node, "take", "fragments", str(fragments << 32))
        found[str(fragments)] = {"switch": switch, "take": take}
        for it in (node, io):
            it.stop()
    return found


def _batches(takes: dict) -> tuple[list[float], list[float]]:
    """Returns the seconds of each batch, by Bireme and by pylance: medians of the turns."""
    return tuple([median(turns) for turns in zip(*takes[name], strict=True)] for name in ("seconds", "pylance"))


def goals(found: dict) -> list[tuple[str, float, float, bool]]:
    """Returns each goal's name, its value, the wanted value, and whether more is better."""
    near = found["30 ms"]
    restarts, cold, small = near["restarts"], near["cold"], near["small_cache"]
    first = median(restarts["seconds"])
    peers = median(it["seconds"][0] for it in restarts["pylance"])
    rate = lambda title: small[title]["report"]["requests"] / small[title]["report"]["seconds"]
    together = near["together"]
    goals = [
        ("first search after a restart, ms", 1e3 * first, 110.0, False),
        ("requests to the store from the start to that search", max(restarts["requests"]), 5, False),
        ("pylance's first search over that one", peers / first, 10.0, True),
        ("searches/s with a cache of a tenth of the index, over those with all of it in RAM", rate("tenth") / rate("whole"), 0.2, True),
        ("requests to the store of these searches", small["tenth"]["requests"] - small["tenth"]["of_versions"], 0, False),
        ("store bytes of 4 query nodes that warm an index together, over its size", together["bytes"] / together["index_bytes"], 1.05, False),
    ]
    for kind in cold:
        bireme, pylance = cold[kind]["bireme"], cold[kind]["pylance"]
        goals += [
            (f"first {kind}, nothing cached: seconds over pylance's", bireme["seconds"][0] / median(it["seconds"][0] for it in pylance), 1.0, False),
            (f"first two of {kind}, nothing cached: requests to the store over pylance's", bireme["requests"] / median(it["requests"] for it in pylance), 1.0, False),
            (f"first {kind} over the second, nothing cached before", bireme["seconds"][0] / bireme["seconds"][1], 5.0, True),
        ]
    takes, peer = _batches(near["takes"])
    goals += [
        ("first batch of 1,000 rows of an unfilled table: seconds over pylance's", takes[0] / peer[0], 1.0, False),
        ("slowest later batch of 1,000 rows: seconds over pylance's second", max(takes[1:]) / peer[1], 1.0, False),
    ]
    return [(FAR + name, *rest) for name, *rest in goals]


def section(found: dict) -> list[str]:
    """Returns the lines of the report's section."""
    lines = ["## Over an object store that is far away", ""]
    lines += [
        "The tables are in MinIO on the same machine. A relay in front of it delays each request, and sends each answer at",
        "90 MB/s at most: the relay \"30 ms\" by 30 ms, the other one as S3 is said to (median 30 ms, 99th percentile 200 ms).",
        "Searches by vector: k 50, nprobes 20, refine 10, by plain HTTP. \"Get\" is `bireme get`, with the start of its process,",
        "and for pylance a filter by key; \"take\" reads 1,000 random rows of all 16 columns of lineitem. Pylance's first request",
        "includes the opening of the table, Bireme's does not: its query node has opened it when it says that it is ready. The",
        "counts of requests begin with the start of the query node, and of the process with pylance. Of Bireme's three turns,",
        "the table shows the one whose first request took the median time.",
        "",
        "| relay | request, nothing cached | first, ms: Bireme, pylance | second, ms: Bireme, pylance | requests to the store for both: Bireme, pylance |",
        "|---|---|---|---|---|",
    ]
    relays = {name: it for name, it in found.items() if name != "machine"}
    for relay, it in relays.items():
        for kind, of in it["cold"].items():
            peer = lambda number, of=of: 1e3 * median(run["seconds"][number] for run in of["pylance"])
            times = [f"{1e3 * of['bireme']['seconds'][number]:,.0f}, {peer(number):,.0f}" for number in (0, 1)]
            requests = f"{of['bireme']['requests']}, {median(run['requests'] for run in of['pylance']):.0f}"
            lines.append(f"| {relay} | {kind} | {times[0]} | {times[1]} | {requests} |")
    lines += [
        "",
        "First searches of query nodes that have just started, over an I/O node that has the vectors and their index:",
        "",
        "| relay | median, ms | least and most, ms | requests to the store from the start on | pylance's first search, ms | its requests for two |",
        "|---|---|---|---|---|---|",
    ]
    for relay, it in relays.items():
        of = it["restarts"]
        times = [1e3 * seconds for seconds in of["seconds"]]
        peer = [1e3 * run["seconds"][0] for run in of["pylance"]]
        cells = [relay, f"{median(times):.0f}", f"{min(times):.0f}, {max(times):.0f}", f"{min(of['requests'])} to {max(of['requests'])}"]
        lines.append(f"| {' | '.join(cells)} | {median(peer):,.0f} | {median(run['requests'] for run in of['pylance']):.0f} |")
    near = found["30 ms"]
    small, together = near["small_cache"], near["together"]
    batches, peer = ([f"{1e3 * seconds:,.0f}" for seconds in of] for of in _batches(near["takes"]))
    rate = lambda title: small[title]["report"]["requests"] / small[title]["report"]["seconds"]
    busy = lambda title: (small[title]["cpu"]["io_cpu_us"] + small[title]["cpu"]["query_cpu_us"]) / 1e6 / small[title]["cpu"]["seconds"]
    lines += [
        "",
        f"With a cache of a tenth of the index (which has {small['index_bytes'] / 1e6:.0f} MB), a query node answers {rate('tenth'):,.0f} searches/s (both",
        f"nodes use {busy('tenth'):.1f} cores, and the store gets {small['tenth']['requests']} requests, {small['tenth']['of_versions']} of them by nodes that look for a new",
        "version); with a cache that holds all of it,",
        f"{rate('whole'):,.0f} ({busy('whole'):.1f} cores). RAM tier off. Four query nodes over empty drives that warm the index at the same time",
        f"cost the store {together['bytes'] / together['index_bytes']:.2f} times its bytes, in {together['requests']} requests. Ten batches of 1,000 random rows of",
        f"lineitem, which is on no drive at first, take {', '.join(batches)} ms, one after the other; pylance's first two",
        f"{' and '.join(peer)} ms (medians of {len(near['takes']['seconds'])} turns).",
        "",
        "A new version that adds one fragment:",
        "",
        "| fragments before | requests and MB until the query node serves it | of the first row of the new fragment (the I/O node opens the version) |",
        "|---|---|---|",
    ]
    for fragments, of in near["versions"].items():
        cells = [f"{of[step]['requests']}, {of[step]['bytes'] / 1e6:.2f} MB" for step in ("switch", "take")]
        lines.append(f"| {int(fragments):,} | {cells[0]} | {cells[1]} |")
    return [*lines, ""]
