"""Beyond loopback only with tokens and TLS, or by a person's word."""

from __future__ import annotations

import itertools

import pytest

from deploy.security.keys import SecurityError
from deploy.security.tls import INSECURE_WORDS, is_loopback, listen_allowed

LOOPBACK = ["127.0.0.1", "127.0.3.7", "::1", "[::1]", "localhost", "::ffff:127.0.0.1"]
BEYOND = [
    "0.0.0.0",
    "::",
    "",
    "10.0.0.1",
    "192.168.1.1",
    "::ffff:10.0.0.1",
    "spot.example",
    "localhost.evil",
    "127.1",
]


def test_which_hosts_only_this_machine_reaches() -> None:
    assert [host for host in LOOPBACK + BEYOND if is_loopback(host)] == LOOPBACK


@pytest.mark.parametrize("host", LOOPBACK)
def test_loopback_needs_nothing(host: str) -> None:
    listen_allowed(host, has_tokens=False, has_tls=False)


@pytest.mark.parametrize("host", BEYOND)
def test_beyond_loopback_both_are_needed(host: str) -> None:
    listen_allowed(host, has_tokens=True, has_tls=True)
    for has_tokens, has_tls in itertools.product([False, True], repeat=2):
        if has_tokens and has_tls:
            continue
        with pytest.raises(SecurityError, match="refusing to listen on") as caught:
            listen_allowed(host, has_tokens=has_tokens, has_tls=has_tls)
        assert ("access tokens" in str(caught.value)) is not has_tokens
        assert ("TLS certificate" in str(caught.value)) is not has_tls
        assert "\n" not in str(caught.value)
        listen_allowed(host, has_tokens=has_tokens, has_tls=has_tls, insecure_in_words=INSECURE_WORDS)


@pytest.mark.parametrize("words", ["", "yes", "true", INSECURE_WORDS.upper()])
def test_only_the_exact_words_count(words: str) -> None:
    with pytest.raises(SecurityError, match="expected exactly"):
        listen_allowed("0.0.0.0", has_tokens=True, has_tls=True, insecure_in_words=words)
