"""Tests TLS with certificates in Secrets, and their renewal under load."""

import base64
import json
import ssl
from datetime import datetime, timezone

from .. import store
from ..check import check, step
from ..cluster import cert_manager
from ..cluster.addresses import PORTS
from ..cluster.authority import Authority
from ..cluster.manifest import apply
from ..layout import STATE
from ..load import Load
from ..process import Failed, kill, run, until
from ..release import NAMESPACE
from .faults import caches_are_warm, restarts
from .scale import reachable, uids

SECRETS = {"query": "query-certificate", "io": "io-certificate"}
ON = json.dumps({"enabled": True, "secrets": SECRETS, "clientCertificates": "all"})


def renewed(release) -> None:
    step("TLS between callers, query nodes and I/O nodes, each with a certificate of its own")
    first, second = authority("first"), authority("second")
    put(first, trusted=[first])
    try:
        release.upgrade(f"tls={ON}")
        # Callers trust both from the start.
        release.tls = caller(first, trusted=[first, second])
        release.rollout("io")
        release.settled("io", 2)
        release.settled("query", 2)
        serves(release, first)
        renew(release, first, second)
    finally:
        release.tls = {}
    in_the_clear(release)


def in_the_clear(release) -> None:
    release.upgrade()
    release.rollout("io")
    release.settled("io", 2)
    release.settled("query", 2)


def serves(release, issuer: Authority) -> None:
    release.warm()
    rows = release.ask("search", store.TABLE, "--like", "n02503517", "-k", 5)
    check("a search from outside goes through both tiers", rows[0][store.KEY] == "n02503517")
    check("query nodes reach both I/O nodes", len(reachable(release)) == 2)
    check("each shows the certificate of its tier", all(shown(release, tier) == pem(issuer, tier) for tier in SECRETS))
    check("helm test has a certificate too", "Succeeded" in release.helm_test())
    with_certificate = release.tls
    release.tls = {}
    check("requests without TLS are refused", refused(release))
    release.tls = {name: with_certificate[name] for name in ("TLS_CA", "TLS_NAME")}
    check("callers without a certificate are refused", refused(release))
    release.tls = with_certificate


def renew(release, first: Authority, second: Authority) -> None:
    step("certificates are renewed by another authority under load")
    pods = uids(release, "io") | uids(release, "query")
    with Load(release, "search", 100):
        put(first, trusted=[first, second])
        release.tls = caller(second, trusted=[first, second])
        until("query nodes to accept a caller of the other authority", lambda: release.ask("tables"), 60)
        put(second, trusted=[first, second])
        until("the new certificates to be shown",
              lambda: all(shown(release, tier) == pem(second, tier) for tier in SECRETS), 60)
        check("both tiers show the new certificates", True)
        # Open connections stay; those to a restarted node use the new certificates on both sides.
        before = restarts(release, "bireme-io-0")
        kill(release.pid("io", "bireme-io-0"))
        until("its restart", lambda: restarts(release, "bireme-io-0") == before + 1)
        release.settled("io", 2)
        until("both I/O nodes", lambda: len(reachable(release)) == 2)
    check("no pod was replaced", uids(release, "io") | uids(release, "query") == pods)
    release.ask("search", store.TABLE, "--like", "n02503517", "-k", 5)
    caches_are_warm(release)


def service(tier: str) -> str:
    return f"bireme-{tier}.{NAMESPACE}.svc.cluster.local"


def authority(name: str) -> Authority:
    made = Authority(STATE / "tls" / name, f"bireme-{name}")
    for tier in SECRETS:
        made.sign(tier, f"/CN=bireme-{tier}", [f"DNS:{service(tier)}"])
    made.sign("caller", "/CN=caller")
    return made


def put(issuer: Authority, trusted: list[Authority]) -> None:
    authorities = certificates(trusted)
    for tier, name in SECRETS.items():
        files = {"tls.crt": pem(issuer, tier), "tls.key": (issuer.folder / f"{tier}.key").read_text()}
        apply({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
               "metadata": {"name": name, "namespace": NAMESPACE}, "stringData": {**files, "ca.crt": authorities}})


def caller(issuer: Authority, trusted: list[Authority]) -> dict[str, str]:
    authorities = STATE / "tls" / "authorities.crt"
    authorities.write_text(certificates(trusted))
    return {"TLS_CA": str(authorities), "TLS_NAME": service("query"),
            "TLS_CERT": str(issuer.folder / "caller.crt"), "TLS_KEY": str(issuer.folder / "caller.key")}


def certificates(authorities: list[Authority]) -> str:
    return "".join(it.cert.read_text() for it in authorities)


def pem(issuer: Authority, tier: str) -> str:
    return (issuer.folder / f"{tier}.crt").read_text()


def shown(release, tier: str) -> str:
    """Returns the certificate that the tier's first pod shows."""
    pod = min(release.pods(tier).items())[1]
    port = PORTS[tier]
    try:
        return ssl.get_server_certificate((pod["status"]["podIP"], port), timeout=3)
    except OSError as error:
        raise Failed(f"{tier} shows no certificate: {error}") from None


def refused(release) -> bool:
    try:
        release.ask("tables", "--timeout", "3s")
        return False
    except Failed:
        return True


def by_cert_manager(release) -> None:
    step("cert-manager makes the certificates with the release's own authority, and renews one under load")
    release.cluster.processes["cert-manager"] = cert_manager.up()
    try:
        release.upgrade('tls={"enabled": true, "certManager": {"enabled": true}}')
        issued = {tier: secret(tier)["tls.crt"] for tier in SECRETS}
        authorities = STATE / "tls" / "release.crt"
        authorities.parent.mkdir(exist_ok=True)
        authorities.write_text(secret("query")["ca.crt"])
        release.tls = {"TLS_CA": str(authorities), "TLS_NAME": "bireme-query"}
        release.rollout("io")
        release.settled("io", 2)
        release.settled("query", 2)
        release.warm()
        check("query nodes reach both I/O nodes", len(reachable(release)) == 2)
        check("each tier shows what cert-manager made", all(shown(release, tier) == issued[tier] for tier in SECRETS))
        with Load(release, "search", 45):
            renew_now("bireme-io-tls")
            until("another certificate", lambda: secret("io")["tls.crt"] != issued["io"], 30)
            until("the I/O nodes to show it", lambda: shown(release, "io") == secret("io")["tls.crt"], 40)
        check("the I/O nodes show the renewed certificate", True)
    finally:
        release.tls = {}
    in_the_clear(release)
    check("certificates are removed once TLS is off", not release.objects("certificates"))


def secret(tier: str) -> dict[str, str]:
    found = json.loads(run("kubectl", "-n", NAMESPACE, "get", "secret", f"bireme-{tier}-tls", "-o", "json"))
    return {name: base64.b64decode(text).decode() for name, text in found["data"].items()}


def renew_now(certificate: str) -> None:
    """Triggers a renewal as cert-manager's own command-line tool does."""
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    issuing = {"type": "Issuing", "status": "True", "reason": "ManuallyTriggered", "message": "asked for by hand",
               "lastTransitionTime": now}
    found = json.loads(run("kubectl", "-n", NAMESPACE, "get", "certificate", certificate, "-o", "json"))
    conditions = [it for it in found["status"]["conditions"] if it["type"] != "Issuing"] + [issuing]
    run("kubectl", "-n", NAMESPACE, "patch", "certificate", certificate, "--subresource=status", "--type=merge",
        "-p", json.dumps({"status": {"conditions": conditions}}))
