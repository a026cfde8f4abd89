"""Where the service may listen."""

from __future__ import annotations

import ipaddress

from deploy.security.keys import SecurityError

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

    Args:
        host: address or name to listen on; "" is every address.
        has_tokens: whether requests need a token, and a valid one exists.
        has_tls: whether connections are encrypted.
        insecure_in_words: `INSECURE_WORDS` exactly, from a person who wants it without.

    Raises:
        SecurityError: if it may not.
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
