"""Runs Prometheus over the nodes, with classic or native histograms."""

import json
import math
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from e2e.layout import CACHE, CHART, STATE
from e2e.process import Background, Failed, until

from .nodes import free_port

BIN = CACHE / "prometheus" / "usr" / "bin"
FLAGS = {"classic": [], "native": ["--enable-feature=native-histograms"]}


class Prometheus:
    def __init__(self, histograms: str, targets: list[tuple[str, str, str]]):
        self.address = f"127.0.0.1:{free_port()}"
        home = STATE / f"prometheus-{histograms}"
        home.mkdir()
        (home / "prometheus.yml").write_text(json.dumps(configuration(targets)))
        self.process = Background(
            home.name, BIN / "prometheus", f"--config.file={home}/prometheus.yml", f"--storage.tsdb.path={home}/data",
            f"--web.listen-address={self.address}", *FLAGS[histograms],
        )

    def ready(self) -> None:
        """Waits until each node was scraped often enough to compute a rate."""
        until("Prometheus", lambda: self.series("min(count_over_time(up[1m])) >= 5 and min(up) == 1"), 60)

    def series(self, query: str) -> list[dict]:
        found = self.get("query", query=query)
        return [{"value": found["result"]}] if found["resultType"] == "scalar" else found["result"]

    def get(self, path: str, **parameters) -> dict:
        asked = urllib.parse.urlencode(parameters)
        try:
            with urllib.request.urlopen(f"http://{self.address}/api/v1/{path}?{asked}", timeout=20) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise Failed(f"{asked}: {error.read().decode()}") from None
        except OSError as error:
            raise Failed(f"Prometheus does not answer: {error}") from None

    def stop(self) -> None:
        self.process.stop()


def configuration(targets: list[tuple[str, str, str]]) -> dict:
    """Returns Prometheus' configuration. Jobs and instances have the names that the chart's monitor gives them."""
    jobs = {job: [] for job, _, _ in targets}
    for job, instance, address in targets:
        jobs[job].append({"targets": [address], "labels": {"instance": instance, "namespace": "watched"}})
    return {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(file) for file in rule_files()],
        "scrape_configs": [{"job_name": job, "static_configs": found} for job, found in jobs.items()],
    }


def rule_files() -> list[Path]:
    return sorted((CHART / "rules").glob("*.yaml"))


def value(series: dict) -> float:
    """Returns the series' value, or a histogram's count; NaN if there is none."""
    if "histogram" in series:
        return float(series["histogram"][1]["count"])
    return float(series["value"][1]) if series["value"] else math.nan
