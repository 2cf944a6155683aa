"""`python3 -m attacks`: writes the results of `make attacks` into docs/security.md, between its two markers."""

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path

from .rows import ROWS

BEGIN, END = "<!-- results: written by `make attacks` -->\n", "<!-- end of results -->\n"


def main() -> None:
    """See --help."""
    parser = argparse.ArgumentParser(prog="attacks", description=__doc__)
    parser.add_argument("--development", type=Path, required=True, help="the tests' report on the development build")
    parser.add_argument("--release", type=Path, required=True, help="the tests' report on the release build")
    parser.add_argument("--output", type=Path, required=True, help="the page")
    arguments = parser.parse_args()
    builds = [_read(arguments.development), _read(arguments.release)]
    page = arguments.output.read_text()
    head, rest = page.split(BEGIN)
    _, tail = rest.split(END)
    arguments.output.write_text(head + BEGIN + _results(*builds) + END + tail)
    if missing := [number for number in ROWS if not all(number in build for build in builds)]:
        sys.exit(f"rows {missing} have no result in one of the builds")


def _read(file: Path) -> dict[int, dict[str, str]]:
    """Returns the observation of each attack, by row and attack."""
    rows: dict[int, dict[str, str]] = defaultdict(dict)
    for line in file.read_text().splitlines():
        found = json.loads(line)
        if found["row"] not in ROWS:
            sys.exit(f"{file}: row {found['row']} is not in attacks/rows.py")
        rows[found["row"]][found["attack"]] = found["seen"]
    return rows


def _results(development: dict[int, dict[str, str]], release: dict[int, dict[str, str]]) -> str:
    lines = ["", "| # | attack | severity | what stops it | holds |", "|---|---|---|---|---|"]
    for number, row in ROWS.items():
        builds = [name for name, build in (("development", development), ("release", release)) if number in build]
        holds = "yes" if len(builds) == 2 else f"{builds[0]} build; the other was not tried" if builds else "**not tried**"
        holds += f", {row.exceptions}" if row.exceptions else ""
        lines.append(f"| {number} | {row.attack} | {row.severity} | {row.defence} | {holds} |")
    lines += ["", "## What was seen", "", "| # | attack | development build | release build |", "|---|---|---|---|"]
    for number in ROWS:
        for attack in sorted(development[number].keys() | release[number].keys()):
            seen = [build[number].get(attack, "not tried") for build in (development, release)]
            lines.append(f"| {number} | {attack} | {seen[0]} | {seen[1]} |")
    return "\n".join(lines) + "\n\n"


main()
