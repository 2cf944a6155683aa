"""Starts one I/O node and one query node, and adds nodes as the load reaches further stages, until it is stopped.

Once both tiers serve, it writes --ready-file, with the address at which k6 asks for nodes, the stages, and the nodes.
"""

import argparse
import json
import sys
from pathlib import Path

from tiers import interrupt
from tiers.fault import Failed, Refused

from .loopback import Loopback
from .stages import STAGES, Stages
from .stage_server import StageServer


def arguments() -> argparse.Namespace:
    """See --help."""
    parser = argparse.ArgumentParser(prog="growth", description=__doc__)
    parser.add_argument("--bireme", type=Path, required=True, help="the binary")
    parser.add_argument("--table", required=True, metavar="NAME=URI", help="the table to serve")
    parser.add_argument("--folder", type=Path, required=True, help="the folder for slabs, which are removed at the end, and logs")
    parser.add_argument("--ready-file", type=Path, required=True, help="written once both tiers serve")
    return parser.parse_args()


def main() -> int:
    """Returns the exit code: 1 if the tiers did not grow, or the load did not reach every stage and node."""
    chosen = arguments()
    interrupt.install()
    try:
        with Loopback(chosen.bireme.absolute(), chosen.folder, chosen.table) as nodes:
            grow(nodes, chosen.ready_file)
    except (Failed, Refused) as problem:
        print(f"growth: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        # Interrupted before the nodes were ready for load.
        return 130
    return 0


def grow(nodes: Loopback, ready_file: Path) -> None:
    """Begins each stage once the load has reached it. An interrupt ends the load, and the verdict follows."""
    stages = Stages(nodes)
    first = STAGES[0]
    nodes.start(first.io, first.query)
    nodes.join(first.io, first.query)
    nodes.warm()
    stages.begin(first)
    with StageServer(stages.endpoints, stages.report) as server:
        try:
            ready_file.write_text(json.dumps({"tiers": server.url, "stages": list(map(str, STAGES)), **stages.endpoints()}))
            for number, size in enumerate(STAGES):
                # Nodes start before their stage and are only listed when it begins: a start may take long on a busy
                # machine.
                nodes.start(size.io, size.query)
                server.wait_for(number)
                nodes.join(size.io, size.query)
                stages.begin(size)
            server.wait_for(len(STAGES))
        except KeyboardInterrupt:
            stages.verdict()


sys.exit(main())
