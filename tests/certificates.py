"""Certificates for servers with TLS on this machine."""

import subprocess
from pathlib import Path


def make_certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """Create a self-signed certificate for this machine, and its key."""
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
    ]
    command += ["-days", "2", "-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run(
        [*command, "-keyout", key, "-out", certificate], check=True, capture_output=True, timeout=30
    )
    return certificate, key


def make_signed_certificate(folder: Path, name: str) -> tuple[Path, Path, Path]:
    """Create an authority, and a certificate for this machine that it has signed, with its key."""
    authority, authority_key = make_certificate(folder, f"{name}-authority")
    certificate, key, request = (folder / f"{name}.{suffix}" for suffix in ("pem", "key", "csr"))
    new = ["openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    new += ["-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    new += ["-keyout", str(key), "-out", str(request)]
    sign = [
        "openssl",
        "x509",
        "-req",
        "-in",
        str(request),
        "-CA",
        str(authority),
        "-CAkey",
        str(authority_key),
    ]
    sign += ["-CAcreateserial", "-days", "2", "-copy_extensions", "copy", "-out", str(certificate)]
    for command in (new, sign):
        subprocess.run(command, check=True, capture_output=True, timeout=30)
    return authority, certificate, key
