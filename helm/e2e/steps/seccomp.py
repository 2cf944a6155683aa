"""io_uring inside containers: forbidden by default, and what the chart's profile allows."""

import json

from ..check import check, step
from ..cluster.worker import PROFILES
from ..layout import CHART
from ..process import until

IO_URING = {"io_uring_setup", "io_uring_enter", "io_uring_register"}


def fallback(release) -> None:
    step("without the profile: I/O nodes read with pread, and say so")
    check("both read with pread", engines(release) == ["pread", "pread"])
    log = release.kubectl("logs", "bireme-io-0")
    reason = next((line for line in log.splitlines() if "forbids io_uring" in line), "")
    check("the log says why", reason, reason[-160:])
    ours = json.loads((CHART / "seccomp" / "io-uring.json").read_text())
    default = runtime_default(release)
    check("the profile is the runtime's default and io_uring's calls", allowed(ours) - allowed(default) == IO_URING
          and allowed(default) <= allowed(ours))


def engines(release) -> list[str]:
    return [node["engine"] for node in release.io_nodes()]


def runtime_default(release) -> dict:
    """What the runtime made of RuntimeDefault, as the container has it."""
    worker, name = release.container("io", "bireme-io-0")
    return json.loads(worker.ctr("containers", "info", name))["Spec"]["linux"]["seccomp"]


def allowed(profile: dict) -> set[str]:
    return {name for rule in profile["syscalls"] if rule["action"] == "SCMP_ACT_ALLOW" for name in rule["names"]}


def in_force(release) -> None:
    step("with the profile, put on the nodes by the installer: I/O nodes use io_uring")
    release.upgrade('io.seccomp="Localhost"', "seccompInstaller.enabled=true")
    release.rollout("io")
    release.settled("io", 2)
    check("the profile is on the nodes", list((PROFILES / "seccomp" / "bireme").glob("io-uring-*.json")))
    until("io_uring", lambda: all(engine.startswith("io_uring") for engine in engines(release)))
    for engine in engines(release):
        check("io_uring", engine.startswith("io_uring"), engine)
    check("a filter is in force", seccomp_mode(release) == "2", "Seccomp: 2")
    release.upgrade()
    release.rollout("io")
    release.settled("io", 2)


def seccomp_mode(release) -> str:
    with open(f"/proc/{release.pid('io', 'bireme-io-0')}/status") as status:
        return next(line.split()[1] for line in status if line.startswith("Seccomp:"))
