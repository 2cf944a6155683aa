"""TLS and an access policy: a node that asks for a key, with a certificate that the system does not trust."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import bireme


class Guarded(NamedTuple):
    """A node with TLS and a policy."""

    endpoint: str
    certificate: Path
    key: str


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Iterator[Guarded]:
    """A query node alone, which reads rows from the table."""
    at = tmp_path_factory.mktemp("guarded")
    certificate = at / "cert.pem"
    extensions = ["-addext", "subjectAltName=DNS:node.test", "-addext", "basicConstraints=critical,CA:FALSE"]
    keys = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", str(at / "key.pem")]
    command = ["openssl", "req", "-x509", "-days", "2", "-subj", "/CN=node.test", "-out", str(certificate)]
    subprocess.run([*command, *keys, *extensions], check=True, stderr=subprocess.DEVNULL)
    binary = os.environ["BIREME_BINARY"]
    made = json.loads(subprocess.run([binary, "api-key", "ci", "--json"], check=True, stdout=subprocess.PIPE).stdout)
    (at / "access.toml").write_text(
        f'[keys.ci]\nsha256 = ["{made["sha256"]}"]\n'
        '[[grants]]\nname = "ci"\nwho = ["key:ci"]\ntables = ["words"]\nmay = ["read"]\n'
    )
    table = folder / "words.lance"
    (at / "query.toml").write_text(
        f'listen = "127.0.0.1:0"\naccess = "{at / "access.toml"}"\n'
        f'tables.words = {{ uri = "{table}" }}\ntables.secret = {{ uri = "{table}" }}\n'
        f'[tls]\ncert = "{certificate}"\nkey = "{at / "key.pem"}"\n'
        # Nobody listens at this node's endpoint.
        '[[io_nodes]]\nname = "io-0"\nendpoint = "http://127.0.0.1:1"\n'
    )
    command = [binary, "query", "--json", "--config", str(at / "query.toml")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as node:
        try:
            assert node.stdout is not None
            # The node writes this line once it serves. If it ends before, the line is empty.
            serving = json.loads(node.stdout.readline())
            yield Guarded(serving["endpoint"], certificate, made["key"])
        finally:
            node.terminate()


def test_a_key_is_sent_over_tls(guarded: Guarded) -> None:
    db = bireme.connect(guarded.endpoint, token=guarded.key, tls_ca=guarded.certificate, tls_name="node.test")
    assert [table.name for table in db.tables()] == ["words"]
    assert db.table("words").get("n02503517", columns=["pos"])["pos"] == "noun"
    assert db.table("words").exists("n02503517")
    with pytest.raises(bireme.NotFoundError, match="secret"):
        db.table("secret").get("n02503517")
    with pytest.raises(PermissionError) as raised:
        db.table("words").warm(progress=False)
    assert raised.value.reason == "FORBIDDEN"


def test_callers_without_the_key_or_the_certificate_are_refused(guarded: Guarded) -> None:
    for token in [None, "wrong"]:
        db = bireme.connect(guarded.endpoint, token=token, tls_ca=guarded.certificate, tls_name="node.test")
        with pytest.raises(bireme.DeniedError) as raised:
            db.table("words").get("n02503517")
        assert raised.value.reason == "UNAUTHENTICATED"
    with pytest.raises(bireme.UnavailableError, match="certificate"):
        bireme.connect(guarded.endpoint, token=guarded.key)
    with pytest.raises(bireme.BadRequestError, match="one line of ASCII"):
        bireme.connect(guarded.endpoint, token="a\nb", tls_ca=guarded.certificate, tls_name="node.test")
    with pytest.raises(bireme.UnavailableError, match="write its endpoint with https://"):
        bireme.connect(guarded.endpoint.replace("https", "bireme")).tables()
