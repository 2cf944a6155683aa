"""What breaks under load, and what callers see of it."""

import json
import time

from .. import store
from ..check import check, say, step
from ..cluster import control_plane, network
from ..load import Load
from ..process import Failed, kill, run, until
from .update import caches_are_warm


def killed(release) -> None:
    step("an I/O node killed by SIGKILL under load")
    release.warm()
    with Load(release, "search", 45):
        time.sleep(3)
        kill_container(release, "bireme-io-0", "io")
        until("its restart", lambda: restarts(release, "bireme-io-0") == 1)
        release.settled("io", 2)
    check("its container was started again, in the same pod", restarts(release, "bireme-io-0") == 1)
    caches_are_warm(release)


def kill_container(release, pod: str, container: str) -> None:
    found = release.pods("io")[pod]
    worker = release.cluster.worker(found["spec"]["nodeName"])
    own = next(c for c in found["status"]["containerStatuses"] if c["name"] == container)
    name = own["containerID"].removeprefix("containerd://")
    tasks = worker.ctr("tasks", "list").splitlines()
    kill(int(next(line.split()[1] for line in tasks if line.startswith(name))))


def restarts(release, pod: str) -> int:
    return release.pods("io")[pod]["status"]["containerStatuses"][0]["restartCount"]


def api_server_away(release) -> None:
    step("the API server is away for 15 s under load")
    server = release.cluster.processes["api_server"]
    before = containers(release)
    with Load(release, "search", 60):
        server.stop()
        time.sleep(15)
        try:
            run("kubectl", "get", "--raw", "/readyz", timeout=3)
            check("the API server is away", False)
        except Failed:
            check("the API server is away", True)
        server.start()
        control_plane.ready()
        until("the nodes", lambda: release.cluster.ready_nodes() == release.cluster.nodes)
    release.settled("io", 2)
    release.settled("query", 2)
    check("no container was restarted", containers(release) == before)


def containers(release) -> set[str]:
    pods = [*release.pods("query").values(), *release.pods("io").values()]
    return {status["containerID"] for pod in pods for status in pod["status"]["containerStatuses"]}


def store_away(release) -> None:
    step("MinIO is away under load: what is cached goes on")
    release.warm()
    # Query nodes have the index's partitions from then on.
    with Load(release, "search", 10):
        pass
    with Load(release, "search", 30):
        release.store.server.stop()
        time.sleep(20)
        check("MinIO is away", not release.store.server.alive())
        table_rows = sum(node["table_rows"] for node in release.io_nodes())
        say(f"   rows from the table since the I/O nodes started: {table_rows}")
    release.store.server.start()
    until("the table", lambda: release.ask("get", store.TABLE, "n02503517"))


def node_cut_off(release) -> None:
    step("a node with an I/O node is cut off under load, and comes back")
    release.warm()
    queries = {pod["spec"]["nodeName"] for pod in release.pods("query").values()}
    io = {pod["spec"]["nodeName"]: name for name, pod in release.pods("io").items()}
    alone = sorted(set(io) - queries)
    check("there is a node with an I/O node and no query node", alone, json.dumps(io))
    worker = release.cluster.worker(alone[0])
    with Load(release, "search", 90):
        network.cut(worker.number)
        until("Kubernetes to notice", lambda: release.cluster.ready_nodes() == release.cluster.nodes - 1, 80)
        network.mend(worker.number)
        until("its coming back", lambda: release.cluster.ready_nodes() == release.cluster.nodes)
        release.settled("io", 2)
    check("the same pod serves again", io[alone[0]] in release.ready_pods("io"))


def drained(release) -> None:
    step("nodes are drained: the budget lets one I/O node go at a time")
    on = {name: pod["spec"]["nodeName"] for name, pod in release.pods("io").items()}
    first, second = on["bireme-io-0"], on["bireme-io-1"]
    check("they are on different nodes", first != second)
    flags = ["--ignore-daemonsets", "--delete-emptydir-data", "--pod-selector=app.kubernetes.io/component=io"]
    with Load(release, "search", 60):
        run("kubectl", "drain", first, *flags, "--timeout=60s")
        # Its drive is on that node, so that it waits for it.
        check("bireme-io-0 waits", release.ready_pods("io") == ["bireme-io-1"])
        try:
            run("kubectl", "drain", second, *flags, "--timeout=8s")
            refused = ""
        except Failed as error:
            refused = str(error)
        check("the second drain is refused", "disruption budget" in refused)
        run("kubectl", "uncordon", first, second)
        release.settled("io", 2)
