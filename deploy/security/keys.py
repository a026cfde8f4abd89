"""The deployment's key: a secret file that keeps what the store must not show.

Node tokens have to be readable again after a restart, and whoever holds one commands a machine. So they are
stored encrypted, under a key outside the database: backups, replicas and the administrators of a PostgreSQL
server see the database, and none of them sees the key. The same key peppers the hashes of access tokens.
"""

from __future__ import annotations

import hmac
import secrets
import stat
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from spotweave.files import write_bytes

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
