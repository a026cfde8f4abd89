"""Access tokens: bearer tokens of the API, shown once and kept as hashes.

A token is `spw_ID_SECRET`; the ID finds its record, the SECRET is 32 random bytes. The hash is HMAC-SHA-256
under the deployment's pepper, not scrypt: a slow hash protects guessable passwords; 256 random bits cannot be
guessed at any speed, while scrypt would cost each request tens of milliseconds and be a way to overload the
service. The pepper keeps someone who can write to the database, but has not the key file, from making tokens.
"""

from __future__ import annotations

import base64
import hmac
import re
import secrets
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from spotweave.deploy.security.keys import SecurityError

if TYPE_CHECKING:
    # The store imports this module.
    from spotweave.deploy.store.store import Store

# Roles, and the tokens that carry them, as the store keeps them.


class Role(StrEnum):
    """What a token allows; each role includes the ones above it."""

    VIEWER = "viewer"
    """See what runs, what was decided and what it costs; not what others' jobs were given or say."""
    SUBMITTER = "submitter"  # also submit jobs and cancel them
    ADMIN = "admin"  # also manage tokens and the service itself

    def allows(self, needed: Role) -> bool:
        """Whether this role may do what `needed` is required for."""
        order = list(Role)
        return order.index(self) >= order.index(needed)


@dataclass(frozen=True)
class TokenRecord:
    """An access token without its secret."""

    token_id: str  # public part of the token; in logs, events and listings
    name: str  # whom or what it is for
    role: Role  # what it allows
    digest: bytes = field(repr=False)  # of the whole token, see `deploy.security.tokens`
    created_s: float  # epoch seconds
    expires_s: float | None = None  # epoch seconds; None: never
    revoked_s: float | None = None  # epoch seconds; None: it is not
    last_used_s: float | None = None  # epoch seconds, to about a minute; None: never used

    def valid(self, now_s: float) -> bool:
        """Whether the token is valid now."""
        return self.revoked_s is None and (self.expires_s is None or now_s < self.expires_s)


_FORM = re.compile(r"spw_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")
_NO_DIGEST = bytes(32)
_USE_NOTED_EVERY_S = 60.0
_UNKNOWN = (
    "this access token is not known here: check that it was copied whole, or have an administrator make one "
    "(spotweave token create)"
)


class TokenError(SecurityError):
    """The token gives no access (HTTP 401)."""


@dataclass(frozen=True)
class NewToken:
    """A token at the one moment when it can be shown."""

    text: str = field(repr=False)  # the token itself. Never logged.
    record: TokenRecord  # what is kept of it


class AccessTokens:
    """Makes, checks and revokes tokens. Safe to call from several threads."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def create(self, name: str, role: Role, now_s: float, valid_s: float | None = None) -> NewToken:
        """Make a token, valid for so long (None: for ever), and keep its hash.

        Raises SecurityError if the name or the validity cannot be used.
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
        """Look up the record of a token.

        Raises TokenError if it is malformed, unknown, revoked or expired. Only who has the whole token is
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
        """Make a token invalid from now on. Raises SecurityError if there is none such."""
        with self._store.transaction():
            found = self._store.tokens.revoke(token_id, now_s)
        if not found:
            raise SecurityError(f"there is no access token {token_id!r}: see spotweave token list")

    def any_valid(self, now_s: float) -> bool:
        """Whether at least one token is valid now."""
        return any(record.valid(now_s) for record in self._store.tokens.all())


# How a rented node and its scheduler come to know each other: a token and a certificate.
#
# A cloud instance is told who it is through user data, which is no place for secrets. So it is told a *join
# token*, HMAC-SHA-256 of its client token under its node token: the scheduler can check it without keeping
# anything more, the node token cannot be computed from it, and it fits one instance only. `POST /v1/join`
# gives the node token for it, over TLS, while the instance is young and its agent has never answered: after
# that the join token opens nothing.
#
# With it the node shows the certificate that it made for itself. The scheduler keeps the first one, refuses
# any other, and talks to this certificate alone: who stands between the two learns nothing and changes
# nothing. Whoever has read a node's user data and joins in its place shuts the node out: the node is refused
# and says so in its log, and its instance is given up.

VALID_S = 1800.0  # validity in seconds from the request; instances that take longer are given up before


def join_token(node_token: str, client_token: str) -> str:
    """The join token of an instance: 43 characters of base64url."""
    digest = hmac.digest(node_token.encode(), f"spotweave join\n{client_token}".encode(), "sha256")
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode("ascii")


def may_join(
    node_token: str, client_token: str, given: str, *, age_s: float, live: bool, answered: bool
) -> bool:
    """Whether a node that shows a join token gets its node token.

    `given` is what the node showed; `live`: the instance exists, or may.
    """
    right = hmac.compare_digest(join_token(node_token, client_token).encode(), given.encode())
    return right and live and not answered and 0 <= age_s <= VALID_S
