"""Certificates made for a test, and TLS contexts with them."""

import ssl
import subprocess
from pathlib import Path


def make_certificate(folder: Path, name: str, kind: str = "DNS") -> tuple[Path, Path]:
    """A certificate for that name, or for an address (`IP`), and its key."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "2", "-subj", f"/CN={name}",
         "-addext", f"subjectAltName={kind}:{name}", "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    return certificate, key


def contexts_for(name: str, folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """TLS contexts of a receiver with that name, and of a client that trusts it."""
    certificate, key = make_certificate(folder, name)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    return server, ssl.create_default_context(cafile=str(certificate))
