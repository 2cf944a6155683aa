"""A control group a node, below which its kubelet puts the pods'. Both hierarchies of Linux."""

from pathlib import Path

from .addresses import node_name

ROOT = Path("/sys/fs/cgroup")
CONTROLLERS = ["cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "systemd"]


def unified() -> bool:
    return (ROOT / "cgroup.controllers").exists()


def groups(number: int) -> list[Path]:
    name = node_name(number)
    return [ROOT / name] if unified() else [ROOT / controller / name for controller in CONTROLLERS]


def make(number: int) -> None:
    if unified():
        enabled = " ".join(f"+{name}" for name in (ROOT / "cgroup.controllers").read_text().split())
        (ROOT / "cgroup.subtree_control").write_text(enabled)
    for group in groups(number):
        group.mkdir(exist_ok=True)
        if group.parent.name == "cpuset":
            for file in ["cpuset.cpus", "cpuset.mems"]:
                (group / file).write_text((group.parent / file).read_text())


def remove(number: int) -> None:
    for group in groups(number):
        for folder in sorted(group.glob("**/"), reverse=True):
            try:
                folder.rmdir()
            except OSError:
                pass  # something is still in it
