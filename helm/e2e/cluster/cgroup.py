"""Makes a control group for each node, below which the node's kubelet puts the groups of pods. Supports cgroup v1 and
v2."""

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


def lacking(number: int, controllers: set[str]) -> str:
    """Returns the controllers that the node's group does not have, separated by commas."""
    if unified():
        has = set((groups(number)[0] / "cgroup.controllers").read_text().split())
    else:
        has = {group.parent.name for group in groups(number)}
    return ", ".join(sorted(controllers - has))


def remove(number: int) -> None:
    for group in groups(number):
        for folder in sorted(group.glob("**/"), reverse=True):
            try:
                folder.rmdir()
            except OSError:
                pass  # it is not empty


def memory(process: int) -> tuple[int, int]:
    """Returns the peak memory of the process's group, in bytes, and its limit."""
    lines = [line.split(":", 2) for line in Path(f"/proc/{process}/cgroup").read_text().splitlines()]
    if unified():
        group, peak, limit = ROOT / lines[0][2].lstrip("/"), "memory.peak", "memory.max"
    else:
        path = next(path for _, controllers, path in lines if "memory" in controllers.split(","))
        group, peak, limit = ROOT / "memory" / path.lstrip("/"), "memory.max_usage_in_bytes", "memory.limit_in_bytes"
    return int((group / peak).read_text()), int((group / limit).read_text())
