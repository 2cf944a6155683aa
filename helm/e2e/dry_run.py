"""What the chart makes of files of values, shown to a real API server, which checks it as on `kubectl apply` and
keeps nothing; others' kinds are defined there as in a cluster. etcd and the API server run on loopback meanwhile:
`python3 -m e2e.dry_run VALUES...`."""

import sys

from .check import say
from .cluster import control_plane, definitions, pki, remains
from .layout import CHART, STATE
from .process import run

LOOPBACK = "127.0.0.1"


def shown(values: str) -> int:
    """How many objects the server took."""
    manifest = STATE / "manifest.yaml"
    manifest.write_text(run("helm", "template", "bireme", CHART, "-f", values))
    return run("kubectl", "apply", "--dry-run=server", "--validate=strict", "-f", manifest).count("\n")


def main(files: list[str]) -> None:
    remains.begin(0)
    pki.make(0, LOOPBACK)
    # Without controllers there is no service account for the pods of `helm test`.
    processes = [control_plane.etcd(), control_plane.api_server(LOOPBACK, "--disable-admission-plugins=ServiceAccount")]
    try:
        control_plane.ready()
        definitions.install()
        for file in files:
            say(f"{file}: {shown(file)} objects")
    finally:
        for process in reversed(processes):
            process.stop()
        remains.remove(0)


main(sys.argv[1:])
