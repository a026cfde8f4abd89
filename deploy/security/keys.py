"""Keys and certificates: the deployment's own key, and what TLS needs."""

from __future__ import annotations

import datetime as dt
import hmac
import ipaddress
import secrets
import ssl
import stat
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidTag, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from spotweave.files import write_bytes

# The deployment's key: a secret file that keeps what the store must not show.
#
# Node tokens have to be readable again after a restart, and whoever holds one commands a machine. So they
# are stored encrypted, under a key outside the database: backups, replicas and the administrators of a
# PostgreSQL server see the database, and none of them sees the key. The same key peppers the hashes of
# access tokens.


_BYTES = 32
_NONCE = 12


class SecurityError(ValueError):
    """A secret, certificate or token cannot be used; the message is one line that says what to do."""


def require_private(path: Path, what: str) -> None:
    """Refuse a secret file that is missing, no plain file, or open to others. Raises SecurityError."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise SecurityError(f"cannot read {what} {path}: {error.strerror}. Check the path") from error
    if not stat.S_ISREG(mode):
        raise SecurityError(f"{what} {path} is not a file: give the path of a file")
    if mode & 0o077:
        raise SecurityError(
            f"{what} {path} has permissions {stat.S_IMODE(mode):04o}, so that others can use it: "
            f"expected 0600; run chmod 600 {path}, and think of it as known to others"
        )


class DeploymentKey:
    """256 random bits; encrypts, and derives what else needs a secret."""

    def __init__(self, secret: bytes) -> None:
        if len(secret) != _BYTES:
            raise SecurityError(f"a deployment key has {len(secret)} bytes: expected {_BYTES}")
        self._cipher = AESGCM(_derive(secret, b"spotweave node tokens"))
        self._pepper = _derive(secret, b"spotweave access tokens")
        self.mark = _derive(secret, b"spotweave key mark").hex()
        """Tells whether two keys are the same, and nothing else of them."""

    @classmethod
    def load(cls, path: Path, *, create: bool = False) -> DeploymentKey:
        """Read the key file: 64 hexadecimal digits, permissions 0600. `create`: write one if there is none.

        Raises SecurityError if it is missing, readable for others, or holds something else.
        """
        if create and not path.exists():
            try:
                # Of two who make one at once, both use the first one's.
                write_bytes(path, f"{secrets.token_hex(_BYTES)}\n".encode(), mode=0o600, overwrite=False)
            except FileExistsError:
                pass
            except OSError as error:
                raise SecurityError(
                    f"cannot write {path}: {error.strerror}. Choose another directory"
                ) from error
        require_private(path, "the key file")
        try:
            return cls(bytes.fromhex(path.read_text(encoding="ascii").strip()))
        except (ValueError, OSError) as error:
            raise SecurityError(
                f"the key file {path} does not hold a key: expected {2 * _BYTES} hexadecimal digits; "
                "restore it from its backup"
            ) from error

    def digest(self, text: str) -> bytes:
        """HMAC-SHA-256 of a text under the pepper, 32 bytes."""
        return hmac.digest(self._pepper, text.encode(errors="surrogatepass"), "sha256")

    def seal(self, text: str, context: str) -> bytes:
        """Encrypt a text (AES-256-GCM).

        It opens in the same context only: not in another row of the store.
        """
        nonce = secrets.token_bytes(_NONCE)
        return nonce + self._cipher.encrypt(nonce, text.encode(), context.encode())

    def unseal(self, sealed: bytes, context: str) -> str:
        """The text again. Raises SecurityError if the key or the context is another, or it was changed."""
        try:
            return self._cipher.decrypt(sealed[:_NONCE], sealed[_NONCE:], context.encode()).decode()
        except InvalidTag as error:
            raise SecurityError(
                f"the stored secret of {context} cannot be decrypted: it was changed, or the key file is "
                "another deployment's; restore the key file that belongs to this database"
            ) from error


def _derive(secret: bytes, purpose: bytes) -> bytes:
    return HKDF(SHA256(), _BYTES, salt=None, info=purpose).derive(secret)


# Certificate and key files for TLS.


_CURVE = ec.SECP256R1()
_PUBLIC = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, both PEM."""

    certificate: str
    key: str = field(repr=False)


@dataclass(frozen=True)
class TlsFiles:
    """A certificate and its key, checked."""

    certificate: Path  # PEM file; the server's certificate first, then the chain
    key: Path  # PEM file


