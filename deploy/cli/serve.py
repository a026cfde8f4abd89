"""`spotweave serve` runs a deployment until it is told to end; `spotweave check` sees whether it could."""

from __future__ import annotations

import os
import pwd
import signal
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import FrameType

import typer
from sqlalchemy import inspect

from spotweave.agents.mtdqn.policy import MTDQNPolicy
from spotweave.deploy import logs
from spotweave.deploy.clouds import count_offers, require_all_rented
from spotweave.deploy.config import DeploymentConfig
from spotweave.deploy.runners.spark.settings import find_spark
from spotweave.deploy.scheduler.decider import load_market_policy
from spotweave.deploy.security.keys import is_loopback, listen_allowed, load_tls
from spotweave.deploy.security.sandbox import Mode as SandboxMode
from spotweave.deploy.security.trial import trial
from spotweave.deploy.server.connections import FILES_KEPT, files_allowed
from spotweave.deploy.server.deciding import Deciders
from spotweave.deploy.service import load_policies, open_sandbox
from spotweave.deploy.serving import Serving
from spotweave.deploy.store import migrate
from spotweave.deploy.store.database import Database
from spotweave.deploy.store.store import Store
from spotweave.deploy.yamlfile import ConfigError
from spotweave.mistakes import EXIT_INTERRUPTED, EXIT_USER, say

_LOOK_S = 1.0


class ServingError(ValueError):
    """The service ended by itself; one line."""


def serve(path: Path, *, dry_run: bool, log_format: str, log_level: str) -> None:
    """Serve until SIGINT or SIGTERM.

    `dry_run`: decide and do nothing, whatever the file says. Raises ValueError: one line; nothing was started
    then.
    """
    logs.configure(log_format, log_level)
    config = DeploymentConfig.load(path)
    serving = Serving(config.dry_run() if dry_run else config)
    ending = _until_told()
    try:
        serving.start()
        _greet(serving, path)
        while not ending.wait(_LOOK_S):
            if not serving.alive():
                raise ServingError("the service cannot go on: see its log, and start it again")
    finally:
        say("ending: what runs goes on, and the next serve takes it up")
        serving.stop()


def _until_told() -> threading.Event:
    """Set by the first SIGINT or SIGTERM; a second SIGINT ends the process at once."""
    ending = threading.Event()

    def end(number: int, _frame: FrameType | None) -> None:
        if ending.is_set() and number == signal.SIGINT:
            os._exit(EXIT_INTERRUPTED)
        ending.set()

    signal.signal(signal.SIGINT, end)
    signal.signal(signal.SIGTERM, end)
    return ending


def _greet(serving: Serving, path: Path) -> None:
    service = serving.service
    policy = service.config.policy
    print(
        f"serving on {serving.url} (deployment {service.store.deployment_id}, policy {policy.market}"
        f"{'' if policy.mode == 'act' else f', {policy.mode}'}, {len(service.offers())} offers)",
        flush=True,
    )
    if serving.lacks_tokens():
        say(
            "warning: there is no access token yet, so every request is refused: "
            f"spotweave token create --config {path} --role admin --name NAME"
        )
    try:
        find_spark()
    except ValueError as error:
        say(f"warning: {error}; until then Spark jobs are refused")


FEW_OFFERS = 5
"""With this many rented offers or fewer, the released policy merely matches its rule (its model card)."""


def check(path: Path) -> None:
    """Print a line for each part.

    Raises ValueError if the deployment's file itself cannot be used, typer.Exit (`EXIT_USER`) if it could not
    be served.
    """
    config = DeploymentConfig.load(path)
    print(f"ok       configuration: {path}")
    parts: list[tuple[str, Callable[[DeploymentConfig], str], bool]] = [
        ("state", _state, True),
        ("offers", _offers, True),
        ("policies", _policies, True),
        ("store", _store, True),
        ("instances", _instances, True),
        ("http", _http, True),
        ("connections", _connections, False),
        ("sandbox", _sandbox, True),
        ("Spark", lambda _: f"{find_spark().path}", False),
    ]
    wrong = False
    for name, look, needed in parts:
        try:
            print(f"ok       {name}: {look(config)}")
        except ValueError as error:
            wrong = wrong or needed
            print(f"{'error' if needed else 'warning':7}  {name}: {' '.join(str(error).split())}")
    if not wrong:
        for line in _too_few_offers(config):
            print(f"warning  policies: {line}")
        for line in _not_kept_apart(config):
            print(f"warning  sandbox: {line}")
    if wrong:
        raise typer.Exit(EXIT_USER)


