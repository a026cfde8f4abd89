"""Certificates and keys; beyond loopback only with them and tokens, or by a person's word."""

from __future__ import annotations

import stat
import threading
import time
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from hypothesis import given
from hypothesis import strategies as st

from spotweave.deploy.security.keys import (
    INSECURE_WORDS,
    DeploymentKey,
    SecurityError,
    TlsFiles,
    is_loopback,
    listen_allowed,
    load_tls,
)
from spotweave.deploy.security.tokens import AccessTokens, Role, TokenError, TokenRecord
from spotweave.deploy.store.store import Store
from spotweave.files import write_private
from tests.deploy.tls import self_signed

DAY = 86_400.0


@pytest.fixture
def pair(tmp_path: Path) -> TlsFiles:
    return self_signed(tmp_path, time.time())


def refused(certificate: Path, key: Path, said: str, now_s: float | None = None) -> None:
    with pytest.raises(SecurityError, match=said) as caught:
        load_tls(certificate, key, time.time() if now_s is None else now_s)
    assert "\n" not in str(caught.value)


def test_files_that_are_missing_open_to_others_or_something_else(pair: TlsFiles, tmp_path: Path) -> None:
    refused(tmp_path / "no.crt", pair.key, r"cannot read the TLS certificate .*no.crt: No such file")
    refused(pair.certificate, tmp_path / "no.key", r"cannot read the TLS key .*no.key: No such file")
    refused(tmp_path, pair.key, "cannot read the TLS certificate .*: Is a directory")
    other = tmp_path / "other"
    other.write_text("hello")
    other.chmod(0o600)
    refused(other, pair.key, "holds no certificate: expected PEM")
    refused(pair.certificate, other, "holds no private key: expected PEM")
    refused(pair.certificate, pair.certificate, "holds no private key: expected PEM")
    key = serialization.load_pem_private_key(pair.key.read_bytes(), None)
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    encryption = serialization.BestAvailableEncryption(b"geheim")
    other.write_bytes(key.private_bytes(pem, pkcs8, encryption))
    refused(pair.certificate, other, "has a password: expected one without")
    (tmp_path / "another").mkdir()
    another = self_signed(tmp_path / "another", time.time())
    refused(pair.certificate, another.key, "does not belong to the certificate")
    pair.key.chmod(0o640)
    refused(pair.certificate, pair.key, "the TLS key .* has permissions 0640.*chmod 600")


def test_before_and_after_its_time_and_that_of_its_chain(pair: TlsFiles, tmp_path: Path) -> None:
    made = time.time()
    load_tls(pair.certificate, pair.key, made + 29 * DAY)
    expired = x509.load_pem_x509_certificate(pair.certificate.read_bytes()).not_valid_after_utc
    refused(pair.certificate, pair.key, f"expired at {expired:%Y-%m-%d %H:%M} UTC: renew it", made + 31 * DAY)
    refused(pair.certificate, pair.key, "is valid only from", made - DAY)
    (tmp_path / "old").mkdir()
    old = self_signed(tmp_path / "old", made - 60 * DAY)
    pair.certificate.write_bytes(pair.certificate.read_bytes() + old.certificate.read_bytes())
    refused(pair.certificate, pair.key, "expired at")


LOOPBACK = ["127.0.0.1", "127.0.3.7", "::1", "[::1]", "localhost", "::ffff:127.0.0.1"]
BEYOND = ["0.0.0.0", "::", "", "10.0.0.1", "192.168.1.1", "::ffff:10.0.0.1", "spot.example"]
BEYOND += ["localhost.evil", "127.1"]


def test_hosts_that_only_this_machine_reaches_need_nothing() -> None:
    assert [host for host in LOOPBACK + BEYOND if is_loopback(host)] == LOOPBACK
    for host in LOOPBACK:
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


# Access tokens, kept in a real store.


NOW = 1_772_323_200.0


@pytest.fixture
def tokens(store: Store) -> AccessTokens:
    return AccessTokens(store)


