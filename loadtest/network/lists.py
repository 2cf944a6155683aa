"""Gives invalid lists of I/O nodes to real query nodes: at their start, and in place of a valid list under load."""

import subprocess
import sys
import time

from tiers.fault import Refused
from tiers.members import entry

from . import load
from .audit import Audit
from .check import Checks, say
from .nodes import METRICS_PORT, PORT, REFRESH_SECONDS, TIMEOUT_SECONDS, Make, Nodes, address, io_name
from .table import NAME

IO = 2
RATE = 40
PATIENCE_SECONDS = 10
# The time for which a member that is not an I/O node is listed under load.
STRANGER_SECONDS = REFRESH_SECONDS + 8
STRANGER = "stranger-0"
# An address that no interface has.
NOBODY = "10.77.9.9"
REFUSED_AT_START = 2


def wrong_lists() -> dict[str, tuple[str, str]]:
    """Returns faulty lists, by their fault: the list's text, and a part of the expected error message."""
    first, second = (f"http://{address(io_name(it))}:{PORT}" for it in range(2))
    good = entry("io-0", first)
    return {
        "a name twice": (good + entry("io-0", second), "two I/O nodes are named `io-0`"),
        "an endpoint twice": (good + entry("io-1", first), "`io-0` and `io-1` are both at"),
        "weight 0": (good + entry("io-1", second, weight=0), "`io-1` has weight 0"),
        "weight -1": (good + entry("io-1", second, weight=-1), "`io-1` has weight -1"),
        "weight nan": (good + entry("io-1", second, weight="nan"), "`io-1` has weight NaN"),
        "weight inf": (good + entry("io-1", second, weight="inf"), "`io-1` has weight inf"),
        "no port": (good + entry("io-1", f"http://{address('io-1')}"), "names no port"),
        "port 0": (good + entry("io-1", f"http://{address('io-1')}:0"), "names no port"),
        "port 70000": (good + entry("io-1", f"http://{address('io-1')}:70000"), "is not an endpoint"),
        "another scheme": (good + entry("io-1", second.replace("http", "ftp")), "`ftp` is not spoken"),
        "an empty name": (good + entry("", second), "has an empty name"),
        "nobody": ("", "there is no I/O node"),
        "no TOML": ("io-0 10.77.1.1:7070\n", "io-nodes.toml:1"),
        "half of it": (good[: len(good) // 2], "io-nodes.toml:"),
        "an unknown key": (good + "wieght = 2\n", "unknown field `wieght`"),
        "bytes": ("\0\1\2\3", "io-nodes.toml:1"),
        "1,025 nodes": ("".join(entry(f"n{it}", f"http://h:{it + 1}") for it in range(1025)), "1025 I/O nodes are listed"),
    }


def strangers() -> dict[str, tuple[str, str]]:
    """Returns members that are not I/O nodes, by kind: an endpoint, and a part of the message of `bireme status`."""
    there = f"http://{address(STRANGER)}"
    return {
        "nobody listens": (f"{there}:{PORT + 1}", "Connection refused"),
        "nobody is there": (f"http://{NOBODY}:{PORT}", "can't be reached"),
        "the query node": (f"http://{address('query-0')}:{PORT}", "is a query node"),
        "an I/O node's metrics": (f"http://{address('io-0')}:{METRICS_PORT}", "no gRPC"),
        "http": (f"{there}:{PORT}", "no gRPC"),
        "silent": (f"{there}:{PORT}", "can't be reached"),
        "babbling": (f"{there}:{PORT}", "no gRPC"),
        "hanging-up": (f"{there}:{PORT}", "broke off"),
    }


def measure(make: Make, checks: Checks) -> dict:
    """Tries all lists and strangers one after another on the same query node."""
    with make() as nodes:
        nodes.up(IO, 1)
        nodes.network.attach(STRANGER, address(STRANGER))
        try:
            at_start = _at_start(nodes, checks)
            refused = _refused(nodes, checks)
            met = [_stranger(nodes, checks, name, *it) for name, it in strangers().items()]
            met.append(_later_revision(nodes, checks))
        finally:
            nodes.network.detach(STRANGER)
    return {"at_start": at_start, "refused": refused, "strangers": met}


def _at_start(nodes: Nodes, checks: Checks) -> list[dict]:
    say("invalid lists at the start")
    found = []
    lists = wrong_lists()
    for name, (text, expected) in lists.items():
        file = nodes.folder / "wrong" / "io-nodes.toml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        command = [*nodes.network.inside(STRANGER), str(nodes.binary), "query", "--io-nodes-from", f"file:{file}"]
        try:
            done = subprocess.run([*command, "--table", f"{NAME}={nodes.table}"], capture_output=True, text=True, timeout=10)
            code, said = done.returncode, done.stderr.strip().splitlines()[-1]
        except subprocess.TimeoutExpired:
            code, said = None, "it started"
        said = said.replace(str(file), file.name)
        checks.check(f"{name}: it refuses to start", code == REFUSED_AT_START and expected in said, said)
        found.append({"list": name, "exit_code": code, "said": said})
    return found


def _refused(nodes: Nodes, checks: Checks) -> list[dict]:
    say("invalid lists in place of a valid one under load")
    good, lists = nodes.list_file.read_text(), wrong_lists()
    found = []
    log = nodes.running["query-0"].log
    before = nodes.status()
    with Audit(nodes) as audit:
        callers = load.Load(nodes, load.TAKE, 2 * (REFRESH_SECONDS + 1) * (len(lists) + 1), rate=RATE)
        for name, (text, expected) in lists.items():
            logged = log.stat().st_size
            refused = nodes.status()["membership"]["refused_lists"]
            nodes.write_list(text)
            status = _until(nodes, lambda it: it["membership"]["refused_lists"] > refused)
            said = (status["membership"]["error"] or "").replace(str(nodes.folder) + "/", "")
            line = log.read_text()[logged:].replace(str(nodes.folder) + "/", "")
            checks.check(f"{name}: it is refused, and status says why", expected in said, said)
            checks.check(f"{name}: the log says so", "the list of I/O nodes is refused" in line and expected in line)
            checks.check(f"{name}: the last list stays in use", _members(status) == _members(before))
            found.append({"list": name, "said": said})
            nodes.write_list(good)
            _until(nodes, lambda it: not it["membership"]["error"])
        # A list that cannot be read counts as a failure, not as refused.
        failures = nodes.status()["membership"]["failures"]
        nodes.list_file.rename(nodes.list_file.with_suffix(".away"))
        status = _until(nodes, lambda it: it["membership"]["failures"] > failures)
        checks.check("no file: the last list stays in use, and status says why", _members(status) == _members(before),
                     status["membership"]["error"].replace(str(nodes.folder) + "/", ""))  # fmt: skip
        nodes.write_list(good)
        _until(nodes, lambda it: not it["membership"]["error"])
        run = callers.end()
    text = nodes.text_output("status")
    checks.check("`bireme status` counts them", f"{len(lists)} lists refused, 1 failure" in text,
                 text.splitlines()[2].replace(str(nodes.folder) + "/", ""))  # fmt: skip
    checks.check("no request failed during these lists", not run["failed"] + run["unstarted"] and not audit.failures, run["requests"])
    checks.check("no row came from the table during these lists", nodes.status()["fallback_rows"] == before["fallback_rows"])
    checks.check("no row was wrong", audit.rows and not audit.wrong, f"{audit.rows:,} rows compared")
    return found


def _stranger(nodes: Nodes, checks: Checks, name: str, endpoint: str, expected: str) -> dict:
    say(f"a member that is not an I/O node: {name}")
    server = None
    if name in ["http", "silent", "babbling", "hanging-up"]:
        server = _serve(nodes, name)
    try:
        found = _met(nodes, checks, name, endpoint)
    finally:
        if server:
            server.kill()
            server.wait()
    checks.check(f"{name}: status says what is wrong", found["said"] and expected in found["said"], found["said"])
    checks.check(f"{name}: its rows come from the table", found["fallback_rows"] > 0, f"{found['fallback_rows']} rows")
    return found


def _later_revision(nodes: Nodes, checks: Checks) -> dict:
    say("an I/O node of a later revision of the protocol")
    server = _serve(nodes, "later", f"{address('io-1')}:{PORT}", "io-1")
    try:
        found = _met(nodes, checks, "an I/O node of a later revision", f"http://{address(STRANGER)}:{PORT}")
    finally:
        server.kill()
        output, _ = server.communicate()
    checks.check("a later revision: its streams announced it", output.count("changed") > 0, output.count("changed"))
    checks.check("a later revision: it is used like any other", not found["said"] and not found["fallback_rows"],
                 found["said"] or f"{found['fallback_rows']} rows from the tables")  # fmt: skip
    return found


def _met(nodes: Nodes, checks: Checks, name: str, endpoint: str) -> dict:
    """Lists one more member under load. Returns the load's results and the member's state towards the end."""
    good = nodes.list_file.read_text()
    before = nodes.status()["fallback_rows"]
    with Audit(nodes) as audit:
        callers = load.Load(nodes, load.TAKE, STRANGER_SECONDS, rate=RATE)
        nodes.write_list(good + entry("stranger", endpoint))
        time.sleep(STRANGER_SECONDS - 3)
        status = nodes.status()
        member = next(it for it in status["io_nodes"] if it["name"] == "stranger")
        text = nodes.text_output("status")
        run = callers.end()
    rows = nodes.status()["fallback_rows"] - before
    nodes.write_list(good)
    nodes.settled(IO)
    failed = run["failed"] + run["unstarted"] + len(audit.failures)
    checks.check(f"{name}: no request failed", not failed, (run["faults"] + audit.failures or [run["requests"]])[0])
    checks.check(f"{name}: no row was wrong or missing", audit.rows and not audit.wrong + run["missing_rows"])
    checks.check(f"{name}: the slowest answer is within the deadline", run["max_ms"] < TIMEOUT_SECONDS * 1e3,
                 f"{run['max_ms']:.0f} ms")  # fmt: skip
    said = member["error"] or ""
    checks.check(f"{name}: `bireme status` shows it", not said or f"{endpoint} does not answer" in text)
    return run | {"stranger": name, "said": said, "state": member["state"], "fallback_rows": rows}


def _serve(nodes: Nodes, *words: str) -> subprocess.Popen:
    command = [*nodes.network.inside(STRANGER), sys.executable, "-m", f"{__package__}.strangers", *words]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True)
    time.sleep(1)
    if server.poll() is not None:
        raise Refused(f"the server in place of an I/O node did not start: {' '.join(words)}")
    return server


def _members(status: dict) -> tuple:
    return status["membership"]["generation"], [(it["name"], it["endpoint"], it["share"]) for it in status["io_nodes"]]


def _until(nodes: Nodes, holds: object) -> dict:
    """Returns the status once it `holds`, or after `PATIENCE_SECONDS`."""
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        status = nodes.status()
        if holds(status) or time.monotonic() > until:
            return status
        time.sleep(0.1)
