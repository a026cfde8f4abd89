"""Roles, and the tokens that carry them, as the store keeps them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Role(StrEnum):
    """What a token allows; each role includes the ones above it."""

    VIEWER = "viewer"
    """See what runs, what was decided and what it costs; not what others' jobs were given or say."""
    SUBMITTER = "submitter"
    """Also submit jobs and cancel them."""
    ADMIN = "admin"
    """Also manage tokens and the service itself."""

    def allows(self, needed: Role) -> bool:
        """Whether this role may do what `needed` is required for."""
        order = list(Role)
        return order.index(self) >= order.index(needed)


@dataclass(frozen=True)
class TokenRecord:
    """An access token without its secret.

    Attributes:
        token_id: public part of the token; in logs, events and listings.
        name: whom or what it is for.
        role: what it allows.
        digest: of the whole token, see `deploy.security.tokens`.
        created_s: epoch seconds.
        expires_s: epoch seconds; None: never.
        revoked_s: epoch seconds; None: it is not.
        last_used_s: epoch seconds, to about a minute; None: never used.
    """

    token_id: str
    name: str
    role: Role
    digest: bytes = field(repr=False)
    created_s: float
    expires_s: float | None = None
    revoked_s: float | None = None
    last_used_s: float | None = None

    def valid(self, now_s: float) -> bool:
        """Whether it may be used now."""
        return self.revoked_s is None and (self.expires_s is None or now_s < self.expires_s)