def test_a_token_gives_access_and_is_not_stored(tokens: AccessTokens, store: Store, tmp_path: Path) -> None:
    assert not tokens.any_valid(NOW)
    made = tokens.create("ana's laptop", Role.SUBMITTER, NOW)
    assert tokens.any_valid(NOW)
    record = tokens.check(made.text, NOW + 1)
    assert (record.name, record.role, record.expires_s) == ("ana's laptop", Role.SUBMITTER, None)
    secret = made.text.split("_", 2)[2]
    assert len(secret) == 43, "32 bytes in base64"
    assert secret not in repr(made) + repr(record)
    store.close()
    files = [file for file in tmp_path.iterdir() if file.is_file()]
    assert all(secret.encode() not in file.read_bytes() for file in files)


def test_roles_are_ordered() -> None:
    assert {has: {needs for needs in Role if has.allows(needs)} for has in Role} == {
        Role.VIEWER: {Role.VIEWER},
        Role.SUBMITTER: {Role.VIEWER, Role.SUBMITTER},
        Role.ADMIN: {Role.VIEWER, Role.SUBMITTER, Role.ADMIN},
    }


def test_an_expired_or_revoked_token_gives_none(tokens: AccessTokens, store: Store) -> None:
    short = tokens.create("short", Role.VIEWER, NOW, valid_s=60)
    tokens.check(short.text, NOW + 59.9)
    with pytest.raises(TokenError, match=r"\(short\) has expired"):
        tokens.check(short.text, NOW + 60)
    long = tokens.create("long", Role.ADMIN, NOW)
    tokens.revoke(long.record.token_id, NOW + 5)
    tokens.revoke(long.record.token_id, NOW + 9)
    with pytest.raises(TokenError, match=r"\(long\) was revoked"):
        tokens.check(long.text, NOW + 6)
    assert {record.name: record.revoked_s for record in store.tokens.all()} == {
        "short": None,
        "long": NOW + 5,
    }
    assert not tokens.any_valid(NOW + 60)
    with pytest.raises(SecurityError, match="there is no access token 'abc'"):
        tokens.revoke("abc", NOW)


def test_another_secret_learns_nothing_of_a_token(tokens: AccessTokens) -> None:
    made = tokens.create("ana", Role.ADMIN, NOW, valid_s=1)
    other = tokens.create("ben", Role.ADMIN, NOW)
    mixed = made.text[:17] + other.text[17:]
    unknown = "spw_000000000000_" + other.text[17:]
    for text in (mixed, unknown):
        with pytest.raises(TokenError, match="not known here") as caught:
            tokens.check(text, NOW + 99)
        assert text not in str(caught.value)


def test_every_character_of_a_token_counts(tokens: AccessTokens) -> None:
    text = tokens.create("x", Role.VIEWER, NOW).text
    one_changed = [text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :] for at in range(len(text))]
    others = [text + "\n", " " + text, text[:-1], text + "A", "Bearer " + text, text.upper()]
    others += ["", "spw_", "\N{SNOWMAN}", text[:-1] + "\udc80", text[:17] + "\0" * 43, text.replace("_", "-")]
    for changed in one_changed + others:
        with pytest.raises(TokenError, match="not known here"):
            tokens.check(changed, NOW)
    tokens.check(text, NOW)


def test_the_pepper_is_needed(store: Store) -> None:
    made = AccessTokens(store).create("x", Role.VIEWER, NOW)
    store.key = DeploymentKey(bytes(range(32)))
    with pytest.raises(TokenError, match="not known here"):
        AccessTokens(store).check(made.text, NOW)


def test_its_use_is_noted_about_once_a_minute(tokens: AccessTokens, store: Store) -> None:
    made = tokens.create("x", Role.VIEWER, NOW)

    def used(now_s: float) -> float | None:
        tokens.check(made.text, now_s)
        record = store.tokens.get(made.record.token_id)
        assert record is not None
        return record.last_used_s

    assert [used(NOW + after) for after in (1, 30, 60.9)] == [NOW + 1] * 3
    assert [used(NOW + after) for after in (61, 100)] == [NOW + 61] * 2
    with pytest.raises(TokenError):
        tokens.check(made.text[:-1] + "?", NOW + 500)
    assert store.tokens.all()[0].last_used_s == NOW + 61


