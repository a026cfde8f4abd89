"""Certificates, keys and a handshake; beyond loopback only with them and tokens, or by a person's word."""

from __future__ import annotations

import datetime as dt
import socket
import ssl
import threading
import time
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from deploy.security.keys import SecurityError
from deploy.security.tls import INSECURE_WORDS, TlsFiles, is_loopback, listen_allowed, load_tls
from tests.deploy.tls import self_signed

DAY = 86_400.0


@pytest.fixture
def pair(tmp_path: Path) -> TlsFiles:
    return self_signed(tmp_path, time.time())


def refused(certificate: Path, key: Path, said: str, now_s: float | None = None) -> None:
    with pytest.raises(SecurityError, match=said) as caught:
        load_tls(certificate, key, time.time() if now_s is None else now_s)
    assert "\n" not in str(caught.value)


def test_a_client_that_trusts_the_pair_connects_and_another_does_not(pair: TlsFiles) -> None:
    said: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(20)

        def serve() -> None:
            for _ in range(2):
                plain, _ = listener.accept()
                try:
                    with pair.server_context().wrap_socket(plain, server_side=True) as secure:
                        said.append(secure.recv(10))
                except (ssl.SSLError, ConnectionError):
                    plain.close()

        server = threading.Thread(target=serve)
        server.start()
        try:
            trusting = ssl.create_default_context(cafile=str(pair.certificate))
            with (
                socket.create_connection(listener.getsockname(), timeout=20) as plain,
                trusting.wrap_socket(plain, server_hostname="127.0.0.1") as secure,
            ):
                assert secure.version() in ("TLSv1.2", "TLSv1.3")
                secure.sendall(b"hello")
            strict = ssl.create_default_context()
            with (
                socket.create_connection(listener.getsockname(), timeout=20) as plain,
                pytest.raises(ssl.SSLCertVerificationError),
            ):
                strict.wrap_socket(plain, server_hostname="127.0.0.1")
        finally:
            server.join()
    assert said == [b"hello"]


def test_nothing_older_than_tls_1_2_is_spoken(pair: TlsFiles) -> None:
    assert pair.server_context().minimum_version >= ssl.TLSVersion.TLSv1_2


def test_the_key_is_private(pair: TlsFiles) -> None:
    assert pair.key.stat().st_mode & 0o777 == 0o600
    pair.key.chmod(0o640)
    refused(pair.certificate, pair.key, "the TLS key .* has permissions 0640.*chmod 600")


def test_files_that_are_missing_or_something_else(pair: TlsFiles, tmp_path: Path) -> None:
    refused(tmp_path / "no.crt", pair.key, r"cannot read the TLS certificate .*no.crt: No such file")
    refused(pair.certificate, tmp_path / "no.key", r"cannot read the TLS key .*no.key: No such file")
    refused(tmp_path, pair.key, "cannot read the TLS certificate .*: Is a directory")
    other = tmp_path / "other"
    other.write_text("hello")
    other.chmod(0o600)
    refused(other, pair.key, "holds no certificate: expected PEM")
    refused(pair.certificate, other, "holds no private key: expected PEM")
    refused(pair.certificate, pair.certificate, "holds no private key: expected PEM")
    (tmp_path / "another").mkdir()
    another = self_signed(tmp_path / "another", time.time())
    refused(pair.certificate, another.key, "does not belong to the certificate")


def test_a_key_with_a_password(pair: TlsFiles) -> None:
    key = serialization.load_pem_private_key(pair.key.read_bytes(), None)
    encryption = serialization.BestAvailableEncryption(b"geheim")
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    pair.key.write_bytes(key.private_bytes(pem, pkcs8, encryption))
    refused(pair.certificate, pair.key, "has a password: expected one without")


def test_before_and_after_its_time(pair: TlsFiles) -> None:
    made = time.time()
    assert abs(pair.expires_s - made - 30 * DAY) < 60
    load_tls(pair.certificate, pair.key, made + 29 * DAY)
    expired = dt.datetime.fromtimestamp(pair.expires_s, dt.UTC)
    refused(pair.certificate, pair.key, f"expired at {expired:%Y-%m-%d %H:%M} UTC: renew it", made + 31 * DAY)
    refused(pair.certificate, pair.key, "is valid only from", made - DAY)


def test_an_expired_certificate_of_the_chain_is_noticed(pair: TlsFiles, tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    old = self_signed(tmp_path / "old", time.time() - 60 * DAY)
    pair.certificate.write_bytes(pair.certificate.read_bytes() + old.certificate.read_bytes())
    refused(pair.certificate, pair.key, "expired at")


LOOPBACK = ["127.0.0.1", "127.0.3.7", "::1", "[::1]", "localhost", "::ffff:127.0.0.1"]
BEYOND = ["0.0.0.0", "::", "", "10.0.0.1", "192.168.1.1", "::ffff:10.0.0.1", "spot.example"]
BEYOND += ["localhost.evil", "127.1"]


def test_which_hosts_only_this_machine_reaches() -> None:
    assert [host for host in LOOPBACK + BEYOND if is_loopback(host)] == LOOPBACK


@pytest.mark.parametrize("host", LOOPBACK)
def test_loopback_needs_nothing(host: str) -> None:
    listen_allowed(host, has_tokens=False, has_tls=False)


@pytest.mark.parametrize("host", BEYOND)
def test_beyond_loopback_both_are_needed(host: str) -> None:
    listen_allowed(host, has_tokens=True, has_tls=True)
    for has_tokens, has_tls in ((False, False), (False, True), (True, False)):
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
