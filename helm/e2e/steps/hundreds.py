"""Tests an I/O tier of hundreds of nodes: a second release of the chart, with its I/O nodes on fake nodes. Endpoints,
slices and zones come from Kubernetes' own controllers; the query node that follows them is real."""

import json
from collections import Counter
from contextlib import contextmanager

from .. import store
from ..check import check, say, step
from ..cluster.addresses import PORTS
from ..cluster.fake_nodes import LABEL, TOLERATION, FakeNodes
from ..cluster.manifest import apply
from ..process import run, until
from ..release import Release

NAME, NODE_PORT = "bireme-many", 30071
SERVICE = f"{NAME}-io"
FAKE_NODES, ZONES = 200, 4
FEW, MANY = 200, 300
# Kubernetes' maximum number of endpoints per slice.
IN_SLICE = 100
# A table with enough chunks to measure shares of them.
TABLE, URI, ROWS_PER_CHUNK = "chunks", "s3://tables/chunks.lance", 5
# The allowed difference between the share of chunks that move and the new nodes' share.
DEVIATION_MAX = 0.04
VALUES = {
    "query.replicas": 1, "io.drives": [{"name": "none", "size": "1GiB", "emptyDir": {}}], "io.minReadySeconds": 0,
    "io.nodeSelector": LABEL, "io.tolerations": [TOLERATION], "topologySpread": "DoNotSchedule",
    f"tables.{TABLE}": {"uri": URI}, "access.peerSecret": "peers",
    # The I/O nodes of the other release are in another namespace.
    "networkPolicy.extraEgress": [{"ports": [{"port": PORTS["io"]}]}],
}
SLICE = "real"

# The owner of each chunk. A chunk is a fragment and a number.
Owners = dict[tuple[int, int], str]


def io_nodes(release) -> None:
    step(f"an I/O tier of {FEW} nodes, then {MANY}, then {FEW} again, in several EndpointSlices")
    store.ingest(release.bireme, URI, ROWS_PER_CHUNK)
    many = Release(release.bireme, release.cluster, release.store, NAME, NAME, NODE_PORT)
    real = {name: pod["status"]["podIP"] for name, pod in release.pods("io").items()}
    # The release is removed before the fake nodes of its pods.
    with FakeNodes(release.cluster, FAKE_NODES, ZONES) as nodes, installed(many, release):
        grow(many, FEW)
        spread(many, nodes.zones)
        put_slice(real)
        known(many, FEW, real)
        zones(many, nodes.zones)
        few = owners(many)
        check("every node owns about its share", evenly(few, FEW + len(real)), f"{len(few)} chunks")
        grow(many, MANY)
        spread(many, nodes.zones)
        known(many, MANY, real)
        moved(few, owners(many), MANY - FEW, MANY + len(real))
        answers(many, real)
        refused(many, real)
        grow(many, FEW)
        # Members that are gone keep their chunks for `member_hold`.
        known(many, FEW, real)
        check("each chunk has its first owner again", owners(many) == few)
        answers(many, real)
        weighted(many, real)


@contextmanager
def installed(many: Release, other: Release):
    """Makes the release's namespace, with the secret by which the other release's I/O nodes recognise query nodes.
    Removes release and namespace at the end, also if a check fails."""
    many.prepare()
    secret = other.kubectl("get", "secret", "bireme-peers", "-o", "jsonpath={.data.secret}")
    apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "peers", "namespace": NAME},
           "data": {"secret": secret}})
    try:
        yield
    finally:
        # The release may not have been installed.
        run("helm", "uninstall", NAME, "-n", NAME, "--wait", "--ignore-not-found", timeout=180)
        run("kubectl", "delete", "namespace", NAME, timeout=180)


def grow(many: Release, count: int, more: dict | None = None) -> None:
    values = {**VALUES, "io.replicas": count, **(more or {})}
    many.upgrade(*(f"{name}={json.dumps(value)}" for name, value in values.items()))
    many.settled("io", count, 180)
    until("their endpoints", lambda: sum(made_slices(many)) == count)
    sizes = made_slices(many)
    check("no slice exceeds Kubernetes' maximum", len(sizes) >= count / IN_SLICE and max(sizes) <= IN_SLICE,
          sizes)


def weighted(many: Release, real: dict) -> None:
    """Gives the release's nodes a higher weight than the other release's, by the service's label, which Kubernetes
    copies to the slices."""
    heavier = {name: 1 if name in real else 2.5 for name in (node["name"] for node in many.io_nodes())}
    grow(many, FEW, {"io.weight": 2.5})
    until("their weights", lambda: {node["name"]: node["weight"] for node in many.io_nodes()} == heavier)
    found = many.ask("placement", TABLE)[0]["nodes"]
    check("placement uses their weights", {node["name"]: node["share"] for node in found} == heavier)


