"""A job's certificates and keys: made once, readable by their owner only, gone with the job."""

from __future__ import annotations

import secrets
from pathlib import Path

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from spotweave.deploy.runners.jobfolder import JobFolder
from spotweave.deploy.security.tls import self_signed
from spotweave.files import write_private

AUTHORITY, CERTIFICATE, KEY = "authority.pem", "superlink.pem", "superlink.key"
CONTROL, RUNTIME = "control.token", "runtime.token"
"""Without the first, the SuperLink's control API answers nothing; with the second, a SuperExec on another
machine asks for the job's ServerApp, and nothing else."""


class Identity:
    """The secrets of one job, all of them in a folder for the scheduler alone.

    What its SuperLink needs is copied to `shown`. The user's ServerApp may run as the same user as the
    SuperLink, so nothing is ever read back from there, and clients' keys never get there.
    """

    def __init__(self, folder: Path, shown: Path) -> None:
        self._folder, self.shown = folder, shown
        self.authority = folder / AUTHORITY  # nodes check the SuperLink against it: its own certificate

    def make(self, host: str) -> None:
        """Make what is missing, for a SuperLink that nodes reach at this IP address."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # The certificate is written last: where it is, all of the three fit together.
        if not (self._folder / CERTIFICATE).exists():
            pair = self_signed("spotweave job", ec.SECP384R1(), hashes.SHA384(), host)
            write_private(self.authority, pair.certificate)
            write_private(self._folder / KEY, pair.key)
            write_private(self._folder / CERTIFICATE, pair.certificate)
        for token in (CONTROL, RUNTIME):
            if not (self._folder / token).exists():
                write_private(self._folder / token, secrets.token_urlsafe(32))

    def show(self) -> None:
        """Give the SuperLink what it needs."""
        self.shown.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in (AUTHORITY, CERTIFICATE, KEY, CONTROL, RUNTIME):
            JobFolder(self.shown).write(name, (self._folder / name).read_bytes())

    def client_key(self, name: str) -> Path:
        """File of a client's private key, as OpenSSH writes it; made when it is asked for first."""
        path = self._folder / f"client-{name}.key"
        if not path.exists():
            key = ec.generate_private_key(ec.SECP384R1()).private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
            )
            write_private(path, key)
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
        return (self._folder / CONTROL).read_text()

    def runtime_token(self) -> str:
        """Token of a SuperExec on another machine. Never logged."""
        return (self._folder / RUNTIME).read_text()
