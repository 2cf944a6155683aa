"""`python -m network`: runs both tiers on a network of their own, as root; measures, checks, and writes the report."""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import machine
from tiers import interrupt
from tiers.fault import Failed, Refused

from . import faults, lists, many, matrix, report, table
from .check import Checks, say
from .namespaces import Network
from .nodes import Nodes

PIECES = ["matrix", "faults", "lists", "many", "report"]
# A run's folders are named after its process.
RUN = "run-"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "bireme"


def arguments() -> argparse.Namespace:
    """See --help."""
    parser = argparse.ArgumentParser(prog="network", description=__doc__)
    parser.add_argument("--bireme", type=Path, required=True, help="the binary to measure")
    parser.add_argument("--folder", type=Path, default=CACHE / "network", help="the folder for the table and slabs")
    parser.add_argument("--output", type=Path, required=True, help="the report's folder")
    parser.add_argument("--rounds", type=int, default=3, help="how often matrix and faults are measured (3)")
    parser.add_argument("--seconds", type=float, default=5, help="how long each load of the matrix lasts (5)")
    parser.add_argument("pieces", nargs="*", help=f"the pieces to run, all by default: {', '.join(PIECES)}")
    chosen = parser.parse_args()
    unknown = set(chosen.pieces) - set(PIECES)
    if unknown:
        parser.error(f"there is no piece {', '.join(sorted(unknown))}; pieces are {', '.join(PIECES)}")
    chosen.pieces = chosen.pieces or PIECES
    return chosen


def main() -> int:
    """Returns the exit code: 1 if a check failed, 2 if this machine cannot run it, 130 if it was interrupted."""
    chosen = arguments()
    interrupt.install()
    try:
        return run(chosen)
    except Refused as problem:
        print(f"network: {problem}", file=sys.stderr)
        return 2
    except Failed as problem:
        say(f"failed: {problem}")
        return 1
    except KeyboardInterrupt:
        say("interrupted; everything is cleaned up")
        return 130


def run(chosen: argparse.Namespace) -> int:
    """Runs the pieces one after another. Results are kept, so that pieces can be run one by one."""
    chosen.folder.mkdir(parents=True, exist_ok=True)
    kept = chosen.folder / "measured.json"
    results = json.loads(kept.read_text()) if kept.exists() else {}
    measured = [piece for piece in chosen.pieces if piece != "report"]
    if measured:
        results |= {
            "machine": machine.describe([chosen.folder]),
            "load": os.getloadavg()[0],
            "code": _output(["git", "log", "-1", "--format=%h, %cs"]),
        }
        with Network() as network:
            remove_remains(chosen.folder)
            for piece in measured:
                checks = Checks()
                results[piece] = measure(piece, chosen, network, checks)
                results.setdefault("checks", {})[piece] = checks.done
                kept.write_text(json.dumps(results))
    if "report" in chosen.pieces:
        report.write(results, chosen.output)
    broken = [it["what"] for piece in measured for it in results["checks"][piece] if not it["holds"]]
    for what in broken:
        say(f"does not hold: {what}")
    return 1 if broken else 0


def remove_remains(folder: Path) -> None:
    """Removes slabs and logs of runs that were killed."""
    for left in folder.glob(f"{RUN}*"):
        if not Path(f"/proc/{left.name.removeprefix(RUN).split('-')[0]}").exists():
            shutil.rmtree(left)


def measure(piece: str, chosen: argparse.Namespace, network: Network, checks: Checks) -> dict:
    """Runs one piece. It starts new nodes as often as it needs them."""
    source = table.make(chosen.bireme, chosen.folder)

    @contextmanager
    def make() -> Iterator[Nodes]:
        with tempfile.TemporaryDirectory(dir=chosen.folder, prefix=f"{RUN}{os.getpid()}-") as folder:
            with Nodes(chosen.bireme.absolute(), network, Path(folder), source) as nodes:
                yield nodes

    say(piece)
    match piece:
        case "matrix":
            found = matrix.measure(make, chosen.rounds, chosen.seconds)
            matrix.check(checks, found)
            return found
        case "faults":
            return faults.measure(make, checks, chosen.rounds)
        case "lists":
            return lists.measure(make, checks)
        case _:
            return many.measure(make, checks)


def _output(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent).stdout.strip()


sys.exit(main())
