"""Starts one I/O node and one query node, and adds to them as the load gets on; until it is told to end.

Once they serve, --ready-file says where k6 learns who is there, and what the stages are called.
"""

import argparse
import json
import sys
from pathlib import Path

from tiers import interrupt
from tiers.fault import Failed, Refused

from .loopback import Loopback
from .stages import STAGES, Stages
from .teller import Teller


def arguments() -> argparse.Namespace:
    """See --help."""
    parser = argparse.ArgumentParser(prog="growth", description=__doc__)
    parser.add_argument("--bireme", type=Path, required=True, help="the binary")
    parser.add_argument("--table", required=True, metavar="NAME=URI", help="what is served")
    parser.add_argument("--folder", type=Path, required=True, help="where slabs lie meanwhile, and logs afterwards too")
    parser.add_argument("--ready-file", type=Path, required=True, help="written once both tiers serve")
    return parser.parse_args()


def main() -> int:
    """The exit code: 1 if the load was no load on tiers that grow, or they did not."""
    chosen = arguments()
    interrupt.heed()
    try:
        with Loopback(chosen.bireme.absolute(), chosen.folder, chosen.table) as nodes:
            grow(nodes, chosen.ready_file)
    except (Failed, Refused) as problem:
        print(f"growth: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        # Before there was anything to put load on.
        return 130
    return 0


def grow(nodes: Loopback, ready_file: Path) -> None:
    """From stage to stage, each when the load has got there; whoever interrupts it wants to know how it went."""
    stages = Stages(nodes)
    first = STAGES[0]
    nodes.start(first.io, first.query)
    nodes.join(first.io, first.query)
    nodes.warm()
    stages.begin(first)
    with Teller(stages.who, stages.report) as teller:
        try:
            ready_file.write_text(json.dumps({"tiers": teller.url, "stages": list(map(str, STAGES)), **stages.who()}))
            for number, size in enumerate(STAGES):
                # Ahead, so that they only have to be listed then: a start may take long on a busy machine.
                nodes.start(size.io, size.query)
                teller.wait_for(number)
                nodes.join(size.io, size.query)
                stages.begin(size)
            teller.wait_for(len(STAGES))
        except KeyboardInterrupt:
            stages.verdict()


sys.exit(main())
