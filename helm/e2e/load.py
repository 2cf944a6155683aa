"""k6 as the callers, from outside of the cluster, while something is done to it."""

import json
import os
import time

from . import store
from .check import CheckFailed, check, say
from .layout import LOGS, ROOT
from .process import Background, run, until
from .release import Release

SCRIPT = ROOT / "loadtest" / "k6" / "bireme.js"
# Where k6 tells how it gets on.
CONTROL = "127.0.0.1:26565"
RATE = int(os.environ.get("RATE", "20"))


class Load:
    """`with Load(release, "search", 60): …` fails if a request failed, or could not start in time, or the load ended before
    the work. `stall` is for how many seconds no answer at all may come; there are callers for as many requests."""

    def __init__(self, release: Release, scenario: str, seconds: int, failed_max: int = 0, rate: int = RATE,
                 stall: float = 5):
        self.scenario, self.seconds, self.failed_max = scenario, seconds, failed_max
        self.output = LOGS / f"load-{time.monotonic_ns()}"
        self.settings = {
            "SCENARIO": scenario, "DURATION": f"{seconds}s", "RATE": str(rate), "QUERY": release.endpoint,
            "TABLE": store.TABLE, "OUTPUT": str(self.output), "PROTOS": str(ROOT / "proto"), "VERBOSE": "1",
            "STALL_S": str(stall),
            # Latency is not what is looked at here: all nodes share one machine.
            "P99_MS": "60000", "SHED_MAX": "0", "ERRORS_MAX": "1", **release.tls,
            "QUERY_NAME": release.tls.get("TLS_NAME", ""),
        }

    def __enter__(self):
        self.output.mkdir(parents=True)
        self.k6 = Background(
            self.output.name, "k6", "run", "--quiet", "--no-usage-report", f"--address={CONTROL}", SCRIPT,
            env=self.settings,
        )
        until("requests", self.asks)
        self.begun = time.monotonic()
        return self

    def asks(self) -> bool:
        """Whether its set-up is done, and a request answered."""
        if not self.k6.alive():
            raise CheckFailed(f"k6 ended at once; {self.k6.log}")
        run("curl", "-fsS", f"http://{CONTROL}/v1/metrics/bireme_errors")
        return True

    def __exit__(self, fault, *_):
        if fault:
            self.k6.stop()
            return
        took = time.monotonic() - self.begun
        self.k6.process.wait(self.seconds + 60)
        check("the load went on all the while", took < self.seconds, f"{took:.0f} of {self.seconds} s")
        results = self.results()
        requests = results["requests"]
        slowest = max(request["milliseconds"]["max"] for request in requests)
        say(f"   the slowest answer took {slowest:.0f} ms")
        answered = sum(request["answered"] for request in requests)
        failed = sum(round((request["errors"] + request["shed"]) * request["answered"]) for request in requests)
        # What no caller was free for was not asked at all, and nobody knows what would have come of it.
        check("every request started in time", not results["late"], f"{results['late']} did not; {self.output.name}")
        bound = f"at most {self.failed_max} requests failed" if self.failed_max else "no request failed"
        check(bound, answered and failed <= self.failed_max, f"{failed} of {answered}; {self.output.name}")

    def results(self) -> dict:
        return json.loads((self.output / f"{self.scenario}-constant.json").read_text())
