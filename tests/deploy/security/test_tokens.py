"""Access tokens, kept in a real store."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deploy.security.keys import DeploymentKey, SecurityError
from deploy.security.tokens import AccessTokens, Role, TokenError, TokenRecord
from deploy.store.store import Store

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


def test_an_expired_or_revoked_token_gives_none(tokens: AccessTokens) -> None:
    short = tokens.create("short", Role.VIEWER, NOW, valid_s=60)
    tokens.check(short.text, NOW + 59.9)
    with pytest.raises(TokenError, match=r"\(short\) has expired"):
        tokens.check(short.text, NOW + 60)
    long = tokens.create("long", Role.ADMIN, NOW)
    tokens.revoke(long.record.token_id, NOW + 5)
    tokens.revoke(long.record.token_id, NOW + 9)
    with pytest.raises(TokenError, match=r"\(long\) was revoked"):
        tokens.check(long.text, NOW + 6)
    assert {record.name: record.revoked_s for record in tokens.list()} == {"short": None, "long": NOW + 5}
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


@pytest.mark.real
@given(st.data())
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_changed_token_is_taken(tokens: AccessTokens, data: st.DataObject) -> None:
    text = data.draw(st.text() | st.from_regex(r"spw_[0-9a-f]{12}_[A-Za-z0-9_-]{43}", fullmatch=True))
    with pytest.raises(TokenError, match="not known here"):
        tokens.check(text, NOW)
    made = tokens.list()[0] if tokens.list() else tokens.create("x", Role.VIEWER, NOW).record
    with pytest.raises(TokenError, match="not known here"):
        tokens.check(f"spw_{made.token_id}_{text[-43:]}", NOW)


def test_every_character_of_a_token_counts(tokens: AccessTokens) -> None:
    text = tokens.create("x", Role.VIEWER, NOW).text
    one_changed = [text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :] for at in range(len(text))]
    others = [text + "\n", " " + text, text[:-1], text + "A", "Bearer " + text, text.upper()]
    for changed in one_changed + others:
        with pytest.raises(TokenError):
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
    assert tokens.list()[0].last_used_s == NOW + 61


@pytest.mark.parametrize("name", ["", "x" * 81, "two\nlines", "nul\0"])
def test_a_name_that_cannot_be_shown_is_refused(tokens: AccessTokens, name: str) -> None:
    with pytest.raises(SecurityError, match="expected 1 to 80 printable characters"):
        tokens.create(name, Role.VIEWER, NOW)


@pytest.mark.parametrize("valid_s", [0.0, -1.0, float("nan"), float("inf")])
def test_a_validity_that_is_none_is_refused(tokens: AccessTokens, valid_s: float) -> None:
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