def test_a_name_that_cannot_be_shown_and_a_validity_that_is_none_are_refused(tokens: AccessTokens) -> None:
    for name in ("", "x" * 81, "two\nlines", "nul\0"):
        with pytest.raises(SecurityError, match="expected 1 to 80 printable characters"):
            tokens.create(name, Role.VIEWER, NOW)
    for valid_s in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(SecurityError, match="expected more than 0"):
            tokens.create("x", Role.VIEWER, NOW, valid_s)


def test_a_token_is_checked_while_another_thread_writes(tokens: AccessTokens, store: Store) -> None:
    made = tokens.create("ana", Role.ADMIN, NOW)
    writes, goes_on = threading.Event(), threading.Event()

    def write() -> None:
        with store.transaction():
            writes.set()
            assert goes_on.wait(60.0)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert writes.wait(60.0)
        checked: list[TokenRecord] = []
        asking = threading.Thread(target=lambda: checked.append(tokens.check(made.text, NOW + 1)))
        asking.start()
        asking.join(10.0)
        assert [one.name for one in checked] == ["ana"]
    finally:
        goes_on.set()
        writer.join()
    assert tokens.check(made.text, NOW + 2).last_used_s is None, "its use was not noted"
    assert tokens.check(made.text, NOW + 3).last_used_s == NOW + 2


# The deployment's key and private files.


KEY = DeploymentKey(bytes(range(32)))


def test_a_key_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "key"
    with pytest.raises(SecurityError, match="cannot read the key file"):
        DeploymentKey.load(path)
    with pytest.raises(SecurityError, match=r"\Acannot write .*nowhere.*\Z"):
        DeploymentKey.load(tmp_path / "nowhere" / "key", create=True)
    made = DeploymentKey.load(path, create=True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert DeploymentKey.load(path).mark == DeploymentKey.load(path, create=True).mark == made.mark
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o601])
def test_a_key_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "key"
    DeploymentKey.load(path, create=True)
    path.chmod(mode)
    with pytest.raises(SecurityError, match=f"permissions {mode:04o}.*chmod 600"):
        DeploymentKey.load(path)


@pytest.mark.parametrize("content", [b"", b"00", b"zz" * 32, b"00" * 33, b"\xff\xfe"])
def test_what_is_no_key_is_refused_and_not_repeated(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "key"
    write_private(path, content)
    with pytest.raises(SecurityError, match="does not hold a key") as caught:
        DeploymentKey.load(path)
    assert "zz" not in str(caught.value)
    with pytest.raises(SecurityError, match="is not a file"):
        DeploymentKey.load(tmp_path)


@given(st.text(), st.text(min_size=1))
def test_a_sealed_text_opens_in_its_own_context_only(secret: str, context: str) -> None:
    sealed = KEY.seal(secret, context)
    assert KEY.unseal(sealed, context) == secret
    with pytest.raises(SecurityError, match="cannot be decrypted"):
        KEY.unseal(sealed, context + "x")
    with pytest.raises(SecurityError, match="cannot be decrypted"):
        DeploymentKey(bytes(32)).unseal(sealed, context)
    assert KEY.seal(secret, context) != sealed, "never the same nonce"


@given(st.integers(0, 37))
def test_any_changed_byte_is_noticed(position: int) -> None:
    sealed = bytearray(KEY.seal("0123456789", "i1"))
    assert len(sealed) == 38
    sealed[position] ^= 1
    with pytest.raises(SecurityError):
        KEY.unseal(bytes(sealed), "i1")


def test_of_two_who_make_a_key_at_once_both_use_the_first_ones(tmp_path: Path) -> None:
    path = tmp_path / "key"

    class Late(type(path)):  # type: ignore[misc]
        """The other one's key is not there yet when it is looked for."""

        def exists(self, **_: object) -> bool:
            return False

    first = DeploymentKey.load(path, create=True)
    assert DeploymentKey.load(Late(path), create=True).mark == first.mark
