"""Renders the chart with files of values and has a real API server validate the objects, without keeping them:
`python3 -m e2e.dry_run VALUES...`. etcd and the API server run on loopback, with the custom resources defined."""

import sys

from .check import say
from .cluster import control_plane, definitions, pki, remains
from .layout import CHART, STATE
from .process import run

LOOPBACK = "127.0.0.1"


def validated(values: str) -> int:
    """Returns the number of objects that the server accepted."""
    manifest = STATE / "manifest.yaml"
    manifest.write_text(run("helm", "template", "bireme", CHART, "-f", values))
    return run("kubectl", "apply", "--dry-run=server", "--validate=strict", "-f", manifest).count("\n")


def main(files: list[str]) -> None:
    remains.begin(0)
    pki.make(0, LOOPBACK)
    # Without controllers, the service account that the pods of `helm test` use does not exist.
    processes = [control_plane.etcd(), control_plane.api_server(LOOPBACK, "--disable-admission-plugins=ServiceAccount")]
    try:
        control_plane.ready()
        definitions.install()
        for file in files:
            say(f"{file}: {validated(file)} objects")
    finally:
        for process in reversed(processes):
            process.stop()
        remains.remove(0)


main(sys.argv[1:])
