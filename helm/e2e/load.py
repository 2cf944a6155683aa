"""k6 as the callers, from outside of the cluster, while something is done to it."""

import json
import os
import time

from . import store
from .check import CheckFailed, check, say
from .cluster.addresses import PORTS
from .layout import LOGS, ROOT
from .process import Background, run, until
from .release import Release

SCRIPTS = ROOT / "loadtest" / "k6"
# Where k6 tells how it gets on.
CONTROL = "127.0.0.1:26565"
RATE = int(os.environ.get("RATE", "20"))


class Load:
    """`with Load(release, "search", 60): …` fails if a request failed, or could not start in time, or the load ended
    before the work. `stall` is for how many seconds no answer at all may come: there are callers for as many requests.
    Where more may be asked for than the nodes can do, `overload`, what is refused for that, or starts late, is only
    told. With `callers` so many of them ask again as soon as they are answered, in place of a rate."""

    def __init__(self, release: Release, scenario: str, seconds: int, failed_max: int = 0, rate: int = RATE,
                 stall: float = 5, overload: bool = False, callers: int = 0):
        self.seconds, self.failed_max, self.overload = seconds, failed_max, overload
        executor = "closed" if callers else "constant"
        self.script = SCRIPTS / ("ceiling.js" if callers else "bireme.js")
        self.output = LOGS / f"load-{time.monotonic_ns()}"
        self.report = self.output / f"{scenario}-{executor}.json"
        io = [f"{pod['status']['podIP']}:{PORTS['io']}" for pod in release.pods("io").values()]
        self.settings = {
            "SCENARIO": scenario, "EXECUTOR": executor, "DURATION": f"{seconds}s", "RATE": str(rate),
            "STALL_S": str(stall), "CALLERS": str(callers), "QUERY": release.endpoint, "IO": ",".join(io),
            "TABLE": store.TABLE, "OUTPUT": str(self.output), "PROTOS": str(ROOT / "proto"), "VERBOSE": "1",
            # Latency is not what is looked at here: all nodes share one machine.
            "P99_MS": "60000", "SHED_MAX": "1" if overload else "0", "ERRORS_MAX": "1", **release.tls,
            "QUERY_NAME": release.tls.get("TLS_NAME", ""),
        }

    def __enter__(self):
        self.output.mkdir(parents=True)
        self.k6 = Background(
            self.output.name, "k6", "run", "--quiet", "--no-usage-report", f"--address={CONTROL}", self.script,
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
            # What no caller was free for was not asked at all, and nobody knows what would have come of it.
            check("every request started in time", not late, f"{late} did not; {self.output.name}")
            failed += shed
        bound = f"at most {self.failed_max} requests failed" if self.failed_max else "no request failed"
        check(bound, answered and failed <= self.failed_max, f"{failed} of {answered}; {self.output.name}")
