"""What whoever runs a deployment does with its files: backups, records of its market, access tokens."""

from __future__ import annotations

import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from spotweave.deploy.cli.clouds import require_served
from spotweave.deploy.cli.queries import print_json
from spotweave.deploy.cli.tables import Columns, ago, clock, show
from spotweave.deploy.config import DeploymentConfig
from spotweave.deploy.providers.config import Place
from spotweave.deploy.recording import Recording, RecordingError, record, write
from spotweave.deploy.security.tokens import AccessTokens, Role, TokenRecord
from spotweave.deploy.service import open_store
from spotweave.deploy.store import backup as copying
from spotweave.deploy.store.database import Database
from spotweave.deploy.store.store import Store
from spotweave.mistakes import say

# `spotweave record`: what a deployment saw of its market, as traces to train on.

_HOUR_S = 3_600.0


def record_market(path: Path, out: Path, since: str | None) -> None:
    """Write them and print a line for each.

    `since` is ISO 8601, UTC without an offset; None: from the beginning. Raises ValueError (one line) if
    there is nothing to record, or it cannot be written.
    """
    config = DeploymentConfig.load(path)
    since_s = 0.0 if since is None else _moment(since)
    places = _places(config, path)
    require_served(config, path)
    with open_store(config, time.time()) as store:
        recordings = record(store, places, since_s)
        if not recordings:
            raise RecordingError(
                f"{path}: nothing was seen of its cloud offers"
                + (" yet" if since is None else f" since {since}")
            )
        emulated = ", on emulated clouds" if config.emulators else ""
        write(recordings, out, f"Spotweave deployment {store.deployment_id}: what it saw{emulated}")
    columns: Columns = {
        "ZONE": lambda one: one.place.zone or one.place.region,
        "TYPE": lambda one: one.place.instance_type,
        "MARKET": lambda one: one.place.market,
        "HOURS>": lambda one: f"{one.rows[-1].time_s / _HOUR_S:.1f}",
        "ROWS>": lambda one: str(len(one.rows)),
        "AVAILABLE>": _share,
    }
    show(recordings, columns, "")


def _places(config: DeploymentConfig, path: Path) -> dict[str, Place]:
    recorded = [one for one in config.rented().values() if one.recorded]
    if not recorded:
        raise RecordingError(f"{path} rents from no cloud: only what is seen there is recorded")
    return {offer_id: place for one in recorded for offer_id, place in one.places().items()}


def _moment(text: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise RecordingError(
            f"--since {text!r} is not a time: expected ISO 8601, 2026-01-31 or 2026-01-31T12:00:00Z"
        ) from error
    return (moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment).timestamp()


def _share(one: Recording) -> str:
    span_s = one.rows[-1].time_s - one.rows[0].time_s
    if one.rows[0].available is None or not span_s:
        return "-"
    up_s = sum(
        after.time_s - row.time_s for row, after in zip(one.rows, one.rows[1:], strict=False) if row.available
    )
    return f"{up_s / span_s:.1%}"


# Access tokens, made by whoever can read the deployment's state folder.

_DAY_S = 86_400.0


def _store(path: Path) -> Store:
    return open_store(DeploymentConfig.load(path), time.time())


def create_token(path: Path, role: str, name: str, days: float | None) -> None:
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


def list_tokens(path: Path, *, as_json: bool) -> None:
    """All that were ever made."""
    with _store(path) as store:
        found = store.tokens.all()
    now_s = time.time()
    if as_json:
        names = ("token_id", "name", "role", "created_s", "expires_s", "revoked_s", "last_used_s")
        print_json([{name: getattr(one, name) for name in names} for one in found])
        return
    columns: Columns = {
        "TOKEN": lambda one: one.token_id,
        "NAME*": lambda one: one.name,
        "ROLE": lambda one: one.role,
        "MADE": lambda one: ago(one.created_s),
        "USED": lambda one: ago(one.last_used_s),
        "VALID": lambda one: _validity(one, now_s),
    }
    show(found, columns, "no access token yet: spotweave token create")


def _validity(one: TokenRecord, now_s: float) -> str:
    if one.revoked_s is not None:
        return f"revoked {ago(one.revoked_s)}"
    if one.expires_s is None:
        return "yes"
    return f"until {clock(one.expires_s)}" if one.valid(now_s) else f"expired {ago(one.expires_s)}"


def revoke_token(path: Path, token_id: str) -> None:
    """Make one invalid."""
    now_s = time.time()
    with _store(path) as store, store.transaction():
        AccessTokens(store).revoke(token_id, now_s)
        store.events.add("token.revoked", now_s, {"token_id": token_id})
    print(f"token {token_id} is revoked")


def backup(path: Path, to: Path) -> None:
    """Copy it, as it is now. It is not upgraded, so this is also what goes before an upgrade."""
    config = DeploymentConfig.load(path)
    require_served(config, path)
    with closing(Database(config.store_url)) as database:
        copying.backup(database, to)
    print(f"{to} holds the database {database.path}")
    say(
        f"not in it, so keep them too: the jobs' files in {config.state_folder / 'jobs'}, and (apart from "
        f"this) the key {config.key_file or f'{database.path}.key'}"
    )


def restore(path: Path, source: Path) -> None:
    """Put it back."""
    config = DeploymentConfig.load(path)
    replaced = copying.restore(config.store_url, source, time.time(), config.key_file)
    print(f"the database of {path} is that of {source} now")
    if replaced is not None:
        say(f"the one before it is {replaced}: remove it when nothing is missed")
