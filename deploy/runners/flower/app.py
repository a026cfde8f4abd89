"""A Flower app as the user gave it: is it one, and how settings are passed to it."""

from __future__ import annotations

import io
import tomllib
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flwr.cli.build import build_fab_from_disk

from deploy.fl.brokers.places import KEY as BROKERS_KEY
from deploy.fl.exchange import NAME_KEY, STATE_KEY
from deploy.model.jobs import Flower, JobSpec

Value = bool | int | float | str
_ROUNDS_KEY = "num-server-rounds"
QUORUM_KEY = "quorum"
_OWN_KEYS = (NAME_KEY, STATE_KEY, BROKERS_KEY)
_OWN_VARIABLES = ("FLWR_INTERNAL_", "SPOTWEAVE_")
"""Flower's open doors that are no part of `guarded`; and what the runner says itself."""
FILE_BYTES = 65_536
LINE_CHARACTERS = 4096
"""Most of a pyproject.toml: the time to read a dotted key grows with the square of its length."""


def check(spec: JobSpec, folder: Path) -> None:
    """Refuse a job that cannot run.

    Raises:
        ValueError: one line.
    """
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
    declared = _declared(app, work.app)
    build(app, work.app)
    _check_components(app, work.app)
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


def build(app: Path, name: str) -> bytes:
    """The app as Flower ships it.

    Raises:
        ValueError: one line, what Flower says against it.
    """
    try:
        return build_fab_from_disk(app)
    # Flower has no common kind of error for what is wrong with an app.
    except Exception as error:
        raise ValueError(f"app {name!r}: {' '.join(str(error).split())}"[:500]) from error


def flower(spec: JobSpec) -> Flower:
    """The job's work. Raises ValueError if it is none for Flower."""
    if not isinstance(spec.work, Flower):
        raise ValueError(f"work.kind is {spec.work.kind!r}: expected flower")
    return spec.work


def overrides(work: Flower, content: bytes) -> dict[str, Value]:
    """What replaces settings of an app, as it was built: the job's run_config, and its number of rounds."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        project = tomllib.loads(archive.read("pyproject.toml").decode())
    declared = _settings(project)
    rounds: dict[str, Value] = {_ROUNDS_KEY: work.rounds} if _ROUNDS_KEY in declared else {}
    given: dict[str, Value] = {}
    for key, text in work.run_config.items():
        given[key] = text if isinstance(declared.get(key), str) else typed(text)
    return rounds | given


def node_config(config: Mapping[str, str], name: str, state: str, brokers: str = "") -> str:
    """A client's configuration as `--node-config` wants it; numbers and booleans are passed as such.

    Args:
        config: of the job file.
        name: of the client.
        state: its folder on its node.
        brokers: file on its node that says where brokers are; "": there are none.
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


def _declared(app: Path, name: str) -> dict[str, Value]:
    """The settings that an app declares, flat. Raises ValueError, also where it is no app."""
    file = app / "pyproject.toml"
    try:
        text = file.read_text(encoding="utf-8")
        size = file.stat().st_size
        longest = max(map(len, text.split("\n")))  # not splitlines: only \n ends a line of TOML
        if size > FILE_BYTES or longest > LINE_CHARACTERS:
            raise ValueError(
                f"app {name!r}: pyproject.toml has {size} bytes and a line of {longest} "
                f"characters: expected at most {FILE_BYTES} and {LINE_CHARACTERS}"
            )
        project = tomllib.loads(text)
    except OSError as error:
        raise ValueError(
            f"app {name!r}: cannot read pyproject.toml ({error.strerror}): expected a Flower app's folder"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"app {name!r}: pyproject.toml: {error}") from error
    return _settings(project)


def _settings(project: Mapping[str, Any]) -> dict[str, Value]:
    section = project.get("tool", {}).get("flwr", {}).get("app", {})
    return _flat(section.get("config", {}))


def _check_components(app: Path, name: str) -> None:
    """What Flower itself finds out only when it loads the app. Raises ValueError."""
    project = tomllib.loads((app / "pyproject.toml").read_text(encoding="utf-8"))
    for part, where in project["tool"]["flwr"]["app"]["components"].items():
        module = str(where).partition(":")[0].replace(".", "/")
        if not any((app / f"{module}{end}").exists() for end in (".py", "/__init__.py")):
            raise ValueError(f"app {name!r}: {part} is {where!r}, but there is no {module}.py")


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Value]:
    flat: dict[str, Value] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat
