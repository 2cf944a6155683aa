"""Applies an object to the cluster."""

import json

from ..layout import STATE
from ..process import run


def apply(manifest: dict) -> None:
    file = STATE / "manifest.json"
    file.write_text(json.dumps(manifest))
    run("kubectl", "apply", "-f", file)
