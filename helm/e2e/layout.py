"""Where things are: the tools that were built, and what a run leaves behind."""

import os
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "bireme"
BIN = CACHE / "kubernetes" / "bin"
# What a run is called: a dry run leaves a cluster that is up alone.
RUN = os.environ.get("BIREME_E2E_RUN", "cluster")
# Everything of a run: keys, the nodes' containers, the drives. Removed at the end.
STATE = CACHE / "kubernetes" / RUN
# Held while there is a cluster: its networks, addresses and ports are the machine's, whatever the run is called.
LOCK = Path("/run/lock/bireme-cluster")
# Logs and reports of the last run, which stay.
LOGS = CACHE / "kubernetes" / "logs" / RUN
KUBECONFIG = STATE / "pki" / "admin.kubeconfig"
CHART = Path(__file__).parents[1] / "bireme"
IMAGE = Path(__file__).parents[1] / "image"
ROOT = Path(__file__).parents[2]
