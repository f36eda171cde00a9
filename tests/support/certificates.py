"""Certificates for servers of tests."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.programs import require_program


def certify(folder: Path) -> tuple[Path, Path]:
    """Write a self-signed certificate for localhost and its key into a folder, and return both paths."""
    certificate, key = folder / "fullchain.pem", folder / "privkey.pem"
    kind = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", str(key))
    names = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost")
    command = [require_program("openssl", "openssl"), "req", "-x509", "-days", "1", *kind, *names, "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True, timeout=30)
    return certificate, key
