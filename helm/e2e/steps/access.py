"""Tests which callers are admitted with a policy and TLS. A query node admits callers with a key, a token or a
certificate; an I/O node admits only certificates of the tiers' own authority with the names of query nodes."""

import json

from .. import store
from ..archives import BIREME as IMAGE
from ..check import check, step
from ..cluster.manifest import apply
from ..layout import STATE
from ..process import Failed, run, until
from ..release import NAMESPACE
from . import tls
from .scale import reachable

SECRET, TOKEN_SECRET, ACCOUNT, AUDIENCE = "access", "caller-token", "caller", "bireme"
# The API server's flag --service-account-issuer.
ISSUER = "https://kubernetes.default.svc"
KEY = "n02503517"
# The exit code of a refused call.
REFUSED = 6
POLICY = """
[keys.job]
sha256 = ["{digest}"]
[issuers.kube]
issuer = "{issuer}"
jwks = "/etc/bireme-access/jwks.json"
audiences = ["{audience}"]
algorithms = ["RS256"]
[[grants]]
name = "jobs"
who = ["key:job"]
tables = ["{table}"]
may = ["read"]
[[grants]]
name = "services"
who = ["jwt:kube:system:serviceaccount:{namespace}:{account}"]
tables = ["*"]
may = ["read", "warm", "observe"]
[[grants]]
name = "machines"
who = ["san:{san}"]
tables = ["{table}"]
may = ["read"]
"""


def by_policy(release) -> None:
    step("a policy: callers by key, projected token and certificate; the tiers have an authority of their own")
    authorities = tls.Authorities("access")
    tls.put(authorities, trusted=[authorities])
    key = credentials(release)
    secrets = json.dumps({"enabled": True, "secrets": tls.SECRETS, "clientCertificates": "all"})
    access = {"mode": "policy", "existingSecret": SECRET, "testSecret": TOKEN_SECRET, "peers": tls.PEERS}
    certificate = tls.caller(authorities, trusted=[authorities])
    server = {name: certificate[name] for name in ("TLS_CA", "TLS_NAME")}
    try:
        release.upgrade(f"tls={secrets}", f"access={json.dumps(access)}")
        release.rollout("io")
        release.settled("io", 2)
        release.settled("query", 2)
        by_key(release, server, key)
        by_token(release, server)
        in_a_pod(release)
        by_certificate(release, server, certificate)
        tls.between_tiers(release, authorities)
        check("helm test passes, as a caller of its own", "Succeeded" in release.helm_test())
    finally:
        release.tls = {}
    tls.in_the_clear(release)


def credentials(release) -> str:
    """Makes the Secret with the policy and the cluster's public keys, the service account, and the Secret with the
    account's token. Returns the API key."""
    made = json.loads(run(release.bireme, "api-key", "job", "--json"))
    policy = POLICY.format(digest=made["sha256"], issuer=ISSUER, audience=AUDIENCE, table=store.TABLE,
                           namespace=NAMESPACE, account=ACCOUNT, san=tls.CALLER)
    keys = run("kubectl", "get", "--raw", "/openid/v1/jwks")
    release.kubectl("create", "serviceaccount", ACCOUNT)
    for name, files in ((SECRET, {"access.toml": policy, "jwks.json": keys}), (TOKEN_SECRET, {"token": token(release)})):
        apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": NAMESPACE},
               "stringData": files})
    return made["key"]


def token(release, audience: str = AUDIENCE) -> str:
    return release.kubectl("create", "token", ACCOUNT, f"--audience={audience}").strip()


def sending(release, server: dict, credential: str | None) -> None:
    """Makes the following calls send this key or token."""
    release.tls = dict(server)
    if credential is not None:
        file = STATE / "credential"
        file.write_text(credential)
        release.tls["TOKEN_FILE"] = str(file)


def row(release) -> dict:
    return release.ask("get", store.TABLE, KEY, "--columns", store.KEY)[0]


def refused(release, *words) -> bool:
    """Returns whether a call is refused, by its exit code."""
    try:
        release.call(*words, "--timeout", "5s", accept=(REFUSED,))
        return True
    except Failed:
        return False


def by_key(release, server: dict, key: str) -> None:
    sending(release, server, key)
    check("an API key reads its table", row(release)[store.KEY] == KEY)
    check("and may not warm it", refused(release, "warm", store.TABLE))
    sending(release, server, "bireme_" + "0" * 64)
    check("another key is refused", refused(release, "get", store.TABLE, KEY))
    sending(release, server, None)
    check("a caller without credentials is refused", refused(release, "get", store.TABLE, KEY))


def by_token(release, server: dict) -> None:
    sending(release, server, token(release))
    check("a service account's token reads", row(release)[store.KEY] == KEY)
    release.warm()
    check("query nodes reach both I/O nodes", len(reachable(release)) == 2)
    sending(release, server, token(release, "other"))
    check("a token for another audience is refused", refused(release, "get", store.TABLE, KEY))
    # Change the subject in the middle part of the token, which the signature covers.
    head, _, signature = token(release).split(".")
    sending(release, server, f"{head}.{token(release, 'other').split('.')[1]}.{signature}")
    check("a token with a foreign signature is refused", refused(release, "get", store.TABLE, KEY))


def in_a_pod(release) -> None:
    for name, audience, phase in (("caller", AUDIENCE, "Succeeded"), ("caller-elsewhere", "other", "Failed")):
        apply(calling_pod(name, audience))
        phase_of = lambda: json.loads(release.kubectl("get", "pod", name, "-o", "json"))["status"]["phase"]
        until(f"the pod {name} to end", lambda: phase_of() in ("Succeeded", "Failed"), 90)
        said = release.kubectl("logs", name)
        check(f"a pod with a projected token for `{audience}` has {phase}", phase_of() == phase, said[:100].strip())
        release.kubectl("delete", "pod", name)


def calling_pod(name: str, audience: str) -> dict:
    variables = {"BIREME_TLS_CA": "/tls/ca.crt", "BIREME_TOKEN_FILE": "/token/token"}
    service = {"serviceAccountToken": {"audience": audience, "expirationSeconds": 600, "path": "token"}}
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "serviceAccountName": ACCOUNT, "automountServiceAccountToken": False, "restartPolicy": "Never",
            "enableServiceLinks": False, "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "fsGroup": 65532},
            "containers": [{
                "name": name, "image": IMAGE, "imagePullPolicy": "Never",
                "args": ["get", store.TABLE, KEY, "--columns", store.KEY, "--endpoint",
                         f"https://{tls.service('query')}:7070"],
                "env": [{"name": variable, "value": value} for variable, value in variables.items()],
                "volumeMounts": [{"name": "token", "mountPath": "/token"}, {"name": "tls", "mountPath": "/tls"}],
            }],
            "volumes": [
                {"name": "token", "projected": {"sources": [service]}},
                {"name": "tls", "secret": {"secretName": tls.SECRETS["query"], "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            ],
        },
    }


def by_certificate(release, server: dict, certificate: dict) -> None:
    release.tls = certificate
    check("a certificate's name reads", row(release)[store.KEY] == KEY)
    check("and may not warm", refused(release, "warm", store.TABLE))
    release.tls = server
