"""Causes faults under load and checks what callers see."""

import time

from .. import store
from ..check import check, step
from ..cluster import control_plane, network
from ..load import Load
from ..process import Failed, kill, run, until
from .update import caches_are_warm


def killed(release) -> None:
    step("an I/O node killed by SIGKILL under load")
    release.warm()
    with Load(release, "search", 45):
        time.sleep(3)
        kill(release.pid("io", "bireme-io-0"))
        until("its restart", lambda: restarts(release, "bireme-io-0") == 1)
        release.settled("io", 2)
    check("its container was started again, in the same pod", restarts(release, "bireme-io-0") == 1)
    caches_are_warm(release)


def restarts(release, pod: str) -> int:
    return release.pods("io")[pod]["status"]["containerStatuses"][0]["restartCount"]


def api_server_away(release) -> None:
    step("the API server is away for a minute under load")
    server = release.cluster.processes["api_server"]
    before = containers(release)
    with Load(release, "search", 100):
        # Do not wait: the API server takes long to end its watches.
        server.stop(patience=1)
        check("the API server is away", not server.alive())
        time.sleep(60)
        server.start()
        control_plane.ready()
        until("the nodes", lambda: release.cluster.ready_nodes() == release.cluster.nodes, 180)
    release.settled("io", 2)
    release.settled("query", 2)
    check("no container was restarted", containers(release) == before)


def containers(release) -> set[str]:
    pods = [*release.pods("query").values(), *release.pods("io").values()]
    return {status["containerID"] for pod in pods for status in pod["status"]["containerStatuses"]}


def store_away(release) -> None:
    step("MinIO is away under load: cached rows are still served")
    release.warm()
    # This load brings the index's partitions into the query nodes' caches.
    with Load(release, "search", 10):
        pass
    before = table_rows(release)
    with Load(release, "search", 30):
        release.store.server.stop()
        time.sleep(20)
        check("MinIO is away", not release.store.server.alive())
    check("no I/O node asked the table for a row", table_rows(release) == before)
    release.store.server.start()
    until("the table", lambda: release.ask("get", store.TABLE, "n02503517"))


def table_rows(release) -> int:
    return sum(node["table_rows"] for node in release.io_nodes())


def node_cut_off(release) -> None:
    step("a node with an I/O node is cut off under load, and comes back")
    on = {pod["spec"]["nodeName"]: name for name, pod in release.pods("io").items()}
    # Callers connect to the first node, which must stay reachable. Query nodes must not run on the node that is cut
    # off.
    node = max(on)
    worker, elsewhere = release.cluster.worker(node), min(set(release.nodes()) - {node})
    check("callers connect to another node", worker.number != 1, node)
    release.upgrade(f'query.nodeSelector={{"kubernetes.io/hostname": "{elsewhere}"}}')
    release.settled("query", 2)
    release.warm()
    # Requests to the node that is cut off wait until the query nodes give up on it.
    with Load(release, "search", 90, stall=10):
        network.cut(worker.number)
        until("Kubernetes to notice", lambda: release.cluster.ready_nodes() == release.cluster.nodes - 1, 80)
        network.mend(worker.number)
        until("its return", lambda: release.cluster.ready_nodes() == release.cluster.nodes)
        release.settled("io", 2)
    check("the same pod serves again", on[node] in release.ready_pods("io"))
    release.upgrade()
    release.settled("query", 2)


def drained(release) -> None:
    step("nodes are drained: the budget lets one I/O node go at a time")
    on = nodes_of(release, "io")
    first, second = on["bireme-io-0"], on["bireme-io-1"]
    check("they are on different nodes", first != second)
    with Load(release, "search", 60):
        drain("io", first)
        # The pod's drive is on the drained node, so the pod waits for that node.
        check("bireme-io-0 waits", release.ready_pods("io") == ["bireme-io-1"])
        check("the second drain is refused", "disruption budget" in refusal("io", second))
        run("kubectl", "uncordon", first, second)
        release.settled("io", 2)


def query_tier_drained(release) -> None:
    step("nodes are drained: the budget lets one query node go at a time")
    (one, first), (other, second) = nodes_of(release, "query").items()
    check("they are on different nodes", first != second)
    # Meanwhile no node accepts a replacement pod.
    run("kubectl", "cordon", *release.nodes())
    with Load(release, "search", 60):
        drain("query", first)
        check("its replacement waits for a node", release.ready_pods("query") == [other])
        check("the second drain is refused", "disruption budget" in refusal("query", second))
        check("the other query node goes on", release.ready_pods("query") == [other])
        run("kubectl", "uncordon", *set(release.nodes()) - {second})
        release.settled("query", 2)
        # Once the replacement is ready, the budget allows the next eviction.
        drain("query", second)
        run("kubectl", "uncordon", second)
        release.settled("query", 2)
    check("both were moved", not {one, other} & set(release.pods("query")))


def nodes_of(release, tier: str) -> dict[str, str]:
    return {name: pod["spec"]["nodeName"] for name, pod in release.pods(tier).items()}


def drain(tier: str, node: str, seconds: int = 60) -> None:
    """Drains a node of one tier's pods."""
    run("kubectl", "drain", node, "--ignore-daemonsets", "--delete-emptydir-data",
        f"--pod-selector=app.kubernetes.io/component={tier}", f"--timeout={seconds}s")


def refusal(tier: str, node: str) -> str:
    """Tries to drain a node. Returns the error message, empty if it was drained."""
    try:
        drain(tier, node, 8)
        return ""
    except Failed as error:
        return str(error)
