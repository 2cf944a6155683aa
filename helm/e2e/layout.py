"""Paths of the tools, and of a run's files."""

import os
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "bireme"
BIN = CACHE / "kubernetes" / "bin"
# The run's name. A dry run has another name, so that it does not touch a running cluster.
RUN = os.environ.get("BIREME_E2E_RUN", "cluster")
# The run's files, such as keys, the nodes' containers and drives. The folder is removed at the end.
STATE = CACHE / "kubernetes" / RUN
# The lock held while a cluster runs. It is the same for every run's name, because the networks, addresses and ports of
# a cluster exist once on a machine.
LOCK = Path("/run/lock/bireme-cluster")
# Logs and reports of the last run, which are kept.
LOGS = CACHE / "kubernetes" / "logs" / RUN
KUBECONFIG = STATE / "pki" / "admin.kubeconfig"
CHART = Path(__file__).parents[1] / "bireme"
IMAGE = Path(__file__).parents[1] / "image"
ROOT = Path(__file__).parents[2]
