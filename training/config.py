"""The commands' configuration: Hydra composes it, dataclasses type it, one line says what is wrong.

A mistake is told before anything heavy is imported: what computes is imported when a command does its work.
"""

from __future__ import annotations

import copy
import dataclasses
import difflib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from enum import Enum
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, MissingConfigException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException
from pydantic import TypeAdapter, ValidationError
from yaml import YAMLError

from spotweave.agents.named import require_policy, require_rule
from spotweave.agents.registry import OURS, AgentSettings, agent_named, agents
from spotweave.agents.stored import policy_file
from spotweave.envs.environments import ENVIRONMENTS
from spotweave.mistakes import EXIT_USER, one_line_errors
from spotweave.training.settings import RunSettings, TrainerSettings, require_library

CONFIG_DIRECTORY = str(Path(__file__).resolve().parent.parent / "configs")
GROUPS = ("env=", "agent=", "trainer=", "experiment=")
ADDED = ("env=", "env/", "experiment=")
"""Groups that no command has by default: Hydra wants `+` before them, we do not."""
NEED_ENVIRONMENT = ("train", "evaluate", "compare")
"""Commands that run in one environment, which env= names unless something else does."""
NAME_ENVIRONMENT = ("+env=", "++env=", "resume=", "config=", "+experiment=")
COMPILING = (*NEED_ENVIRONMENT, "results_fl")  # commands that play in this process

T = TypeVar("T")


class UsageError(ValueError):
    """A mistake on the command line or in a configuration file, told in one line."""