def made_slices(many: Release) -> list[int]:
    """Returns the number of endpoints in each slice that Kubernetes made."""
    found = json.loads(many.kubectl("get", "endpointslices", "-l", f"kubernetes.io/service-name={SERVICE}", "-o", "json"))
    return [len(it["endpoints"] or []) for it in found["items"] if it["metadata"]["name"] != SLICE]


def spread(many: Release, zone_of: dict[str, str]) -> None:
    """Checks the chart's spread constraints: the numbers of pods on nodes, and in zones, differ by at most one."""
    on = [pod["spec"]["nodeName"] for pod in many.pods("io").values()]
    for what, counts in (("node", Counter(on)), ("zone", Counter(zone_of[node] for node in on))):
        places = len(set(zone_of) if what == "node" else set(zone_of.values()))
        even = max(counts.values()) - (min(counts.values()) if len(counts) == places else 0) <= 1
        check(f"the same on each {what}, or one more", even, f"{max(counts.values())} at most")


def known(many: Release, count: int, real: dict) -> None:
    """Waits until the query node knows all I/O nodes, each with its whole share."""
    def grown() -> bool:
        nodes = many.io_nodes()
        return len(nodes) == count + len(real) and all(node["share"] == node["weight"] for node in nodes)

    until(f"{count} I/O nodes and the real ones", grown, 90)
    names = {node["name"] for node in many.io_nodes()}
    check("the query node knows the pods by their names", names == set(many.pods("io")) | set(real), len(names))


def zones(many: Release, zone_of: dict[str, str]) -> None:
    found = {node["name"]: node["zone"] for node in many.io_nodes()}
    on = {name: zone_of[pod["spec"]["nodeName"]] for name, pod in many.pods("io").items()}
    check("and their zones", on.items() <= found.items(), dict(Counter(on.values())))


def owners(many: Release) -> Owners:
    nodes = many.ask("placement", TABLE, "--chunks")[0]["nodes"]
    return {(run["fragment"], chunk): node["name"] for node in nodes for run in node["ranges"]
            for chunk in range(run["first"], run["first"] + run["count"])}


def evenly(owners: Owners, nodes: int) -> bool:
    """Returns whether every node owns less than four times the mean, and more than 95 % of the nodes own a chunk."""
    counts, mean = Counter(owners.values()), len(owners) / nodes
    return max(counts.values()) < 4 * mean and len(counts) > 0.95 * nodes


def moved(before: Owners, after: Owners, new: int, nodes: int) -> None:
    check("the chunks are the same", before.keys() == after.keys())
    gone = [chunk for chunk in before if before[chunk] != after[chunk]]
    share, expected = len(gone) / len(before), new / nodes
    say(f"   {len(gone)} of {len(before)} chunks moved: {share:.1%}; the new nodes' share is {expected:.1%}")
    check("the new nodes' share of chunks moved", abs(share - expected) < DEVIATION_MAX)
    check("they moved only to new nodes", not {after[chunk] for chunk in gone} & set(before.values()))


def answers(many: Release, real: dict) -> None:
    row = many.ask("get", store.TABLE, "n02503517", "--columns", store.KEY)[0]
    check("a row is found", row[store.KEY] == "n02503517")
    reachable = {node["name"] for node in many.io_nodes() if node["reachable"]}
    check("only the real I/O nodes answer", reachable == set(real))


def refused(many: Release, real: dict) -> None:
    """Adds a slice whose port has another protocol, and checks that the whole list is refused."""
    membership = lambda: many.ask("status", accept=(0, 4))[0]["membership"]
    before = {node["name"] for node in many.io_nodes()}
    put_slice(real, protocol="https")
    until("the list to be refused", lambda: membership()["refused_lists"] > 0, 20)
    error = membership()["error"]
    check("it is refused, and status says why", "speaks `https`" in (error or ""), error)
    check("the last list stays in use", {node["name"] for node in many.io_nodes()} == before)
    put_slice(real)
    until("the list to be taken again", lambda: not membership()["error"], 20)


def put_slice(real: dict, protocol: str | None = None) -> None:
    """Writes a slice by hand, beside those that Kubernetes makes, with the I/O nodes of the other release."""
    port = {"name": "grpc", "port": PORTS["io"]} | ({"appProtocol": protocol} if protocol else {})
    apply({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "ports": [port],
           "metadata": {"name": SLICE, "namespace": NAME, "labels": {"kubernetes.io/service-name": SERVICE}},
           "endpoints": [{"addresses": [address], "hostname": name,
                          "conditions": {"ready": True, "serving": True, "terminating": False}}
                         for name, address in real.items()]})
