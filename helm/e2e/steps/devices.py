"""Tests a pod with two drives, a raw device and a folder of the node, and with exclusive CPUs."""

import json
import os
import re
from pathlib import Path

from .. import drives, store
from ..check import check, step
from ..cluster.worker import Worker
from ..layout import CHART, STATE
from ..process import run, until
from ..release import VALUES
from .metrics import pod_metrics

NAME = NAMESPACE = "devices"
POD = f"{NAME}-bireme-io-0"
# The drives' names in metrics.
RAW, FOLDER = "0:raw", "1:slab"
NOBODY = 65532


def raw_and_pinned(release) -> None:
    step("a raw device and a folder in one pod, whose thread has a CPU of its own")
    worker = free_node(release)
    drives.make_raw(worker.name)
    folder = STATE / "drives" / f"{worker.name}-folder"
    folder.mkdir()
    os.chown(folder, NOBODY, NOBODY)
    install(release, worker, folder)
    ask(release, "warm", store.TABLE)
    rows = json.loads(ask(release, "search", store.TABLE, "--like", "n02503517", "-k", "5", "--json").splitlines()[0])
    check("a search goes through both tiers", rows[store.KEY] == "n02503517")
    check("both drives hold a part of the cache", all(used(drive) > 0 for drive in (RAW, FOLDER)),
          {drive: used(drive) for drive in (RAW, FOLDER)})
    pinned(release, worker)
    restarted(release)
    run("helm", "uninstall", NAME, "-n", NAMESPACE, "--wait", timeout=120)
    run("kubectl", "delete", "namespace", NAMESPACE)
    release.upgrade()
    release.settled("query", 2)


def free_node(release) -> Worker:
    """Returns a node without a pod of the release, so that a pod can request its only CPU."""
    on = {pod["spec"]["nodeName"] for pod in release.pods("io").values()}
    release.upgrade(f'query.nodeSelector={{"kubernetes.io/hostname": "{min(on)}"}}')
    release.settled("query", 2)
    return next(worker for worker in release.cluster.workers if worker.name not in on)


def install(release, worker: Worker, folder: Path) -> None:
    run("kubectl", "create", "namespace", NAMESPACE)
    literals = [f"--from-literal={name}={value}" for name, value in store.SECRET.items()]
    run("kubectl", "-n", NAMESPACE, "create", "secret", "generic", "store", *literals)
    whole = {"cpu": 1, "memory": "1Gi"}
    elsewhere = next(it.name for it in release.cluster.workers if it.name != worker.name)
    values = json.loads(release.values().read_text())
    values["query"] = {"replicas": 1, "nodeSelector": {"kubernetes.io/hostname": elsewhere}}
    values["io"] = {
        "replicas": 1,
        "pinned": True,
        "resources": {"requests": whole, "limits": whole},
        "antiAffinity": "hard",
        "nodeSelector": {"kubernetes.io/hostname": worker.name},
        "drives": [
            {"name": "raw", "claim": {"storage": "512Mi", "storageClassName": drives.CLASS, "block": True}},
            {"name": "folder", "size": "256MiB", "hostPath": str(folder)},
        ],
    }
    file = STATE / "devices.json"
    file.write_text(json.dumps(values))
    run("helm", "install", NAME, CHART, "-n", NAMESPACE, "-f", VALUES, "-f", file, "--wait", "--timeout", "180s",
        timeout=200)


def pinned(release, worker: Worker) -> None:
    status = pod()["status"]
    check("the pod's class is Guaranteed", status["qosClass"] == "Guaranteed")
    pid = pid_on(worker, status)
    everywhere = allowed(release.pid("io", "bireme-io-0"))
    check("the kubelet gave it a CPU of its own", allowed(pid) != everywhere and allowed(pid).isdecimal(),
          f"CPU {allowed(pid)}, where others have {everywhere}")
    threads = [task for task in Path(f"/proc/{pid}/task").iterdir()
               if re.fullmatch(r"bireme-io-\d+", (task / "comm").read_text().strip())]
    check("it has a thread for each of its CPUs", len(threads) == 1)
    check("the thread keeps to its CPU", allowed(f"{pid}/task/{threads[0].name}") == allowed(pid))


def restarted(release) -> None:
    """Checks that a replaced pod finds the cache of both drives again."""
    before = {drive: used(drive) for drive in (RAW, FOLDER)}
    old = pod()["metadata"]["uid"]
    run("kubectl", "-n", NAMESPACE, "delete", "pod", POD, "--wait=true", timeout=60)
    until("the pod", lambda: pod()["metadata"]["uid"] != old and ready(), 90)
    check("the next pod finds both drives' cache again", {drive: used(drive) for drive in (RAW, FOLDER)} == before)
    ask(release, "search", store.TABLE, "--like", "n02503517", "-k", "5")


def pod(name: str = POD) -> dict:
    return json.loads(run("kubectl", "-n", NAMESPACE, "get", "pod", name, "-o", "json"))


def ready() -> bool:
    return any(it["type"] == "Ready" and it["status"] == "True" for it in pod()["status"].get("conditions", []))


def ask(release, *words) -> str:
    """Runs the binary against the query node, at its pod's address."""
    address = run("kubectl", "-n", NAMESPACE, "get", "pods", "-l", "app.kubernetes.io/component=query",
                  "-o", "jsonpath={.items[0].status.podIP}")
    return run(release.bireme, *words, "--endpoint", f"http://{address}:7070", timeout=120)


def used(drive: str) -> int:
    text = pod_metrics(POD, NAMESPACE)
    found = re.search(rf'^bireme_io_drive_usage_bytes{{[^}}]*drive="{re.escape(drive)}"[^}}]*}} (\S+)$', text, re.M)
    return int(float(found.group(1))) if found else 0


def pid_on(worker: Worker, status: dict) -> int:
    own = status["containerStatuses"][0]["containerID"].removeprefix("containerd://")
    tasks = worker.ctr("tasks", "list").splitlines()
    return int(next(line.split()[1] for line in tasks if line.startswith(own)))


def allowed(process) -> str:
    """Returns the CPUs on which a process or a thread may run."""
    with open(f"/proc/{process}/status") as status:
        return next(line.split()[1] for line in status if line.startswith("Cpus_allowed_list:"))
