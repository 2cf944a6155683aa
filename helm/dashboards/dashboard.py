"""A dashboard: its variables and rows, in Grafana's form."""

from dataclasses import dataclass, field

from .panel import SOURCE, Row, laid_out

TAG = "bireme"


@dataclass
class Dashboard:
    uid: str
    title: str
    description: str
    rows: list[Row]
    variables: list[dict] = field(default_factory=list)

    def json(self) -> dict:
        links = {"type": "dashboards", "title": "Bireme", "tags": [TAG], "asDropdown": True, "keepTime": True,
                 "includeVars": False, "targetBlank": False, "icon": "external link", "url": ""}
        return {
            "uid": self.uid, "title": self.title, "description": self.description, "tags": [TAG],
            "schemaVersion": 39, "version": 1, "editable": True, "graphTooltip": 1, "refresh": "30s",
            "time": {"from": "now-1h", "to": "now"}, "timezone": "browser", "links": [links],
            "templating": {"list": [source(), *self.variables]}, "annotations": {"list": []},
            "panels": laid_out(self.rows),
        }


def source() -> dict:
    return {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "refresh": 1,
            "hide": 0, "regex": "", "includeAll": False, "multi": False}


def of_label(name: str, label: str, series: str, everything: bool) -> dict:
    """A variable for the values of a label. With `everything`, a reader can choose several of them, or all."""
    query = f"label_values({series}, {label})"
    # "All" includes series without the label.
    several = {"includeAll": True, "multi": True, "allValue": ".*", "current": {"text": "All", "value": "$__all"}}
    return {
        "name": name, "label": name.capitalize(), "type": "query", "datasource": SOURCE, "definition": query,
        "query": {"query": query, "refId": name}, "refresh": 2, "sort": 1, "hide": 0, "regex": "",
        **(several if everything else {"includeAll": False, "multi": False}),
    }


def written(name: str, label: str, value: str, description: str) -> dict:
    """A variable whose value a reader types in."""
    return {"name": name, "label": label, "type": "textbox", "query": value, "description": description, "hide": 0,
            "current": {"text": value, "value": value}, "options": [{"text": value, "value": value, "selected": True}]}
