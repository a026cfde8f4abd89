"""Access tokens, made by whoever can read the deployment's state folder."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deploy.cli.errors import say
from deploy.cli.queries import print_json
from deploy.cli.tables import ago, clock, show
from deploy.config import DeploymentConfig
from deploy.security.roles import Role, TokenRecord
from deploy.security.tokens import AccessTokens
from deploy.service import open_store
from deploy.store.store import Store

_DAY_S = 86_400.0


@contextmanager
def _store(path: Path) -> Iterator[Store]:
    with open_store(DeploymentConfig.load(path), time.time()) as store:
        yield store


def create(path: Path, role: str, name: str, days: float | None) -> None:
    """Make one; the token alone goes to stdout."""
    if role not in tuple(Role):
        raise ValueError(f"a token for the role {role!r}: expected {', '.join(Role)}")
    now_s = time.time()
    with _store(path) as store, store.transaction():
        made = AccessTokens(store).create(name, Role(role), now_s, None if days is None else days * _DAY_S)
        data = {"token_id": made.record.token_id, "name": name, "role": role}
        store.events.add("token.created", now_s, data)
    print(made.text)
    until = made.record.expires_s
    expires = "does not expire" if until is None else f"expires {clock(until)}"
    say(f"token {made.record.token_id} ({name}, {role}) {expires}; it is not shown again")


def show_all(path: Path, *, as_json: bool) -> None:
    """All that were ever made."""
    with _store(path) as store:
        found = AccessTokens(store).list()
    now_s = time.time()
    if as_json:
        names = ("token_id", "name", "role", "created_s", "expires_s", "revoked_s", "last_used_s")
        print_json([{name: getattr(one, name) for name in names} for one in found])
        return
    rows = [
        (one.token_id, one.name, one.role, ago(one.created_s), ago(one.last_used_s), _validity(one, now_s))
        for one in found
    ]
    show(
        ("TOKEN", "NAME*", "ROLE", "MADE", "USED", "VALID"),
        rows,
        "no access token yet: spotweave token create",
    )


def _validity(one: TokenRecord, now_s: float) -> str:
    if one.revoked_s is not None:
        return f"revoked {ago(one.revoked_s)}"
    if one.expires_s is None:
        return "yes"
    return f"until {clock(one.expires_s)}" if one.valid(now_s) else f"expired {ago(one.expires_s)}"


def revoke(path: Path, token_id: str) -> None:
    """Make one invalid."""
    now_s = time.time()
    with _store(path) as store, store.transaction():
        AccessTokens(store).revoke(token_id, now_s)
        store.events.add("token.revoked", now_s, {"token_id": token_id})
    print(f"token {token_id} is revoked")
