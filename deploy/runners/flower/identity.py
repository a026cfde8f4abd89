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

from spotweave.deploy.runners.jobfolder import JobFolder
from spotweave.files import write_private

_LIFE = datetime.timedelta(days=3650)
_AUTHORITY, _CERTIFICATE = "authority.pem", "superlink.pem"
_KEY, _CONTROL, _RUNTIME = "superlink.key", "control.token", "runtime.token"


class Identity:
    """The secrets of one job.

    Args of its making:
        folder: all of them, for the scheduler alone.
        shown: what its SuperLink needs is copied there. The user's ServerApp may run as the same user as the
            SuperLink, so nothing is ever read back from there, and clients' keys never get there.

    Attributes:
        authority: certificate that nodes check the SuperLink against.
        shown_authority: the same, for the SuperLink and its ServerApps.
        shown_certificate: of the SuperLink.
        shown_key: of the SuperLink.
        shown_control: token without which the SuperLink's control API answers nothing.
        shown_runtime: token with which a SuperExec on another machine asks for the job's ServerApp, and
            nothing else.
    """

    def __init__(self, folder: Path, shown: Path) -> None:
        self._folder, self._shown = folder, shown
        self.authority = folder / _AUTHORITY
        self.shown_authority = shown / _AUTHORITY
        self.shown_certificate = shown / _CERTIFICATE
        self.shown_key = shown / _KEY
        self.shown_control = shown / _CONTROL
        self.shown_runtime = shown / _RUNTIME

    def make(self, host: str) -> None:
        """Make what is missing, for a SuperLink that nodes reach at this IP address."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # The certificate is written last: where it is, all of the three fit together.
        if not (self._folder / _CERTIFICATE).exists():
            self._make_certificates(host)
        for token in (_CONTROL, _RUNTIME):
            if not (self._folder / token).exists():
                write_private(self._folder / token, secrets.token_urlsafe(32))

    def show(self) -> None:
        """Give the SuperLink what it needs."""
        self._shown.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in (_AUTHORITY, _CERTIFICATE, _KEY, _CONTROL, _RUNTIME):
            JobFolder(self._shown).write(name, (self._folder / name).read_bytes())

    def client_key(self, name: str) -> Path:
        """File of a client's private key, as OpenSSH writes it; made when it is asked for first."""
        path = self._folder / f"client-{name}.key"
        if not path.exists():
            write_private(path, _ssh(ec.generate_private_key(ec.SECP384R1())))
        return path

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
        return (self._folder / _CONTROL).read_text()

    def runtime_token(self) -> str:
        """The one of `shown_runtime`. Never logged."""
        return (self._folder / _RUNTIME).read_text()

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
            self._folder / _KEY,
            key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
        )
        write_private(self._folder / _CERTIFICATE, certificate.public_bytes(pem))


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