def plain(value: object) -> Any:
    """Dataclasses, enums and tuples as what YAML holds."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


@cache
def register_schemas() -> None:
    """Give Hydra the keys with their defaults, so that a mistyped key is refused when it is composed."""
    store = ConfigStore.instance()
    for name, agent in agents().items():
        node = plain(agent.defaults(name))
        # Agents of other packages have no file in configs/agent: what they are configured with is this.
        if name in OURS:
            store.store(f"{name}_schema", node, package="agent")
        else:
            store.store(name, node, group="agent")
    store.store("trainer_schema", plain(TrainerSettings()), package="trainer")
    for name in ENVIRONMENTS:
        _store_world(name, {"name": name})


def _store_world(name: str, node: dict[str, Any]) -> None:
    store = ConfigStore.instance()
    store.store(f"{name}_schema", node, package="env")
    if not Path(CONFIG_DIRECTORY, "env", f"{name}.yaml").is_file():  # of another package
        store.store(name, node, group="env", package="env")


def register_world(name: str) -> None:
    """Likewise the keys of an environment, whose settings are defined beside what numba compiles."""
    _store_world(name, {"name": name, **plain(ENVIRONMENTS[name].config_class())})


def compose(config_name: str, words: Sequence[str], *, worlds: bool = True) -> DictConfig:
    """What Hydra makes of a command's words; `env=NAME` and `experiment=NAME` have a `+` or none.

    Without `worlds`, `env.KEY=VALUE` is left out, and `env` has nothing but its name. Raises HydraException
    and OmegaConfBaseException of many lines.
    """
    register_schemas()
    words = _added(words)
    if worlds:
        for name in ENVIRONMENTS:
            if any(name in word for word in words):
                register_world(name)
    else:
        words = [word for word in words if not word.lstrip("+~").startswith("env.")]
    # Within a command, Hydra knows where the files are and refuses to be told again.
    inside = GlobalHydra.instance().is_initialized()
    with nullcontext() if inside else hydra.initialize_config_dir(CONFIG_DIRECTORY, version_base="1.3"):
        return hydra.compose(config_name, words, return_hydra_config=True)


def typed(kind: type[T], value: object, where: str) -> T:
    """A dataclass of type `kind` from plain values, every field checked.

    Raises:
        UsageError: naming the key, what was given and what is expected.
    """
    _refuse_unknown(kind, value, where)
    try:
        return TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join([where, *map(str, first["loc"])]).lstrip(".")
        if isinstance(cause := first.get("ctx", {}).get("error"), ValueError):
            raise UsageError(f"{place}: {cause}") from error  # our own check says it all
        raise UsageError(f"{place} is {first['input']!r}: {first['msg'].lower()}") from error


def agent_settings(values: Mapping[str, Any]) -> AgentSettings:
    """The typed settings of a resolved `agent` group.

    Raises:
        UsageError: naming the key, what was given and what is expected.
        ValueError: if there is no such agent.
    """
    return typed(agent_named(str(values.get("kind"))).settings, values, "agent")


def training_settings(values: Mapping[str, Any]) -> tuple[RunSettings, AgentSettings, TrainerSettings]:
    """What the command train is configured with besides the world, every value checked.

    Raises:
        ValueError: one line naming the setting.
    """
    given = {
        field.name: values[field.name] for field in dataclasses.fields(RunSettings) if field.name in values
    }
    run = typed(RunSettings, given, "")
    agent = agent_settings(values["agent"])
    trainer = typed(TrainerSettings, values["trainer"], "trainer")
    require_library(agent.kind)
    if run.tracking is not None and find_spec(run.tracking) is None:
        raise UsageError(
            f"tracking={run.tracking} needs a library that is not installed: "
            f"pip install 'spotweave[{run.tracking}]'"
        )
    require_rule(trainer.guide)
    return run, agent, trainer


def _refuse_unknown(kind: Any, value: object, where: str) -> None:
    if not dataclasses.is_dataclass(kind) or not isinstance(value, Mapping):
        return
    hints = {field.name: field for field in dataclasses.fields(kind)}
    for key, item in value.items():
        if key not in hints:
            raise UsageError(unknown_key(f"{where}.{key}", key, list(hints)))
        default = hints[key].default_factory
        nested = default() if default is not dataclasses.MISSING else hints[key].default
        if dataclasses.is_dataclass(nested):
            _refuse_unknown(type(nested), item, f"{where}.{key}")


def unknown_key(full: str, key: str, known: list[str]) -> str:
    """One line about a key that does not exist."""
    close = difflib.get_close_matches(key, known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"known keys: {', '.join(known)}"
    return f"unknown key {full}: {hint}"


def run_command(config_name: str, body: Callable[[DictConfig], int]) -> None:
    """Compose the configuration from sys.argv, run `body`, and exit with its code.

    A user's mistake is one line on standard error and exit code 2; Ctrl-C exits with 130.
    """
    os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count() or 1))
    words = _added(sys.argv[1:])
    helping = "--help" in words or "-h" in words
    if helping and "all" not in words:
        print(_help(config_name, str(sys.modules[body.__module__].__doc__)))
        sys.exit(0)
    if "--version" in words:
        print(version("spotweave"))
        sys.exit(0)
    if helping:
        words.remove("all")  # the rest is Hydra's
    if config_name == "train":
        words = _with_default_agent(_with_resumed_environment(words))
    # Hydra reads no setting that a flag separates from the others.
    words.sort(key=lambda word: "=" in word and not word.startswith("-"))
    sys.argv[1:] = words
    with one_line_errors():
        try:
            _require_readable(words)
            # --help all, --cfg job and --multirun are Hydra's own.
            if any(word.startswith("-") for word in words):
                code = _run_by_hydra(config_name, body)
            else:
                _refuse_mistakes(config_name, words)
                code = _run(config_name, body, _composed(config_name, words))
        except (HydraException, OmegaConfBaseException) as error:
            raise UsageError(str(error)) from error
    sys.exit(code)


def _added(words: Sequence[str]) -> list[str]:
    return [f"+{word}" if word.startswith(ADDED) else word for word in words]


def _help(config_name: str, about: str) -> str:
    """What a command does, and the keys that matter: those of the first paragraph of its configuration."""
    text = Path(CONFIG_DIRECTORY, f"{config_name}.yaml").read_text(encoding="utf-8")
    keys = re.findall(r"^(\w+): (.*?) +# (.*)$", text.split("\n\n")[1], re.MULTILINE)
    rows = [(f"{key}={value}", comment) for key, value, comment in keys]
    if config_name in NEED_ENVIRONMENT:
        rows.insert(0, ("env=NAME", ", ".join(ENVIRONMENTS)))
    if config_name == "train":
        rows.insert(1, ("agent=NAME", f"{', '.join(agents())}; each environment has its own default"))
        trainers = sorted(path.stem for path in Path(CONFIG_DIRECTORY, "trainer").glob("*.yaml"))
        rows.insert(2, ("trainer=default", ", ".join(trainers)))
        rows.insert(3, ("trainer.episodes=N", "how long it trains; also trainer.max_minutes=N"))
    lines = [f"  {key:<20} {comment}" for key, comment in rows]
    return "\n".join([about.strip(), "", *lines, "", "All keys and their values: --help all"])


def _run(config_name: str, body: Callable[[DictConfig], int], config: DictConfig) -> int:
    if config_name not in COMPILING:
        return body(config)
    from spotweave.envs.simulation.compiled import announce_compiling
    from spotweave.training.compiling import compiled_in_parallel

    announce_compiling()
    with compiled_in_parallel(str(config.get("env", {}).get("name"))):
        return body(config)


def _refuse_mistakes(config_name: str, words: list[str]) -> None:
    """Name what is wrong with the words, as far as that is known without what takes seconds to import.

    Raises:
        ValueError: one line; what is left are the settings of the world.
    """
    lacking = config_name in NEED_ENVIRONMENT and not any(word.startswith(NAME_ENVIRONMENT) for word in words)
    any_world = [f"+env={next(iter(ENVIRONMENTS))}"] if lacking else []
    config = _composed(config_name, [*words, *any_world], worlds=False)
    if config_name not in NEED_ENVIRONMENT:
        return
    given = config.get("checkpoint")
    named = given if isinstance(given, DictConfig) else {}
    for checkpoint in named.values() or ([given] if isinstance(given, str) else given or ()):
        policy_file(str(checkpoint))
    policies = config.get("policies") or [config.get("policy")]
    # Only the file of a checkpoint without a name says what it is called.
    if (given is None or named) and not isinstance(policies, str):
        for name in policies:
            if name is not None:
                require_policy(str(name), list(named))
    if config_name == "train":
        training_settings(resolved(config))
    if lacking:
        listing = "\n".join(f"  env={name:<14} {entry.title}" for name, entry in ENVIRONMENTS.items())
        print(f"Choose an environment:\n{listing}", file=sys.stderr)
        sys.exit(EXIT_USER)


def _run_by_hydra(config_name: str, body: Callable[[DictConfig], int]) -> int:
    """Leave the command line to Hydra, whose mistakes span many lines; returns the exit code."""
    code = 0
    failure: Exception | None = None

    register_schemas()
    for name in ENVIRONMENTS:
        register_world(name)

    @hydra.main(version_base="1.3", config_path=CONFIG_DIRECTORY, config_name=config_name)
    def entry(config: DictConfig) -> None:
        nonlocal code, failure
        if HydraConfig.get().mode is RunMode.MULTIRUN and config.get("out"):
            config.out = f"{config.out}/{HydraConfig.get().job.num}"  # each job of a sweep has its own folder
        try:
            code = body(config)
        except Exception as error:  # Hydra would print a traceback of it and exit by itself
            failure = error

    entry()
    if failure is not None:
        raise failure
    return code


def _require_readable(arguments: Sequence[str]) -> None:
    """Name the first word that Hydra cannot read; its own message names none.

    Raises:
        UsageError: with the word, and how to quote its value.
    """
    swept = any(argument in ("-m", "--multirun") for argument in arguments)
    parser = OverridesParser.create()
    for word in arguments:
        key, equals, value = word.partition("=")
        if word.startswith("-") or not equals:
            continue
        quoted = f"""'{key}="{value}"'"""
        try:
            override = parser.parse_override(word)
        except HydraException as error:
            raise UsageError(f"cannot read {word}: quote the value: {quoted}") from error
        if override.is_sweep_override() and not swept:
            raise UsageError(f"{word} has several values: sweep them with --multirun, or quote: {quoted}")


def _with_resumed_environment(arguments: list[str]) -> list[str]:
    """A configuration is composed for an environment; a resumed run knows its own."""
    resumed = [argument.split("=", 1)[1] for argument in arguments if argument.startswith("resume=")]
    if not resumed or any(argument.lstrip("+").startswith("env=") for argument in arguments):
        return arguments
    try:
        name = OmegaConf.select(OmegaConf.load(Path(resumed[-1]) / "config.yaml"), "env.name")
    except (OSError, YAMLError, OmegaConfBaseException):
        name = None  # there is nothing to resume, which the command itself says best
    return [*arguments, f"+env={name if name in ENVIRONMENTS else next(iter(ENVIRONMENTS))}"]


def _with_default_agent(arguments: list[str]) -> list[str]:
    """Each environment has its own default agent; agent= always wins."""
    chosen = [argument.split("=", 1)[1] for argument in arguments if argument.startswith(("+env=", "env="))]
    names = [name for name in chosen if name in ENVIRONMENTS]
    if any(argument.startswith("agent=") for argument in arguments) or not names:
        return arguments
    return [*arguments, f"agent={ENVIRONMENTS[names[-1]].default_agent}"]


def _composed(config_name: str, overrides: list[str], *, worlds: bool = True) -> DictConfig:
    """What a command is configured with; what was typed is kept where Hydra keeps it.

    Raises:
        UsageError: one line about what is wrong with the overrides.
    """
    for argument in overrides:
        if "=" not in argument:
            raise UsageError(f"cannot read {argument!r}: expected KEY=VALUE, e.g. env=multicloud seed=1")
    try:
        whole = compose(config_name, overrides, worlds=worlds)
    except (HydraException, OmegaConfBaseException) as error:
        raise UsageError(_one_line(error, config_name, overrides, worlds=worlds)) from error
    HydraConfig.instance().set_config(whole)
    return _own(whole)


def _one_line(error: Exception, config_name: str, overrides: list[str], *, worlds: bool) -> str:
    """What is wrong with `overrides`: our own words for a wrong choice or key, else the facts of Hydra's."""
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        group, _, choice = error.missing_cfg_file.rpartition("/")
        there = error.options or sorted(path.stem for path in Path(CONFIG_DIRECTORY, group).glob("*.yaml"))
        if there:
            return f"{group} is {choice!r}: expected one of {', '.join(there)}"
    refused = re.match(r"Could not override '([^']+)'", str(error))
    if refused:
        groups = [override for override in overrides if override.lstrip("+").startswith(GROUPS)]
        node: Any = compose(config_name, groups, worlds=worlds)
        parts = refused[1].split(".")
        for depth, part in enumerate(parts):
            if not isinstance(node, DictConfig):
                break
            if part not in node:
                return unknown_key(".".join(parts[: depth + 1]), part, [str(name) for name in node])
            node = node[part]
    text = str(error)
    cause: BaseException | None = error.__cause__
    while cause is not None:
        text += f" {cause}"
        cause = cause.__cause__
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    kept = [
        line
        for line in lines
        if not line.startswith(("full_key", "object_type", "Set the env", "Config search", "To append"))
    ]
    return " ".join(" ".join(kept).split())


