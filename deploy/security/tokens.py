"""Access tokens: bearer tokens of the API, shown once and kept as hashes.

A token is `spw_ID_SECRET`; the ID finds its record, the SECRET is 32 random bytes. The hash is HMAC-SHA-256
under the deployment's pepper, not scrypt: a slow hash protects guessable passwords; 256 random bits cannot be
guessed at any speed, while scrypt would cost each request tens of milliseconds and be a way to overload the
service. The pepper keeps someone who can write to the database, but has not the key file, from making tokens.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from deploy.security.keys import DeploymentKey, SecurityError
from deploy.security.roles import Role, TokenRecord

_FORM = re.compile(r"spw_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")
_NO_DIGEST = bytes(32)
_USE_NOTED_EVERY_S = 60.0
_UNKNOWN = (
    "this access token is not known here: check that it was copied whole, or have an administrator make one "
    "(spotweave token create)"
)


class TokenRows(Protocol):
    """Where records are kept: `deploy.store.tokens.Tokens`."""

    def add(self, record: TokenRecord) -> None:
        """Keep a new one."""

    def get(self, token_id: str) -> TokenRecord | None:
        """One, if there is one."""

    def all(self) -> Sequence[TokenRecord]:
        """Every one, the oldest first."""

    def revoke(self, token_id: str, now_s: float) -> bool:
        """Make it invalid for ever; False if there is none such."""

    def used(self, token_id: str, now_s: float) -> None:
        """Note its use, unless that would have to wait."""


class TokenStore(Protocol):
    """The store, as far as tokens need it."""

    @property
    def tokens(self) -> TokenRows:
        """The records."""

    @property
    def key(self) -> DeploymentKey:
        """The deployment's key."""

    def transaction(self) -> AbstractContextManager[None]:
        """What is written in it is written whole or not at all."""


class TokenError(SecurityError):
    """The token gives no access (HTTP 401)."""


@dataclass(frozen=True)
class NewToken:
    """A token at the one moment when it can be shown.

    Attributes:
        text: the token itself. Never logged.
        record: what is kept of it.
    """

    text: str = field(repr=False)
    record: TokenRecord


class AccessTokens:
    """Makes, checks and revokes tokens. Safe to call from several threads."""

    def __init__(self, store: TokenStore) -> None:
        self._store = store

    def create(self, name: str, role: Role, now_s: float, valid_s: float | None = None) -> NewToken:
        """Make a token and keep its hash.

        Args:
            name: whom or what it is for; 1 to 80 printable characters.
            role: what it allows.
            now_s: epoch seconds.
            valid_s: seconds until it expires; None: never.

        Raises:
            SecurityError: if the name or the validity cannot be used.
        """
        if not (0 < len(name) <= 80 and name.isprintable()):
            raise SecurityError(f"a token has the name {name!r}: expected 1 to 80 printable characters")
        if valid_s is not None and not 0 < valid_s < 1e10:
            raise SecurityError(f"a token would be valid for {valid_s} s: expected more than 0")
        token_id = secrets.token_hex(6)
        text = f"spw_{token_id}_{secrets.token_urlsafe(32)}"
        record = TokenRecord(
            token_id=token_id,
            name=name,
            role=role,
            digest=self._store.key.digest(text),
            created_s=now_s,
            expires_s=None if valid_s is None else now_s + valid_s,
        )
        with self._store.transaction():
            self._store.tokens.add(record)
        return NewToken(text, record)

    def check(self, text: str, now_s: float) -> TokenRecord:
        """Whose token this is.

        Raises:
            TokenError: if it is malformed, unknown, revoked or expired. Only who has the whole token is
                told which of the last two.
        """
        form = _FORM.fullmatch(text)
        record = None if form is None else self._store.tokens.get(form[1])
        digest = _NO_DIGEST if record is None else record.digest
        if not hmac.compare_digest(self._store.key.digest(text), digest) or record is None:
            raise TokenError(_UNKNOWN)
        if record.revoked_s is not None:
            raise TokenError(f"the access token {record.token_id} ({record.name}) was revoked: use another")
        if not record.valid(now_s):
            raise TokenError(
                f"the access token {record.token_id} ({record.name}) has expired: make a new one"
            )
        if record.last_used_s is None or now_s - record.last_used_s >= _USE_NOTED_EVERY_S:
            # Each note is a write to the disk, so not every request makes one.
            self._store.tokens.used(record.token_id, now_s)
        return record

    def revoke(self, token_id: str, now_s: float) -> None:
        """Make a token invalid from now on.

        Raises:
            SecurityError: if there is none such.
        """
        with self._store.transaction():
            found = self._store.tokens.revoke(token_id, now_s)
        if not found:
            raise SecurityError(f"there is no access token {token_id!r}: see spotweave token list")

    def list(self) -> Sequence[TokenRecord]:
        """Every token that was ever made, the oldest first."""
        return self._store.tokens.all()

    def any_valid(self, now_s: float) -> bool:
        """Whether at least one can be used now."""
        return any(record.valid(now_s) for record in self._store.tokens.all())