def _state(config: DeploymentConfig) -> str:
    state = config.state_folder
    existing = next(folder for folder in (state, *state.parents) if folder.exists())
    if not existing.is_dir():
        raise ConfigError(f"{existing} is not a folder: set another folder as state")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise ConfigError(
            f"cannot write to {existing}: give this user the right, or set another folder as state"
        )
    return f"{state}" if state.exists() else f"{state} (will be made)"


def _offers(config: DeploymentConfig) -> str:
    return ", ".join(f"{count} of the provider {name}" for name, count in count_offers(config).items())


def _policies(config: DeploymentConfig) -> str:
    policy = config.policy
    load_policies(config, sum(count_offers(config).values()))
    answers = Deciders.load(policy.market, policy.federated, policy.weights)
    assert answers.federated is not None
    return f"{answers.market.source}; federated: {answers.federated.source}; mode {policy.mode}"


def _store(config: DeploymentConfig) -> str:
    with closing(Database(config.store_url)) as database:
        if database.missing:
            return f"{database.where} (will be made)"
        with database.read() as connection:
            version = migrate.current_version(connection)
            if version is None and inspect(connection).get_table_names():
                raise ConfigError(f"{database.where} holds tables of something else: set another store")
    newest = migrate.newest_version()
    migrate.require_known(version, database.where)
    if version is None:
        return f"{database.where} (empty; tables will be made)"
    return f"{database.where}, " + (
        f"version {version}" if version == newest else f"version {version}, which serve upgrades to {newest}"
    )


def _instances(config: DeploymentConfig) -> str:
    with closing(Database(config.store_url)) as database:
        if database.missing:
            return "none"
        with database.read() as connection:
            if migrate.current_version(connection) != migrate.newest_version():
                return "not looked at before the store is upgraded"
    with Store.open(config.store_url, time.time(), key_file=config.key_file) as store:
        live = store.instances.live()
    require_all_rented(config, live)
    return f"{len(live)} may run, all where this deployment rents" if live else "none"


def _http(config: DeploymentConfig) -> str:
    http = config.http
    if http.tls is not None:
        load_tls(config.folder / http.tls.certificate, config.folder / http.tls.key, time.time())
    listen_allowed(
        http.host, has_tokens=http.tokens, has_tls=http.tls is not None, insecure_in_words=http.insecure
    )
    tokens = "with tokens" if http.tokens else "without tokens"
    where = "this machine only" if is_loopback(http.host) else "other machines too"
    return f"port {http.port} on {http.host or 'every address'} ({where}), {tokens}" + (
        ", TLS" if http.tls is not None else ""
    )


def _connections(config: DeploymentConfig) -> str:
    http = config.http
    files, wanted = files_allowed(), http.connections + FILES_KEPT
    if files < wanted:
        raise ConfigError(
            f"this user may open {files} files, and {http.connections} connections need {wanted}: raise the "
            "hard limit (LimitNOFILE), or set http.connections lower"
        )
    return f"{http.connections} at most, {http.connections_each} of an address"


def _sandbox(config: DeploymentConfig) -> str:
    mode = open_sandbox(config).mode
    return f"{mode}" + (": jobs have all rights of the scheduler" if mode is SandboxMode.NONE else "")


def _too_few_offers(config: DeploymentConfig) -> list[str]:
    """Warn about markets that the learned policy's card advises against."""
    rented, name = sum(count_offers(config).values()), config.policy.market
    if rented > FEW_OFFERS or not isinstance(load_market_policy(name, rented).policy, MTDQNPolicy):
        return []
    return [
        f"{name} decides among {rented} rented offers; with {FEW_OFFERS} or fewer it gains nothing over its "
        "rule, which is simpler: set policy.market to expected_cost, or rent more"
    ]


def _not_kept_apart(config: DeploymentConfig) -> list[str]:
    """What a submitter could reach all the same, one line each."""
    sandbox = open_sandbox(config)
    found = trial(sandbox, metadata=True)
    if sandbox.apart and not config.http.tokens:
        found.append(
            "http.tokens is false, so a job's code can ask this service for everything: set it to true"
        )
    if sandbox.mode is SandboxMode.BUBBLEWRAP and os.geteuid() == 0:
        found.append(
            "running as root, which bubblewrap does not need: serve as a dedicated user, so that code which "
            "escapes a sandbox is not root (deploy/systemd/spotweave.service)"
        )
    if sandbox.mode is SandboxMode.UID and not _has_name(config.runners.ids[0]):
        found.append(
            f"the ids {config.runners.sandbox_ids} have no names, and Java starts no Spark job without: add "
            "accounts (useradd --uid) and give their ids as runners.sandbox_ids, or install bubblewrap"
        )
    return found


def _has_name(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True
