"""k6 as the callers, from outside of the cluster, while something is done to it."""

import json
import os
import time

from . import store
from .check import check, say
from .layout import LOGS, ROOT
from .process import Background
from .release import Release

SCRIPT = ROOT / "loadtest" / "k6" / "bireme.js"
RATE = int(os.environ.get("RATE", "20"))


class Load:
    """`with Load(release, "search", 60): …` fails if a request failed, or the load ended before the work."""

    def __init__(self, release: Release, scenario: str, seconds: int, failed_max: int = 0, rate: int = RATE):
        self.scenario, self.seconds, self.failed_max = scenario, seconds, failed_max
        self.output = LOGS / f"load-{time.monotonic_ns()}"
        self.settings = {
            "SCENARIO": scenario, "DURATION": f"{seconds}s", "RATE": str(rate), "QUERY": release.endpoint,
            "TABLE": store.TABLE, "OUTPUT": str(self.output), "PROTOS": str(ROOT / "proto"), "VERBOSE": "1",
            # Latency is not what is looked at here: all nodes share one machine.
            "P99_MS": "60000", "SHED_MAX": "0", "ERRORS_MAX": "1", **release.tls,
            "QUERY_NAME": release.tls.get("TLS_NAME", ""),
        }

    def __enter__(self):
        self.output.mkdir(parents=True)
        self.k6 = Background(
            self.output.name, "k6", "run", "--quiet", "--no-usage-report", SCRIPT, env=self.settings
        )
        # Its set-up, and a first second of load.
        time.sleep(3)
        self.begun = time.monotonic()
        return self

    def __exit__(self, fault, *_):
        if fault:
            self.k6.stop()
            return
        took = time.monotonic() - self.begun
        self.k6.process.wait(self.seconds + 60)
        check("the load went on all the while", took < self.seconds, f"{took:.0f} of {self.seconds} s")
        requests = self.results()["requests"]
        slowest = max(request["milliseconds"]["max"] for request in requests)
        say(f"   the slowest answer took {slowest:.0f} ms")
        answered = sum(request["answered"] for request in requests)
        failed = sum(round((request["errors"] + request["shed"]) * request["answered"]) for request in requests)
        bound = f"at most {self.failed_max} requests failed" if self.failed_max else "no request failed"
        check(bound, answered and failed <= self.failed_max, f"{failed} of {answered}; {self.output.name}")

    def results(self) -> dict:
        return json.loads((self.output / f"{self.scenario}-constant.json").read_text())
