"""A certificate that is its own authority, for listeners on loopback."""

from __future__ import annotations

import datetime as dt
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from spotweave.deploy.security.keys import TlsFiles, load_tls
from spotweave.files import write_private


def self_signed(folder: Path, now_s: float) -> TlsFiles:
    """Write tls.crt and tls.key, valid for 30 days for localhost and its addresses."""
    now = dt.datetime.fromtimestamp(now_s, dt.UTC)
    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "spotweave (self-signed)")])
    hosts = [x509.IPAddress(ipaddress.ip_address(one)) for one in ("127.0.0.1", "::1")]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=5))
        .not_valid_after(now + dt.timedelta(days=30))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost"), *hosts]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(private, hashes.SHA256())
    )
    key = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    write_private(folder / "tls.key", key)
    write_private(folder / "tls.crt", certificate.public_bytes(serialization.Encoding.PEM))
    return load_tls(folder / "tls.crt", folder / "tls.key", now_s)
