"""Where things are: the tools that were built, and what a run leaves behind."""

import os
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "bireme"
BIN = CACHE / "kubernetes" / "bin"
# Everything of a run: keys, the nodes' containers, the drives. Removed at the end.
STATE = CACHE / "kubernetes" / "cluster"
# Logs and reports of the last run, which stay.
LOGS = CACHE / "kubernetes" / "logs"
KUBECONFIG = STATE / "pki" / "admin.kubeconfig"
CHART = Path(__file__).parents[1] / "bireme"
IMAGE = Path(__file__).parents[1] / "image"
ROOT = Path(__file__).parents[2]
