"""A tier of hundreds: a Service whose endpoints are in several EndpointSlices, followed by a query node."""

from .. import store
from ..check import check, step
from ..cluster.addresses import PORTS
from ..cluster.manifest import apply
from ..layout import KUBECONFIG
from ..process import Background, run, until
from ..release import NAMESPACE, documents

SERVICE, PORT_NAME = "many-io", "grpc"
# On the host, beside the cluster's own.
QUERY = "127.0.0.1:27070"
IN_SLICE = 100
FEW, MANY = 200, 300
SETTINGS = {"BIREME_QUERY_CORES": "1", "BIREME_QUERY_SLOW_START": "1s", "BIREME_QUERY_MEMBER_HOLD": "3s"}


def many(release) -> None:
    step(f"a Service of {MANY} I/O nodes in {MANY // IN_SLICE} EndpointSlices")
    real = [pod["status"]["podIP"] for pod in release.pods("io").values()]
    apply({"apiVersion": "v1", "kind": "Service", "metadata": {"name": SERVICE, "namespace": NAMESPACE},
           "spec": {"clusterIP": "None", "ports": [{"name": PORT_NAME, "port": PORTS["io"]}]}})
    for number in range(FEW // IN_SLICE):
        put_slice(number, real)
    storage = [word for name, value in store.OPTIONS.items() for word in ("--storage", f"{name}={value}")]
    query = Background(
        "many-query", release.bireme, "query", "--listen", QUERY, "--table", f"{store.TABLE}={store.URI}", *storage,
        "--io-nodes-from", f"kubernetes:{NAMESPACE}/{SERVICE}:{PORT_NAME}",
        env={**store.SECRET, **SETTINGS, "KUBECONFIG": str(KUBECONFIG)},
    )
    try:
        counted(release, FEW)
        answers(release)
        put_slice(FEW // IN_SLICE, real)
        counted(release, MANY)
        check("the real ones answer", len([it for it in nodes(release) if it["reachable"]]) == len(real))
        answers(release)
        refused(release)
        release.kubectl("delete", "endpointslice", slice_name(FEW // IN_SLICE))
        # They keep their chunks for `member_hold`.
        counted(release, FEW)
        answers(release)
    finally:
        query.stop()
    release.kubectl("delete", "service", SERVICE)
    release.kubectl("delete", "endpointslices", "-l", f"kubernetes.io/service-name={SERVICE}")


def refused(release) -> None:
    """A slice that says that its port is another's protocol: the list is refused as a whole."""
    put_slice(FEW // IN_SLICE, [], protocol="https")
    until("the list to be refused", lambda: membership(release)["refused_lists"] > 0, 20)
    found = membership(release)
    check("it is refused, and status says why", "speaks `https`" in (found["error"] or ""), found["error"])
    check("the last list stays in use", len(nodes(release)) == MANY)
    put_slice(FEW // IN_SLICE, [])
    until("the list to be taken again", lambda: not membership(release)["error"], 20)


def counted(release, count: int) -> None:
    until(f"{count} I/O nodes", lambda: len(nodes(release)) == count, 40)
    check(f"{count} I/O nodes are listed", len({it["name"] for it in nodes(release)}) == count)


def answers(release) -> None:
    row = ask(release, "get", store.TABLE, "n02503517", "--columns", store.KEY)[0]
    check("a row is found", row[store.KEY] == "n02503517")


def nodes(release) -> list[dict]:
    return ask(release, "status")[0]["io_nodes"]


def membership(release) -> dict:
    return ask(release, "status")[0]["membership"]


def ask(release, *words) -> list[dict]:
    # 4 while an I/O node does not answer, and nearly all are nobody.
    return documents(run(release.bireme, *words, "--endpoint", f"http://{QUERY}", "--json", accept=(0, 4)))


def put_slice(number: int, real: list[str], protocol: str | None = None) -> None:
    """A slice of endpoints that nobody is at, but for the real ones, which are the first of all."""
    first = number * IN_SLICE
    addresses = [real[it] if it < len(real) else nobody(it) for it in range(first, first + IN_SLICE)]
    port = {"name": PORT_NAME, "port": PORTS["io"]} | ({"appProtocol": protocol} if protocol else {})
    metadata = {"name": slice_name(number), "namespace": NAMESPACE, "labels": {"kubernetes.io/service-name": SERVICE}}
    apply({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata, "addressType": "IPv4",
           "ports": [port],
           "endpoints": [{"addresses": [address], "hostname": f"{SERVICE}-{first + at}",
                          "conditions": {"ready": True, "serving": True, "terminating": False}}
                         for at, address in enumerate(addresses)]})


def slice_name(number: int) -> str:
    return f"{SERVICE}-{number}"


def nobody(number: int) -> str:
    """An address of a node's pods, which are given out from the lowest on."""
    return f"10.202.{1 + number % 3}.{100 + number // 3}"
