"""Tests io_uring in containers: forbidden by default, allowed by the chart's profile."""

import json

from ..check import check, step
from ..cluster.worker import PROFILES
from ..layout import CHART
from ..load import Load
from ..process import until
from .metrics import pod_metrics, total

IO_URING = {"io_uring_setup", "io_uring_enter", "io_uring_register"}
# A quarter of the default, so 2 MiB of buffers per core: all nodes are on one machine and share the user's limit of
# locked memory.
SLOTS = 64
BUFFERS = SLOTS * 32 << 10


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
    """Returns the container's profile, which the runtime made for RuntimeDefault."""
    worker, name = release.container("io", "bireme-io-0")
    return json.loads(worker.ctr("containers", "info", name))["Spec"]["linux"]["seccomp"]


def allowed(profile: dict) -> set[str]:
    return {name for rule in profile["syscalls"] if rule["action"] == "SCMP_ACT_ALLOW" for name in rule["names"]}


def in_force(release) -> None:
    step("with the profile, put on the nodes by the installer: I/O nodes use io_uring")
    release.upgrade('io.seccomp="Localhost"', "seccompInstaller.enabled=true", f"io.settings.slots={SLOTS}")
    release.rollout("io")
    release.settled("io", 2)
    check("the profile is on the nodes", list((PROFILES / "seccomp" / "bireme").glob("io-uring-*.json")))
    until("io_uring", lambda: all(engine.startswith("io_uring") for engine in engines(release)))
    for engine in engines(release):
        check("io_uring", engine.startswith("io_uring"), engine)
    check("a filter is in force", seccomp_mode(release) == "2", "Seccomp: 2")
    serves_by_rings(release)
    for pod in release.ready_pods("io"):
        nothing_unregistered(release, pod)
    release.upgrade()
    release.rollout("io")
    release.settled("io", 2)


def serves_by_rings(release) -> None:
    """Checks that io_uring reads the rows: each node's rings get reads under load, and no row comes from the table."""
    release.warm()
    before = ring_reads(release)
    tables = sum(node["table_rows"] for node in release.io_nodes())
    with Load(release, "search", 8):
        pass
    for pod, reads in ring_reads(release).items():
        check(f"{pod}: rings were given reads", reads > before[pod], f"{reads - before[pod]:.0f}")
    check("no row came from the table", sum(node["table_rows"] for node in release.io_nodes()) == tables)
    check("they still use it", all(engine.startswith("io_uring") for engine in engines(release)))


def ring_reads(release) -> dict[str, float]:
    texts = {pod: pod_metrics(pod) for pod in release.ready_pods("io")}
    return {pod: total(text, "bireme_io_ring_reads_total") for pod, text in texts.items()}


def nothing_unregistered(release, pod: str) -> None:
    """Checks that files are registered. If enough memory may be locked, checks that buffers are registered too;
    otherwise, that the log names the limit."""
    log = release.kubectl("logs", pod).splitlines()
    said = next((line for line in log if "I/O node serves" in line), "")
    with open(f"/proc/{release.pid('io', pod)}/limits") as limits:
        lockable = next(line.split()[3] for line in limits if line.startswith("Max locked memory"))
    check(f"{pod}: files are registered", "registered files" in said, said.split("engine")[-1])
    if lockable == "unlimited" or int(lockable) >= BUFFERS * len(release.ready_pods("io")):
        check(f"{pod}: buffers are registered", "registered buffers" in said, f"{lockable} bytes may be locked")
    else:
        check(f"{pod}: buffers are not registered, and the log names the limit", "RLIMIT_MEMLOCK" in said, f"{lockable} bytes")


def seccomp_mode(release) -> str:
    with open(f"/proc/{release.pid('io', 'bireme-io-0')}/status") as status:
        return next(line.split()[1] for line in status if line.startswith("Seccomp:"))