def load_tls(certificate: Path, key: Path, now_s: float) -> TlsFiles:
    """Check that a listener can use these files: the server's certificate and its chain, and its key.

    Raises SecurityError if one is missing or is not PEM, they do not belong together, a certificate is
    expired or not yet valid, or others may read the key.
    """
    try:
        chain = x509.load_pem_x509_certificates(certificate.read_bytes())
    except OSError as error:
        raise SecurityError(
            f"cannot read the TLS certificate {certificate}: {error.strerror}. Check the path"
        ) from error
    except ValueError as error:
        raise SecurityError(
            f"{certificate} holds no certificate: expected PEM (-----BEGIN CERTIFICATE-----)"
        ) from error
    require_private(key, "the TLS key")
    try:
        private = serialization.load_pem_private_key(key.read_bytes(), password=None)
    except TypeError as error:
        raise SecurityError(f"the TLS key {key} has a password: expected one without") from error
    except (OSError, ValueError) as error:
        raise SecurityError(
            f"{key} holds no private key: expected PEM (-----BEGIN PRIVATE KEY-----)"
        ) from error
    if private.public_key().public_bytes(*_PUBLIC) != chain[0].public_key().public_bytes(*_PUBLIC):
        raise SecurityError(
            f"the TLS key {key} does not belong to the certificate {certificate}: "
            "give the pair, with the server's own certificate first"
        )
    now = dt.datetime.fromtimestamp(now_s, dt.UTC)
    for one in chain:
        if now >= one.not_valid_after_utc:
            raise SecurityError(
                f"the TLS certificate {certificate} expired at {_utc(one.not_valid_after_utc)}: renew it"
            )
        if now < one.not_valid_before_utc:
            raise SecurityError(
                f"the TLS certificate {certificate} is valid only from {_utc(one.not_valid_before_utc)} on: "
                "wait, or set this machine's clock"
            )
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except ssl.SSLError as error:
        raise SecurityError(
            f"TLS cannot use {certificate} and {key}: {error.reason or error}. "
            "Make a pair with a current key type"
        ) from error
    return TlsFiles(certificate, key)


def node_pair() -> Pair:
    """Make what a node agent shows to its scheduler, which trusts this certificate and no other."""
    return self_signed("spotweave node", _CURVE, hashes.SHA256())


def self_signed(
    name: str, curve: ec.EllipticCurve, digest: hashes.SHA256 | hashes.SHA384, address: str | None = None
) -> Pair:
    """Make a server's certificate that is trusted itself, for an IP address if clients ask for that.

    It signs no other.
    """
    private = ec.generate_private_key(curve)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        # A node's clock may be wrong, and who pins a certificate does not ask for dates.
        .not_valid_before(dt.datetime(2000, 1, 1, tzinfo=dt.UTC))
        .not_valid_after(dt.datetime(9999, 12, 31, 23, 59, 59, tzinfo=dt.UTC))
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    )
    if address is not None:
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
        builder = builder.add_extension(names, critical=False)
    pem = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Pair(_pem(builder.sign(private, digest)), pem.decode("ascii"))


def node_certificate(pem: str) -> str:
    """A node's certificate as it is kept: one, in PEM. Raises SecurityError if no node agent makes such."""
    try:
        (one,) = x509.load_pem_x509_certificates(pem.encode())
        key = one.public_key()
    except (ValueError, UnsupportedAlgorithm) as error:
        raise SecurityError("certificate: expected one X.509 certificate in PEM") from error
    if not isinstance(key, ec.EllipticCurvePublicKey) or key.curve.name != _CURVE.name:
        raise SecurityError(f"certificate: expected one of a {_CURVE.name} key")
    return _pem(one)


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode("ascii")


def _utc(moment: dt.datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"


# Where the service may listen.

INSECURE_WORDS = "anyone who reaches this port may use it"


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a listener on `host`; of names only "localhost" is believed."""
    try:
        address = ipaddress.ip_address(host.strip("[]").split("%")[0])
    except ValueError:
        return host == "localhost"
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback


def listen_allowed(
    host: str, *, has_tokens: bool, has_tls: bool, insecure_in_words: str | None = None
) -> None:
    """Refuse to listen where others can reach it, unless it is protected by tokens and by TLS.

    `host` "" is every address; `has_tokens`: requests need one, and a valid one exists; `insecure_in_words`:
    `INSECURE_WORDS` exactly, from a person who wants it without. Raises SecurityError if it may not.
    """
    if insecure_in_words is not None and insecure_in_words != INSECURE_WORDS:
        raise SecurityError(
            f"to listen without protection was asked for with {insecure_in_words!r}: expected exactly "
            f"{INSECURE_WORDS!r}"
        )
    if is_loopback(host) or (has_tokens and has_tls) or insecure_in_words == INSECURE_WORDS:
        return
    missing = " and ".join(
        what
        for what, there in (("access tokens", has_tokens), ("a TLS certificate and key", has_tls))
        if not there
    )
    raise SecurityError(
        f"refusing to listen on {host or 'every address'}, which other machines can reach, without {missing}"
        f": set them up, listen on 127.0.0.1, or say {INSECURE_WORDS!r}"
    )
