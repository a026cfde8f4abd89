"""A job's certificates and keys: made once, readable by their owner only, gone with the job."""

from __future__ import annotations

import datetime
import ipaddress
import secrets
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from deploy.node.config import write_private

_LIFE = datetime.timedelta(days=3650)


class Identity:
    """The secrets of one job in a folder.

    Attributes:
        authority: certificate that nodes check the SuperLink against.
        certificate: of the SuperLink.
        key: of the SuperLink.
        control: token without which the SuperLink's control API answers nothing.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.authority = folder / "authority.pem"
        self.certificate = folder / "superlink.pem"
        self.key = folder / "superlink.key"
        self.control = folder / "control.token"

    def make(self, host: str, clients: list[str]) -> None:
        """Make what is missing.

        Args:
            host: IP address at which nodes reach the SuperLink.
            clients: names.
        """
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # The certificate is written last: where it is, all of the three fit together.
        if not self.certificate.exists():
            self._make_certificates(host)
        if not self.control.exists():
            write_private(self.control, secrets.token_urlsafe(32))
        for name in clients:
            if not self.client_key(name).exists():
                write_private(self.client_key(name), _ssh(ec.generate_private_key(ec.SECP384R1())))

    def client_key(self, name: str) -> Path:
        """File of a client's private key, as OpenSSH writes it."""
        return self._folder / f"client-{name}.key"

    def private_key(self, name: str) -> ec.EllipticCurvePrivateKey:
        """A client's private key."""
        key = serialization.load_ssh_private_key(self.client_key(name).read_bytes(), password=None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        return key

    def public_key(self, name: str) -> bytes:
        """A client's public key as PEM: its identity at the SuperLink."""
        return (
            self.private_key(name)
            .public_key()
            .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        )

    def token(self) -> str:
        """For the control API. Never logged."""
        return self.control.read_text()

    def destroy(self) -> None:
        """Remove everything secret."""
        for path in (self.key, self.control, *self._folder.glob("client-*.key")):
            path.unlink(missing_ok=True)

    def _make_certificates(self, host: str) -> None:
        # The authority signs this one certificate; its key is never written anywhere.
        authority_key = ec.generate_private_key(ec.SECP384R1())
        key = ec.generate_private_key(ec.SECP384R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "spotweave job")])
        authority = (
            _builder(name, name, authority_key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key()), critical=False
            )
            .sign(authority_key, hashes.SHA384())
        )
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
        certificate = (
            _builder(subject, name, key.public_key())
            .add_extension(
                x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))]), critical=False
            )
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False
            )
            .sign(authority_key, hashes.SHA384())
        )
        pem = serialization.Encoding.PEM
        write_private(self.authority, authority.public_bytes(pem))
        write_private(
            self.key,
            key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
        )
        write_private(self.certificate, certificate.public_bytes(pem))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        # A node's clock may be behind.
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + _LIFE)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _ssh(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
