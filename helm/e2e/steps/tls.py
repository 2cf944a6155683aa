"""Tests TLS with certificates in Secrets, and their renewal under load."""

import base64
import json
import socket
import ssl
from datetime import datetime, timezone
from pathlib import Path

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

# The Secrets, by the chart's names for their certificates: the one that query nodes show to callers, the one that they
# show to I/O nodes, and the I/O nodes' own.
SECRETS = {"query": "query-certificate", "queryToIo": "query-io-certificate", "io": "io-certificate"}
# The names in certificates: of query nodes, which I/O nodes admit, and of a caller.
PEERS = [f"bireme-query.{NAMESPACE}.svc.cluster.local"]
CALLER = "caller.example"
TIERS = ("query", "io")
ON = (f'tls={json.dumps({"enabled": True, "secrets": SECRETS, "clientCertificates": "all"})}',
      f'access={json.dumps({"mode": "open", "peers": PEERS})}')
# The first bytes of an HTTP/2 client: the preface, and empty SETTINGS.
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


class Authorities:
    """An authority for callers and one for the tiers, and the certificates that they sign."""

    def __init__(self, name: str):
        self.callers = Authority(STATE / "tls" / f"{name}-callers", f"bireme-{name}-callers")
        self.tiers = Authority(STATE / "tls" / f"{name}-tiers", f"bireme-{name}-tiers")
        self.callers.sign("query", "/CN=bireme-query", [f"DNS:{service('query')}"])
        self.callers.sign("caller", "/CN=caller", [f"DNS:{CALLER}"])
        self.tiers.sign("queryToIo", "/CN=bireme-query", [f"DNS:{PEERS[0]}"])
        self.tiers.sign("io", "/CN=bireme-io", [f"DNS:{service('io')}"])

    def of(self, certificate: str) -> Authority:
        return self.callers if certificate == "query" else self.tiers

    def file(self, certificate: str, ending: str) -> Path:
        return self.of(certificate).folder / f"{certificate}.{ending}"


def renewed(release) -> None:
    step("TLS between callers, query nodes and I/O nodes, with one authority for callers and one for the tiers")
    first, second = Authorities("first"), Authorities("second")
    put(first, trusted=[first])
    try:
        release.upgrade(*ON)
        # Callers trust both authorities from the start.
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


def serves(release, issuer: Authorities) -> None:
    release.warm()
    rows = release.ask("search", store.TABLE, "--like", "n02503517", "-k", 5)
    check("a search from outside goes through both tiers", rows[0][store.KEY] == "n02503517")
    check("query nodes reach both I/O nodes", len(reachable(release)) == 2)
    check("each shows the certificate of its tier", all(shown(release, tier) == pem(issuer, tier) for tier in TIERS))
    check("helm test has a certificate too", "Succeeded" in release.helm_test())
    between_tiers(release, issuer)
    with_certificate = release.tls
    release.tls = {}
    check("requests without TLS are refused", refused(release))
    release.tls = {name: with_certificate[name] for name in ("TLS_CA", "TLS_NAME")}
    check("callers without a certificate are refused", refused(release))
    release.tls = with_certificate


def between_tiers(release, issuer: Authorities) -> None:
    """Checks that I/O nodes accept only certificates of the tiers' authority."""
    check("I/O nodes take the query nodes' certificate", takes(release, issuer.tiers, "queryToIo", issuer))
    check("and no caller's, which another authority signs", not takes(release, issuer.callers, "caller", issuer))
    check("nor none", not takes(release, None, "", issuer))


def takes(release, of: Authority | None, certificate: str, issuer: Authorities) -> bool:
    """Returns whether an I/O node answers a client that presents the certificate. With TLS 1.3, a refusal comes only
    after the client's handshake."""
    context = ssl.create_default_context(cafile=issuer.tiers.cert)
    context.set_alpn_protocols(["h2"])
    if of:
        context.load_cert_chain(of.folder / f"{certificate}.crt", of.folder / f"{certificate}.key")
    address = min(release.pods("io").items())[1]["status"]["podIP"], PORTS["io"]
    try:
        with socket.create_connection(address, timeout=10) as connection:
            with context.wrap_socket(connection, server_hostname=service("io")) as encrypted:
                encrypted.sendall(HELLO)
                return encrypted.recv(1) != b""
    except (ssl.SSLError, ConnectionError):
        return False


def renew(release, first: Authorities, second: Authorities) -> None:
    step("certificates are renewed by another authority under load")
    pods = uids(release, "io") | uids(release, "query")
    with Load(release, "search", 100):
        put(first, trusted=[first, second])
        release.tls = caller(second, trusted=[first, second])
        until("query nodes to accept a caller of the other authority", lambda: release.ask("tables"), 60)
        put(second, trusted=[first, second])
        until("the new certificates to be shown",
              lambda: all(shown(release, tier) == pem(second, tier) for tier in TIERS), 60)
        check("both tiers show the new certificates", True)
        # Open connections stay. Connections to a restarted node use the new certificates on both sides.
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


def put(issuer: Authorities, trusted: list[Authorities]) -> None:
    for certificate, name in SECRETS.items():
        files = {"tls.crt": pem(issuer, certificate), "tls.key": issuer.file(certificate, "key").read_text(),
                 "ca.crt": certificates([it.of(certificate) for it in trusted])}
        apply({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
               "metadata": {"name": name, "namespace": NAMESPACE}, "stringData": files})


def caller(issuer: Authorities, trusted: list[Authorities]) -> dict[str, str]:
    file = STATE / "tls" / "authorities.crt"
    file.write_text(certificates([it.callers for it in trusted]))
    return {"TLS_CA": str(file), "TLS_NAME": service("query"),
            "TLS_CERT": str(issuer.callers.folder / "caller.crt"), "TLS_KEY": str(issuer.callers.folder / "caller.key")}


def certificates(of: list[Authority]) -> str:
    return "".join(it.cert.read_text() for it in of)


def pem(issuer: Authorities, certificate: str) -> str:
    return issuer.file(certificate, "crt").read_text()


def shown(release, tier: str) -> str:
    """Returns the certificate that the tier's first pod presents."""
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
    step("cert-manager makes the certificates with the release's own authorities, and renews one under load")
    release.cluster.processes["cert-manager"] = cert_manager.up()
    try:
        release.upgrade('tls={"enabled": true, "certManager": {"enabled": true}}')
        issued = {tier: secret(tier)["tls.crt"] for tier in TIERS}
        authorities = STATE / "tls" / "release.crt"
        authorities.parent.mkdir(exist_ok=True)
        authorities.write_text(secret("query")["ca.crt"])
        release.tls = {"TLS_CA": str(authorities), "TLS_NAME": "bireme-query"}
        release.rollout("io")
        release.settled("io", 2)
        release.settled("query", 2)
        release.warm()
        check("query nodes reach both I/O nodes", len(reachable(release)) == 2)
        check("each tier shows what cert-manager made", all(shown(release, tier) == issued[tier] for tier in TIERS))
        check("callers and tiers have authorities of their own", secret("query")["ca.crt"] != secret("io")["ca.crt"])
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
