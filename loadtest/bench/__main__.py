"""`python -m bench`: makes the tables, measures, and writes the report."""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

from . import access, attacks, cache, clients, fairness, goals, instructions, keys, limits, lookups, machine, plots
from . import readme, report, rounds, searches, store, tables, telemetry
from .profile import Profile

PIECES = ["tables", "rounds", "limits", "instructions", "keys", "lookups", "searches", "cache", "telemetry", "attacks"]
PIECES += ["access", "fairness", "clients", "store", "report"]
# Each of these pieces takes another ten minutes.
ON_REQUEST = ["telemetry", "attacks", "access", "fairness", "clients", "store"]
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
    parser.add_argument("pieces", nargs="*", choices=[[], *PIECES], default=[])
    arguments = parser.parse_args()
    # argparse would check a default list as if it were one piece.
    arguments.pieces = arguments.pieces or DEFAULT_PIECES
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
        if "rounds" in arguments.pieces:
            results["machine"] = machine.describe(profile.drive_folders)
            results["profile"] = profile.name
            results["rounds"] = rounds.measure(profile, arguments.bireme, Path(logs))
            measured.write_text(json.dumps(results, indent=1))
        if "limits" in arguments.pieces:
            results["limits"] = limits.measure(profile, arguments.bireme, Path(logs))
            measured.write_text(json.dumps(results, indent=1))
        if "instructions" in arguments.pieces:
            results["instructions"] = instructions.measure(profile, arguments.bireme, Path(logs))
            measured.write_text(json.dumps(results, indent=1))
        if "keys" in arguments.pieces:
            results["keys"] = keys.measure(profile, arguments.bireme, Path(logs))
            measured.write_text(json.dumps(results, indent=1))
        if "lookups" in arguments.pieces:
            results["lookups"] = lookups.measure(profile, arguments.bireme, Path(logs))
            measured.write_text(json.dumps(results, indent=1))
        if "searches" in arguments.pieces:
            results["searches"] = searches.measure(profile, arguments.bireme, Path(logs))
            measured.write_text(json.dumps(results, indent=1))
        if "cache" in arguments.pieces:
            results["cache"] = cache.measure(profile, arguments.bireme, Path(logs))
            measured.write_text(json.dumps(results, indent=1))
        if "telemetry" in arguments.pieces:
            results["telemetry"] = telemetry.measure(profile, arguments.bireme, Path(logs))
            measured.write_text(json.dumps(results, indent=1))
        if "attacks" in arguments.pieces:
            results["attacks"] = attacks.measure(profile, arguments.bireme, Path(logs))
            measured.write_text(json.dumps(results, indent=1))
        if "access" in arguments.pieces:
            results["access"] = access.measure(profile, arguments.bireme, Path(logs))
            measured.write_text(json.dumps(results, indent=1))
        if "fairness" in arguments.pieces:
            results["fairness"] = fairness.measure(profile, arguments.bireme, Path(logs))
            measured.write_text(json.dumps(results, indent=1))
        if "clients" in arguments.pieces:
            results["clients"] = clients.measure(profile, arguments.bireme, Path(logs), arguments.lancedb)
            measured.write_text(json.dumps(results, indent=1))
        if "store" in arguments.pieces:
            results["store"] = store.measure(profile, arguments.bireme, Path(logs))
            measured.write_text(json.dumps(results, indent=1))
    if "report" in arguments.pieces:
        results["goals"] = goals.judge(results)
        measured.write_text(json.dumps(results, indent=1))
        plots.draw(results, arguments.output)
        report.write(results, arguments.output)
        readme.write(results, arguments.output)


main()