def compose_values(config_name: str, overrides: Sequence[str]) -> dict[str, Any]:
    """What a command would be configured with, as plain values; for commands that start or stand for others.

    Raises:
        UsageError: one line about what is wrong with the overrides.
    """
    words = list(overrides)
    if config_name == "train":
        words = _with_default_agent(words)
    try:
        return resolved(_own(compose(config_name, words)))
    except (HydraException, OmegaConfBaseException) as error:
        raise UsageError(f"{' '.join(words)}: {' '.join(str(error).split())}") from error


def _own(whole: DictConfig) -> DictConfig:
    config = copy.deepcopy(whole)
    with open_dict(config):
        del config["hydra"]
    return config


def resolved(config: DictConfig) -> dict[str, Any]:
    """The configuration as plain values with all interpolations resolved."""
    container = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    assert isinstance(container, dict)
    return {str(key): value for key, value in container.items()}


def world_config(values: Mapping[str, Any]) -> Any:
    """The typed world configuration of a resolved `env` group."""
    name = values["name"]
    if name not in ENVIRONMENTS:
        raise UsageError(f"env.name is {name!r}: expected one of {', '.join(ENVIRONMENTS)}")
    settings = {key: value for key, value in values.items() if key != "name"}
    return typed(ENVIRONMENTS[name].config_class, settings, "env")


def provenance() -> dict[str, str]:
    """Version and commit that a result is stored with; commit is "unknown" outside a git checkout."""
    root = Path(__file__).resolve().parent.parent
    commit = "unknown"

    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    if (root / ".git").exists():  # else installed, maybe within a checkout of something else
        with suppress(OSError, subprocess.CalledProcessError):
            commit = git("rev-parse", "HEAD") + ("+changes" if git("status", "--porcelain") else "")
    return {"spotweave": version("spotweave"), "commit": commit}


def to_yaml(values: Mapping[str, Any]) -> str:
    """Readable YAML of plain values."""
    return OmegaConf.to_yaml(OmegaConf.create(json.loads(json.dumps(values))))
