"""`python -m bench`: makes the tables, measures, and writes the report."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path

from . import access, attacks, cache, changes, clients, fairness, goals, instructions, keys, limits, lookups, machine, plots
from . import publishing, readme, report, rounds, searches, store, tables, telemetry, tuned
from .profile import Profile

# The pieces that are measured.
MEASURED = {
    "rounds": rounds.measure,
    "limits": limits.measure,
    "instructions": instructions.measure,
    "keys": keys.measure,
    "lookups": lookups.measure,
    "searches": searches.measure,
    "cache": cache.measure,
    "telemetry": telemetry.measure,
    "attacks": attacks.measure,
    "access": access.measure,
    "fairness": fairness.measure,
    "clients": clients.measure,
    "store": store.measure,
    "changes": changes.measure,
    "tuned": tuned.measure,
    "publishing": publishing.measure,
}
PIECES = ["tables", *MEASURED, "report"]
# Each of these pieces takes another ten minutes.
ON_REQUEST = ["telemetry", "attacks", "access", "fairness", "clients", "store", "changes", "tuned", "publishing"]
DEFAULT_PIECES = [it for it in PIECES if it not in ON_REQUEST]


def main() -> None:
    """See --help."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--bireme", type=Path, required=True, help="the binary to measure")
    parser.add_argument("--profile", default="small", help="small or large: see profiles/")
    parser.add_argument("--folder", help="the folder for tables and slabs [default: the profile's]")
    parser.add_argument("--rounds", type=int, help="how often everything is measured [default: the profile's]")
    parser.add_argument("--output", type=Path, required=True, help="the report's folder")
    lancedb = Path.home() / ".cache/bireme/lancedb/bin/python"
    parser.add_argument("--lancedb", type=Path, default=lancedb, help="a Python that has LanceDB's client, for `clients`")
    parser.add_argument("--wordnet", type=Path, help="WordNet's embeddings, for `tuned` [default: it leaves this table out]")
    parser.add_argument("pieces", nargs="*", choices=[[], *PIECES], default=[])
    arguments = parser.parse_args()
    # argparse would check a default list as if it were one piece. Pieces run in the same order each time.
    arguments.pieces = [it for it in PIECES if it in (arguments.pieces or DEFAULT_PIECES)]
    profile = Profile.read(arguments.profile, arguments.folder, arguments.rounds)
    arguments.output.mkdir(parents=True, exist_ok=True)
    profile.folder.mkdir(parents=True, exist_ok=True)
    # Results are kept beside the tables, so that pieces can be run one by one.
    measured = profile.folder / "measured.json"
    results = json.loads(measured.read_text()) if measured.exists() else {}
    if os.geteuid() != 0:
        sys.exit("run as root: the page cache is dropped between measurements")
    if "tables" in arguments.pieces:
        tables.make(profile, arguments.bireme)
    with tempfile.TemporaryDirectory(prefix="bireme-bench-logs-") as logs:
        for name in arguments.pieces:
            if name not in MEASURED:
                continue
            if name == "rounds":
                results |= {"machine": machine.describe(profile.drive_folders), "profile": profile.name}
            more = {"clients": [arguments.lancedb], "tuned": [arguments.wordnet]}.get(name, [])
            results[name] = MEASURED[name](profile, arguments.bireme, Path(logs), *more)
            results.setdefault("measured", {})[name] = f"{date.today()}, commit {_commit()}"
            measured.write_text(json.dumps(results, indent=1))
    if "report" in arguments.pieces:
        results["goals"] = goals.judge(results)
        measured.write_text(json.dumps(results, indent=1))
        plots.draw(results, arguments.output)
        report.write(results, arguments.output)
        readme.write(results, arguments.output)


def _commit() -> str:
    """Returns the checkout's commit, with a plus sign if its code has changes."""
    git = lambda *arguments: subprocess.check_output(["git", "-C", Path(__file__).parent, *arguments], text=True).strip()
    changed = git("status", "--porcelain", "--untracked-files=no", ":/services", ":/proto")
    return git("rev-parse", "--short=8", "HEAD") + ("+" if changed else "")


main()
