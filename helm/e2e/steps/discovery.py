"""Tests discovery of I/O nodes by means other than Kubernetes' API."""

from ..check import check, step
from ..load import Load
from .scale import reachable


def by_dns(release) -> None:
    step("query nodes find I/O nodes by DNS, without a token")
    release.upgrade('discovery="dns"')
    release.settled("query", 2)
    check("both are found", len(reachable(release)) == 2)
    check("they have the names of their pods", {node["name"] for node in release.io_nodes()}
          == {"bireme-io-0", "bireme-io-1"})
    check("there is no role", not release.objects("roles"))
    mounts = [mount["mountPath"] for pod in release.pods("query").values()
              for mount in pod["spec"]["containers"][0]["volumeMounts"]]
    check("and no token", not any("serviceaccount" in path for path in mounts))
    with Load(release, "search", 10):
        pass
    release.upgrade()
    release.settled("query", 2)
