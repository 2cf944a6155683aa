"""Panels, and their layout on a dashboard: from left to right, 24 columns wide."""

from dataclasses import dataclass, field

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
COLUMNS = 24


@dataclass
class Panel:
    """A panel. `targets` are pairs of a query and the legend of its series."""

    title: str
    unit: str
    description: str
    targets: list[tuple[str, str]]
    kind: str = "timeseries"
    width: int = 8
    stacked: bool = False
    low: float | None = 0
    high: float | None = None
    decimals: int | None = None

    @property
    def height(self) -> int:
        return 4 if self.kind == "stat" else 8

    def json(self, number: int, x: int, y: int) -> dict:
        shape = {"timeseries": self.lines, "stat": self.figure}[self.kind]()
        targets = [
            {"refId": chr(ord("A") + at), "expr": expr, "legendFormat": legend, "datasource": SOURCE}
            for at, (expr, legend) in enumerate(self.targets)
        ]
        return {
            "id": number, "type": self.kind, "title": self.title, "description": self.description,
            "datasource": SOURCE, "gridPos": {"x": x, "y": y, "w": self.width, "h": self.height},
            "targets": targets, **shape,
        }

    def defaults(self) -> dict:
        more = {"min": self.low, "max": self.high, "decimals": self.decimals}
        return {"unit": self.unit, **{name: value for name, value in more.items() if value is not None}}

    def lines(self) -> dict:
        stacking = {"mode": "normal" if self.stacked else "none"}
        drawn = {"fillOpacity": 40 if self.stacked else 5, "stacking": stacking, "showPoints": "never"}
        return {
            "fieldConfig": {"defaults": {**self.defaults(), "custom": drawn}, "overrides": []},
            "options": {
                "legend": {"displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull", "max"]},
                "tooltip": {"mode": "multi", "sort": "desc"},
            },
        }

    def figure(self) -> dict:
        return {
            "fieldConfig": {"defaults": self.defaults(), "overrides": []},
            "options": {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value", "textMode": "auto"},
        }


def lines(title: str, unit: str, description: str, *targets: tuple[str, str], **more) -> Panel:
    return Panel(title, unit, description, list(targets), **more)


def stacked(title: str, unit: str, description: str, *targets: tuple[str, str], **more) -> Panel:
    return Panel(title, unit, description, list(targets), stacked=True, **more)


def figure(title: str, unit: str, description: str, query: str, **more) -> Panel:
    return Panel(title, unit, description, [(query, title)], kind="stat", **{"width": 4, **more})


@dataclass
class Row:
    title: str
    panels: list[Panel] = field(default_factory=list)


def laid_out(rows: list[Row]) -> list[dict]:
    """Returns the rows and panels in Grafana's form, with their ids and positions."""
    placed, y = [], 0
    for row in rows:
        placed.append({
            "id": len(placed) + 1, "type": "row", "title": row.title, "collapsed": False, "panels": [],
            "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1},
        })
        x, y, height = 0, y + 1, 0
        for panel in row.panels:
            if x + panel.width > COLUMNS:
                x, y, height = 0, y + height, 0
            placed.append(panel.json(len(placed) + 1, x, y))
            x, height = x + panel.width, max(height, panel.height)
        y += height
    return placed
