"""A Flower app as the user gave it: is it one, and how settings are passed to it."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path

from spotweave.deploy.fl.broker import KEY as BROKERS_KEY
from spotweave.deploy.fl.checkpoints import NAME_KEY, STATE_KEY
from spotweave.deploy.model.jobs import Flower, JobSpec
from spotweave.deploy.runners.flower.inspecting import App, Value

_ROUNDS_KEY = "num-server-rounds"
QUORUM_KEY = "quorum"
_OWN_KEYS = (NAME_KEY, STATE_KEY, BROKERS_KEY)
_OWN_VARIABLES = ("FLWR_INTERNAL_", "SPOTWEAVE_")
"""Flower's open doors that are no part of `guarded`; and what the runner says itself."""


def check(spec: JobSpec, folder: Path, look: Callable[[Path, str], App]) -> None:
    """Refuse a job that cannot run; `look` inspects the app in a subfolder. Raises ValueError: one line."""
    work = flower(spec)
    if spec.resources.instances != 1:
        raise ValueError(
            f"resources.instances is {spec.resources.instances}: a Flower client runs on one (1)"
        )
    for key in spec.env:
        if key.startswith(_OWN_VARIABLES):
            raise ValueError(f"env has {key!r}: names that begin so are set by spotweave: leave it out")
    app = folder / work.app
    if not app.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"app {work.app!r} leads out of the job's folder: give a path below the job file")
    declared = look(folder, work.app).declared
    if not work.synchronous and QUORUM_KEY in work.run_config:
        raise ValueError(
            f"run_config has {QUORUM_KEY!r}, which is of synchronous rounds, and the strategy is "
            f"{work.strategy.kind}: leave it out"
        )
    for key, text in work.run_config.items():
        if key not in declared:
            known = ", ".join(sorted(declared)) or "none"
            raise ValueError(
                f"run_config has {key!r}, which the app does not declare: "
                f"expected one of [tool.flwr.app.config]: {known}"
            )
        value = typed(text)
        if isinstance(declared[key], str) != isinstance(value, str):
            raise ValueError(
                f"run_config {key} is {text!r}: expected a {type(declared[key]).__name__}, as in the app"
            )
    for client in work.clients:
        for key, text in client.config.items():
            if key in _OWN_KEYS:
                raise ValueError(f"client {client.name}: config {key!r} is set by spotweave: leave it out")
            if not key.replace("-", "").replace("_", "").isalnum() or not key.isascii():
                raise ValueError(f"client {client.name}: config {key!r}: expected letters, digits, - and _")
            if any(sign in text for sign in "\"\\'\n\r\0"):
                raise ValueError(f"client {client.name}: config {key} is {text!r}: quotes are not possible")


def flower(spec: JobSpec) -> Flower:
    """The job's work. Raises ValueError if it is none for Flower."""
    if not isinstance(spec.work, Flower):
        raise ValueError(f"work.kind is {spec.work.kind!r}: expected flower")
    return spec.work


def overrides(work: Flower, declared: Mapping[str, Value]) -> dict[str, Value]:
    """What replaces settings that an app declares: the job's run_config, and its number of rounds."""
    rounds: dict[str, Value] = {_ROUNDS_KEY: work.rounds} if _ROUNDS_KEY in declared else {}
    given: dict[str, Value] = {}
    for key, text in work.run_config.items():
        given[key] = text if isinstance(declared.get(key), str) else typed(text)
    return rounds | given


def node_config(config: Mapping[str, str], name: str, state: str, brokers: str = "") -> str:
    """A client's configuration as `--node-config` wants it; numbers and booleans are passed as such.

    `state` is its folder on its node, `brokers` a file there that says where brokers are, or "".
    """
    values: dict[str, Value] = {key: typed(text) for key, text in config.items()}
    values |= {NAME_KEY: name, STATE_KEY: state} | ({BROKERS_KEY: brokers} if brokers else {})
    return " ".join(f"{key}={_toml(value)}" for key, value in values.items())


def typed(text: str) -> Value:
    """A TOML number or boolean as what it is, everything else as text."""
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, KeyError):
        return text
    return value if isinstance(value, bool | int | float) and "\n" not in text else text


def _toml(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else repr(value)
