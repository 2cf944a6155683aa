"""A certificate authority, and the certificates that it signs."""

from pathlib import Path

from ..process import run

CURVE = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]


class Authority:
    """An authority. Its certificate and key, and those that it signs, are files in one folder."""

    def __init__(self, folder: Path, common_name: str):
        self.folder, self.cert, self.key = folder, folder / "ca.crt", folder / "ca.key"
        folder.mkdir(parents=True)
        run("openssl", "req", "-x509", *CURVE, "-keyout", self.key, "-out", self.cert, "-days", 30,
            "-subj", f"/CN={common_name}")

    def sign(self, name: str, subject: str, names: list[str] | None = None) -> None:
        """Makes `name`.crt and `name`.key, for servers and clients."""
        usage = "extendedKeyUsage=serverAuth,clientAuth\n"
        if names:
            usage += f"subjectAltName={','.join(names)}\n"
        extensions, request = self.folder / f"{name}.ext", self.folder / f"{name}.csr"
        extensions.write_text(usage)
        run("openssl", "req", *CURVE, "-keyout", self.folder / f"{name}.key", "-out", request, "-subj", subject)
        run("openssl", "x509", "-req", "-in", request, "-CA", self.cert, "-CAkey", self.key, "-CAcreateserial",
            "-days", 30, "-out", self.folder / f"{name}.crt", "-extfile", extensions)
