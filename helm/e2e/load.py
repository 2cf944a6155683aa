"""Runs k6 from outside the cluster while a step changes it."""

import json
import os
import subprocess
import time

from . import store
from .check import CheckFailed, check, say
from .cluster.addresses import PORTS
from .layout import LOGS, ROOT, STATE
from .process import PATIENCE, Background, run, until
from .release import Release

SCRIPTS = ROOT / "loadtest" / "k6"
# The port of k6's API, which shows its progress and stops it.
PORT = 26565
CONTROL = f"http://127.0.0.1:{PORT}/v1"
STOP = {"data": {"type": "status", "id": "default", "attributes": {"stopped": True}}}
# The duration given to k6. It is longer than any step, and each step stops k6 when it ends.
LONGEST = "2h"
RATE = int(os.environ.get("RATE", "20"))


class Load:
    """`with Load(release, "search"): …` puts load on the release during the block, and for at least `seconds`. At the
    end, it fails if more than `failed_max` requests failed, or one could not start in time. Requests that are still
    unanswered then do not count. There are enough callers to start requests in time while no answer comes for `stall`
    seconds, times `PATIENCE`. With `overload`, requests that are refused or start late are only reported. With
    `callers`, that many callers repeat their request as soon as it is answered, instead of a fixed rate."""

    def __init__(self, release: Release, scenario: str, seconds: float = 0, failed_max: int = 0, rate: int = RATE,
                 stall: float = 5, overload: bool = False, callers: int = 0):
        self.seconds, self.failed_max, self.overload = seconds, failed_max, overload
        executor = "closed" if callers else "constant"
        self.script = SCRIPTS / ("ceiling.js" if callers else "bireme.js")
        self.output = LOGS / f"load-{time.monotonic_ns()}"
        self.report = self.output / f"{scenario}-{executor}.json"
        io = [f"{pod['status']['podIP']}:{PORTS['io']}" for pod in release.pods("io").values()]
        self.settings = {
            "SCENARIO": scenario, "EXECUTOR": executor, "DURATION": LONGEST, "RATE": str(rate),
            "STALL_S": str(stall * PATIENCE), "CALLERS": str(callers), "QUERY": release.endpoint, "IO": ",".join(io),
            "TABLE": store.TABLE, "OUTPUT": str(self.output), "PROTOS": str(ROOT / "proto"), "VERBOSE": "1",
            # Latency is not checked, because all nodes share one machine.
            "P99_MS": "60000", "SHED_MAX": "1" if overload else "0", "ERRORS_MAX": "1", **release.tls,
            "QUERY_NAME": release.tls.get("TLS_NAME", ""),
        }

    def __enter__(self):
        self.output.mkdir(parents=True)
        self.k6 = Background(
            self.output.name, "k6", "run", "--quiet", "--no-usage-report", f"--address=127.0.0.1:{PORT}",
            # The run's folder on the command line marks the process as the run's, in case the run is killed.
            f"--env=STATE={STATE}/", self.script, env=self.settings,
        )
        try:
            until("requests", self.has_started)
        except BaseException:
            self.k6.stop()
            raise
        self.begun = time.monotonic()
        return self

    def has_started(self) -> bool:
        """Returns whether k6's set-up is done and a request was answered."""
        if not self.k6.alive():
            raise CheckFailed(f"k6 ended at once; {self.k6.log}")
        run("curl", "-fsS", f"{CONTROL}/metrics/bireme_errors")
        return True

    def __exit__(self, fault, *_):
        if fault:
            self.k6.stop()
            return
        check("the load ran until the end", self.k6.alive(), f"{time.monotonic() - self.begun:.0f} s")
        self.end()
        results = json.loads(self.report.read_text())
        requests, late = results["requests"], results["late"]
        slowest = max(request["milliseconds"]["max"] for request in requests)
        say(f"   the slowest answer took {slowest:.0f} ms")
        answered = sum(request["answered"] for request in requests)
        count = lambda what: sum(round(request[what] * request["answered"]) for request in requests)
        failed, shed = count("errors"), count("shed")
        if self.overload:
            say(f"   {shed} requests were refused, {late} iterations could not start in time")
        else:
            # A request for which no caller was free was never sent, so its outcome is unknown.
            check("every request started in time", not late, f"{late} did not; {self.output.name}")
            failed += shed
        bound = f"at most {self.failed_max} requests failed" if self.failed_max else "no request failed"
        check(bound, answered and failed <= self.failed_max, f"{failed} of {answered}; {self.output.name}")

    def end(self) -> None:
        """Waits until `seconds` have passed, then stops k6. Loads whose duration is fixed may end earlier."""
        try:
            self.k6.process.wait(max(0, self.begun + self.seconds - time.monotonic()))
            return
        except subprocess.TimeoutExpired:
            run("curl", "-fsS", "-X", "PATCH", f"{CONTROL}/status", "-d", json.dumps(STOP))
        try:
            self.k6.process.wait(60 * PATIENCE)
        except subprocess.TimeoutExpired:
            self.k6.stop()
            raise CheckFailed(f"k6 did not end; {self.k6.log}") from None
