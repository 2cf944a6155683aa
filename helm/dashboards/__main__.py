"""Writes the chart's dashboards: `python3 -m dashboards` in helm/. With --check, it writes nothing
and lists the files that differ."""

import json
import sys
from pathlib import Path

from . import economics, io_node, query_nodes, tiers

FOLDER = Path(__file__).parents[1] / "bireme" / "dashboards"


def files() -> dict[Path, str]:
    boards = [module.dashboard for module in (tiers, io_node, query_nodes, economics)]
    return {FOLDER / f"{board.uid}.json": json.dumps(board.json(), indent=1) + "\n" for board in boards}


def main(only_check: bool) -> int:
    wanted = files()
    there = {file: file.read_text() for file in FOLDER.glob("*.json")}
    if not only_check:
        FOLDER.mkdir(exist_ok=True)
        for file in there.keys() - wanted.keys():
            file.unlink()
        for file, text in wanted.items():
            file.write_text(text)
        return 0
    other = sorted(file.name for file in there.keys() | wanted.keys() if there.get(file) != wanted.get(file))
    if other:
        print(f"{', '.join(other)} differ from helm/dashboards: run make chart-dashboards", file=sys.stderr)
    return bool(other)


sys.exit(main("--check" in sys.argv[1:]))
