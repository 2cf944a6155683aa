"""Collects every query over Bireme's metrics, from panels and their variables, rules, scalers and runbooks."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

from e2e.layout import CHART, ROOT

from .prometheus import Prometheus

RUNBOOKS = ROOT / "docs" / "operating" / "runbooks"
# Values of Grafana's own variables. A dashboard that uses another one fails the run.
GRAFANA = {"__rate_interval": "20s", "__range": "60s"}
# The instance that a dashboard shows.
INSTANCE = {"bireme-io-node": "io-0"}


@dataclass(frozen=True)
class Query:
    """A query. Its series must have the labels `needs`, because a legend shows them or a variable offers their
    values."""

    where: str
    what: str
    expr: str
    needs: frozenset[str] = frozenset()


def of_dashboards() -> list[Query]:
    return [query for file in sorted((CHART / "dashboards").glob("*.json")) for query in of_dashboard(file)]


def of_dashboard(file: Path) -> list[Query]:
    board = json.loads(file.read_text())
    variables = {**GRAFANA, **{it["name"]: chosen(board, it) for it in board["templating"]["list"]}}
    filled = lambda text: re.sub(r"\$\{?(\w+)\}?", lambda found: variables[found[1]], text)
    asked = [
        Query(board["uid"], f"{panel['title']}: {target['legendFormat']}", filled(target["expr"]),
              frozenset(re.findall(r"{{(\w+)}}", target["legendFormat"])))
        for panel in board["panels"] for target in panel.get("targets", [])
    ]
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            series, label = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["definition"]).groups()
            asked.append(Query(board["uid"], f"variable {variable['name']}", filled(series), frozenset([label])))
    return asked


def chosen(board: dict, variable: dict) -> str:
    if variable["type"] == "textbox":
        return variable["query"]
    return variable["allValue"] if variable.get("includeAll") else INSTANCE.get(board["uid"], "")


def of_rules(prometheus: Prometheus) -> list[Query]:
    """Returns the rules' queries as Prometheus loaded them. An alert's comparisons return 0 or 1 instead of filtering,
    so that the query always has a value."""
    groups = prometheus.get("rules")["groups"]
    return [
        Query("rules", rule["name"], always(rule["query"]) if rule["type"] == "alerting" else rule["query"])
        for group in groups for rule in group["rules"]
    ]


def always(alert: str) -> str:
    return re.sub(r" (==|>|<) ", r" \1 bool ", alert)


def of_scalers() -> list[Query]:
    """Returns queries for the metrics that the chart's values name for scalers."""
    found = re.findall(r"^ +metric: ([\w:]+)$", (CHART / "values.yaml").read_text(), re.M)
    return [Query("scalers", metric, metric) for metric in found]


def of_runbooks() -> list[Query]:
    blocks = [(file.stem, block) for file in sorted(RUNBOOKS.glob("*.md"))
              for block in re.findall(r"```promql\n(.*?)```", file.read_text(), re.S)]
    return [Query("runbooks", name, line) for name, block in blocks for line in block.splitlines()]
