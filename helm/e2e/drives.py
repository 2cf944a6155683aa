"""Makes local PersistentVolumes, as a provisioner does for a node's drives: two folders per node, and on request a raw
device."""

from .cluster.cluster import Cluster
from .cluster.manifest import apply
from .layout import STATE
from .process import run

CLASS = "local-nvme"
PER_NODE = 2


def make(cluster: Cluster) -> None:
    apply({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": CLASS},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    })
    for worker in cluster.workers:
        for number in range(PER_NODE):
            name = f"{worker.name}-nvme{number}"
            folder = STATE / "drives" / name
            folder.mkdir(parents=True)
            apply(volume(name, worker.name, folder))


def make_raw(node: str) -> None:
    """Makes a volume of a loop device, which stands for a drive and is detached when the run ends."""
    name = f"{node}-raw"
    file = STATE / "drives" / f"{name}.img"
    with open(file, "wb") as image:
        image.truncate(512 << 20)
    device = run("losetup", "--find", "--show", file).strip()
    found = volume(name, node, device)
    found["spec"]["volumeMode"] = "Block"
    apply(found)


def volume(name: str, node: str, folder) -> dict:
    on_node = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "512Mi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": CLASS,
            "local": {"path": str(folder)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [on_node]}]}},
        },
    }
