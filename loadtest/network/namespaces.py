"""Builds a network on one machine: a bridge in a namespace, and for each node a namespace with a link to the bridge.

The host's own network is not changed: the bridge has a namespace of its own. Namespaces are named after this process,
so that runs do not collide, and a run removes those of processes that no longer exist.
"""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tiers.fault import Refused

from .check import say

PREFIX = "bireme-lab"
FOLDER = Path("/run/netns")
SWITCH = "switch"
TUN = Path("/dev/net/tun")
# A flag of setns(2).
CLONE_NEWNET = 0x40000000


def ip(*words: object) -> str:
    """Runs `ip` and returns its output. Raises `Refused` if it fails."""
    return _run("ip", *words)


def _run(*words: object) -> str:
    command = [str(word) for word in words]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise Refused(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def enter(namespace: str) -> None:
    """Moves this thread into the namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    handle = os.open(FOLDER / namespace, os.O_RDONLY)
    try:
        if libc.setns(handle, CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"setns {namespace}")
    finally:
        os.close(handle)


def in_namespace(namespace: str, work: Callable[[], object]) -> threading.Thread:
    """Runs `work` in a new thread that sees the namespace's network."""

    def entered() -> None:
        enter(namespace)
        work()

    thread = threading.Thread(target=entered, daemon=True)
    thread.start()
    return thread


class Network:
    """`with Network() as network: …`; its namespaces and processes are removed at the end."""

    def __init__(self) -> None:
        self.run = f"{PREFIX}-{os.getpid()}"
        self.relays: dict[str, subprocess.Popen] = {}

    def __enter__(self) -> "Network":
        if os.geteuid() != 0:
            raise Refused("network namespaces need root: run as root")
        try:
            _remove_remains()
            ip("netns", "add", self.namespace(SWITCH))
            self._switch("link", "add", "bridge0", "type", "bridge")
            self._switch("link", "set", "bridge0", "up")
            self.slows_by = "netem" if self._has_netem() else "relay" if TUN.exists() else None
        except (Refused, OSError) as problem:
            self.__exit__()
            raise Refused(f"network namespaces cannot be made here: {problem}") from None
        return self

    def __exit__(self, *_: object) -> None:
        _remove(self.run)

    def namespace(self, name: str) -> str:
        """Returns the name of a node's namespace."""
        return f"{self.run}-{name}"

    def inside(self, name: str) -> list[str]:
        """Returns the start of a command line that runs a command in the node's namespace."""
        return ["nsenter", f"--net={FOLDER / self.namespace(name)}"]

    def attach(self, name: str, address: str, *others: str, relayed: bool = False) -> None:
        """Makes a namespace with addresses and a link to the switch."""
        namespace = self.namespace(name)
        ip("netns", "add", namespace)
        if relayed:
            self._switch("tuntap", "add", "dev", name, "mode", "tap")
            ip("-n", namespace, "tuntap", "add", "dev", "eth0", "mode", "tap")
            self._relay(name)
        else:
            self._switch("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        self._switch("link", "set", name, "master", "bridge0", "up")
        ip("-n", namespace, "link", "set", "lo", "up")
        for each in [address, *others]:
            ip("-n", namespace, "address", "add", f"{each}/16", "dev", "eth0")
        ip("-n", namespace, "link", "set", "eth0", "up")

    def detach(self, name: str) -> None:
        """Removes a node's namespace and ends all processes in it."""
        relay = self.relays.pop(name, None)
        if relay:
            relay.kill()
            relay.wait()
        # This deletes both ends at once; deleting the namespace alone removes its link with a delay.
        self._switch("link", "delete", name)
        _remove(self.namespace(name), whole=True)

    def cut(self, name: str) -> None:
        """Takes the node's link down. Open connections get no notice."""
        self._switch("link", "set", name, "down")

    def mend(self, name: str) -> None:
        """Takes the node's link up again."""
        self._switch("link", "set", name, "up")

    def slow(self, name: str, delay_ms: float, jitter_ms: float, loss: float) -> None:
        """Delays and loses frames on the node's link, in each direction."""
        if name in self.relays:
            self._set_relay(name, delay_ms, jitter_ms, loss)
            return
        words = ["root", "netem", "delay", f"{delay_ms}ms", f"{jitter_ms}ms", "loss", f"{loss * 100}%"]
        for namespace, device in self._ends(name):
            _run("tc", "-n", namespace, "qdisc", "replace", "dev", device, *words)

    def restore_speed(self, name: str) -> None:
        """Ends the delay and loss of `slow`."""
        if name in self.relays:
            self._set_relay(name, 0, 0, 0)
            return
        for namespace, device in self._ends(name):
            _run("tc", "-n", namespace, "qdisc", "delete", "dev", device, "root")

    def _ends(self, name: str) -> list[tuple[str, str]]:
        return [(self.namespace(SWITCH), name), (self.namespace(name), "eth0")]

    def _switch(self, *words: object) -> None:
        ip("-n", self.namespace(SWITCH), *words)

    def _has_netem(self) -> bool:
        switch = self.namespace(SWITCH)
        try:
            _run("tc", "-n", switch, "qdisc", "add", "dev", "bridge0", "root", "netem", "delay", "1ms")
        except (Refused, FileNotFoundError):
            return False
        _run("tc", "-n", switch, "qdisc", "delete", "dev", "bridge0", "root")
        return True

    def _relay(self, name: str) -> None:
        ends = [self.namespace(SWITCH), name, self.namespace(name), "eth0"]
        command = [sys.executable, "-m", f"{__package__}.relay", *ends]
        relay = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
        self.relays[name] = relay
        if relay.stdout.readline() != "ready\n":
            raise Refused("the relay did not start")

    def _set_relay(self, name: str, *words: float) -> None:
        relay = self.relays[name]
        relay.stdin.write(" ".join(map(str, words)) + "\n")
        relay.stdin.flush()
        # The relay confirms each line.
        relay.stdout.readline()


def _names() -> list[str]:
    return sorted(it.name for it in FOLDER.iterdir()) if FOLDER.exists() else []


def _remove_remains() -> None:
    for name in _names():
        process = name.removeprefix(f"{PREFIX}-").split("-")[0]
        if name.startswith(f"{PREFIX}-") and process.isdigit() and not Path(f"/proc/{process}").exists():
            say(f"removing {name}, which a run left behind")
            _remove(name, whole=True)


def _remove(prefix: str, whole: bool = False) -> None:
    """Removes the namespace named `prefix` and, unless `whole` is set, those whose names begin with `prefix-`. Kills
    all processes in them first."""
    found = [it for it in _names() if it == prefix or (not whole and it.startswith(f"{prefix}-"))]
    for name in found:
        for _ in range(50):
            processes = ip("netns", "pids", name).split()
            # Threads of this process in the namespace end by themselves.
            others = [int(it) for it in processes if int(it) != os.getpid()]
            for process in others:
                try:
                    os.kill(process, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            if not others:
                break
            time.sleep(0.1)
        ip("netns", "delete", name)
