"""Runs `bireme bench` on all query nodes at the same time."""

import json
import subprocess

from .nodes import TIMEOUT_SECONDS, Nodes
from .table import NAME

TAKE = ["take", NAME, "--rows", "100", "--columns", "id,number,body"]
TAKE_MANY = ["take", NAME, "--rows", "1000", "--columns", "id,number,body"]
SEARCH = ["search", NAME, "-k", "10", "--refine", "10", "--columns", "id"]


class Load:
    """Callers of each query node, in the client's namespace; `end()` waits for them."""

    def __init__(
        self, nodes: Nodes, what: list[str], seconds: float, rate: float | None = None, concurrency: int | None = None,
        seed: int = 1,
    ) -> None:  # fmt: skip
        queries = nodes.queries()
        words = [*what, "--seconds", str(seconds), "--threads", "1"]
        # The rate and the number of callers are totals over all query nodes.
        if rate:
            words += ["--rate", str(rate / len(queries))]
        if concurrency:
            words += ["--concurrency", str(concurrency // len(queries))]
        self.command = "bireme bench " + " ".join(words)
        self.processes = [
            subprocess.Popen(
                [
                    *nodes.command("bench", *words, query=query.name, timeout=TIMEOUT_SECONDS),
                    "--seed", str(seed * 100 + number), "--json",
                ],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
            )
            for number, query in enumerate(queries)
        ]  # fmt: skip

    def end(self) -> dict:
        """Returns the callers' combined results: sums, and the worst of their latencies."""
        reports, faults = [], []
        for process in self.processes:
            output, errors = process.communicate()
            if process.returncode:
                faults.append(errors.strip())
            else:
                reports.append(json.loads(output))
        total = lambda field: sum(it[field] for it in reports)
        worst = lambda field: max((it["latency_us"][field] / 1e3 for it in reports), default=None)
        rows = total("rows")
        return {
            "command": self.command,
            "callers": len(self.processes),
            # A caller that exited with an error has no report; its message stands here.
            "faults": faults + [it["first_error"] for it in reports if it["first_error"]],
            "requests": total("requests"),
            "failed": sum(sum(it["errors"].values()) for it in reports) + len(faults),
            "unstarted": total("unstarted"),
            "missing_rows": total("missing_rows"),
            "rows": rows,
            "rows_per_s": total("rows_per_s"),
            "requests_per_s": total("requests_per_s"),
            "p50_ms": worst("p50"),
            "p99_ms": worst("p99"),
            "max_ms": worst("max"),
            "build": reports[0]["machine"]["build"] if reports else None,
            "client_cpu_us": sum((it["client_cpu_us_per_row"] or 0) * it["rows"] for it in reports),
        }
