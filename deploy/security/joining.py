"""How a rented node and its scheduler come to know each other: a token and a certificate.

A cloud instance is told who it is through user data, which is no place for secrets. So it is told a *join
token*, HMAC-SHA-256 of its client token under its node token: the scheduler can check it without keeping
anything more, the node token cannot be computed from it, and it fits one instance only. `POST /v1/join` gives
the node token for it, over TLS, while the instance is young and its agent has never answered: after that the
join token opens nothing.

With it the node shows the certificate that it made for itself. The scheduler keeps the first one, refuses
any other, and talks to this certificate alone: who stands between the two learns nothing and changes nothing.
Whoever has read a node's user data and joins in its place shuts the node out: the node is refused and says so
in its log, and its instance is given up.
"""

from __future__ import annotations

import base64
import hmac

VALID_S = 1800.0
"""From the request; an instance that has not come up by then is given up long before."""


def join_token(node_token: str, client_token: str) -> str:
    """The join token of an instance: 43 characters of base64url."""
    digest = hmac.digest(node_token.encode(), f"spotweave join\n{client_token}".encode(), "sha256")
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode("ascii")


def may_join(
    node_token: str, client_token: str, given: str, *, age_s: float, live: bool, answered: bool
) -> bool:
    """Whether a node that shows a join token gets its node token.

    Args:
        node_token: of the instance.
        client_token: of the instance.
        given: what the node showed.
        age_s: seconds since the instance was asked for.
        live: whether it exists, or may.
        answered: whether its agent has ever answered.
    """
    right = hmac.compare_digest(join_token(node_token, client_token).encode(), given.encode())
    return right and live and not answered and 0 <= age_s <= VALID_S
