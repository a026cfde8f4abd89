"""Carries out a comparison or an evaluation: policies, runs, tables, files."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from spotweave.agents.policy import Policy
from spotweave.envs.environments import ENVIRONMENTS
from spotweave.envs.simulation.world import Timeline
from spotweave.training.config import UsageError, provenance, resolved, to_yaml, typed, world_config
from spotweave.training.engine import HERE, KEYS, Engine, EngineSettings
from spotweave.training.evaluation.episodes import (
    SuitePlayer,
    checkpoint_facts,
    contestants,
    default_rules,
    find_suite,
    load_checkpoints,
)
from spotweave.training.evaluation.report import record_timelines, report_html, verdict_sentence
from spotweave.training.evaluation.runs import (
    Comparison,
    compare_policies,
    comparison_summary,
    write_episodes,
)
from spotweave.training.evaluation.tables import console, evaluation_table, paired_table
from spotweave.training.files import prepare_directory, write_json, write_text
from spotweave.training.progress import play_progress

DRAWN = 6  # policies whose first episode is drawn: the reference and the best of the others


@dataclass
class ComparisonSettings:
    """What is measured; `config.yaml` next to a result holds these keys and `env`."""

    # names, the reference first; None: every checkpoint, then the rules of the environment
    policies: list[str] | None = None
    # a path, a list of paths, or a mapping name: path; relative to the working directory
    checkpoint: str | list[str] | dict[str, str] | None = None
    # scalarisation weights for the checkpoints; None: those they were trained with
    weights: list[float] | None = None
    suite: str = "test"  # "train", "validation" or "test"
    episodes: int | None = None  # how many of the suite's first episodes; None: all
    lanes: int = 16  # episodes played at the same time; no result depends on it
    device: str = "cpu"  # where networks compute, "cpu" or "cuda"


def read_config(path: str) -> dict[str, Any]:
    """The configuration that a result was saved with. Raises UsageError if there is none."""
    file = Path(path)
    if not file.is_file():
        raise UsageError(f"no configuration at {path}: give the config.yaml of a result")
    container = OmegaConf.to_container(OmegaConf.load(file), resolve=True)
    if not isinstance(container, dict) or "env" not in container:
        raise UsageError(f"{path} is not the configuration of a result: it has no env")
    return {str(key): value for key, value in container.items()}


def command_values(config: DictConfig) -> dict[str, Any]:
    """`env` and the keys of ComparisonSettings, from the command line or from the file that config= names.

    No result depends on the engine: its keys are not among them.

    Raises:
        UsageError: if both policy= and checkpoint= name what to evaluate, the file is no configuration, or
            it is given together with settings that it holds itself.
    """
    if config.config is not None:
        for override in HydraConfig.get().overrides.task:
            if override.split("=")[0].split(".")[0] not in ("config", "out", *KEYS):
                raise UsageError(
                    f"{override} was given with config=: only out= and {', '.join(KEYS)} may be; or edit a "
                    "copy of the file"
                )
        return read_config(str(config.config))
    values = resolved(config)
    for name in ("config", "out", *KEYS):
        del values[name]
    if "policy" in values:
        rule = values.pop("policy")
        if rule is not None and values["checkpoint"] is not None:
            raise UsageError("give either checkpoint=PATH or policy=RULE, not both")
        values["policies"] = None if rule is None else [rule]
    return values


@dataclass(frozen=True)
class Measured:
    """A finished comparison with what its files need next to it."""

    comparison: Comparison
    timelines: Mapping[str, Timeline]
    provenance: Mapping[str, object]
    config_yaml: str


def measure(
    env: Mapping[str, Any],
    settings: ComparisonSettings,
    engine: Engine | None,
    rules: Sequence[str] | None = None,
    own: Sequence[Policy] = (),
    draw: bool = True,
) -> Measured:
    """Build the world of the resolved group `env`, load the policies and run them all.

    The rules, or those of the environment, join the checkpoints if `settings.policies` is None; `own`
    policies, which are no files, come first. To `draw` the report's pictures, the suite's first episode is
    played again. Raises UsageError, CheckpointError, WorldError, ValueError: one line each.
    """
    if settings.lanes < 1:
        raise UsageError(f"lanes is {settings.lanes}: expected at least 1")
    suite = find_suite(settings.suite, settings.episodes)
    config = world_config(env)
    player = SuitePlayer(
        [partial(ENVIRONMENTS[env["name"]].build, config)], min(settings.lanes, suite.episodes)
    )
    spec = player.world().spec
    loaded = load_checkpoints(settings.checkpoint, spec, settings.weights, settings.device)
    joining = default_rules(env) if rules is None else rules
    policies = [*own, *contestants(settings.policies, loaded, joining, spec)]
    return _run(player, engine, policies, settings, env, loaded, draw)


def _run(
    player: SuitePlayer,
    engine: Engine | None,
    policies: Sequence[Policy],
    settings: ComparisonSettings,
    env: Mapping[str, Any],
    loaded: Mapping[str, tuple[Policy, str]],
    draw: bool = True,
) -> Measured:
    suite = find_suite(settings.suite, settings.episodes)
    with play_progress() as progress:
        comparison = compare_policies(player, engine, policies, suite, progress)
    timelines = _first_episode(env, policies, comparison) if draw and len(policies) > 1 else {}
    final = dataclasses.replace(
        settings, policies=[policy.name for policy in policies], episodes=suite.episodes
    )
    values = {"env": dict(env), **dataclasses.asdict(final)}
    origin: dict[str, object] = {**provenance(), "checkpoints": checkpoint_facts(loaded)}
    return Measured(comparison, timelines, origin, to_yaml(values))


def _first_episode(
    env: Mapping[str, Any], policies: Sequence[Policy], comparison: Comparison
) -> dict[str, Timeline]:
    best = [name for name in comparison.ranking if name != comparison.reference.name][: DRAWN - 1]
    drawn = [policy for policy in policies if policy.name in (comparison.reference.name, *best)]
    world = ENVIRONMENTS[env["name"]].build_recording(world_config(env))
    return record_timelines(world, drawn, comparison.suite.episode_keys()[0])


def write_comparison(measured: Measured, out: Path, summary: str = "summary.json") -> None:
    """Write config.yaml, episodes.csv, the summary and, for several policies, report.html.

    Raises:
        WriteError: if a file cannot be written; the others are whole.
    """
    write_text(out / "config.yaml", measured.config_yaml)
    write_episodes(measured.comparison, out / "episodes.csv")
    write_json(out / summary, comparison_summary(measured.comparison, measured.provenance))
    if len(measured.comparison.runs) > 1:
        facts = {name: value for name, value in measured.provenance.items() if name != "checkpoints"}
        report = report_html(measured.comparison, measured.timelines, facts, measured.config_yaml)
        write_text(out / "report.html", report)


def print_comparison(comparison: Comparison, folder: Path | None = None) -> None:
    """The result in one sentence, a table, and where the report is, if one was written to `folder`."""
    terminal = console()
    terminal.print(verdict_sentence(comparison), highlight=False)
    terminal.print(paired_table(comparison, has_report=folder is not None))
    if folder is not None:
        print(f"report: {folder / 'report.html'}")


def settings_of(values: Mapping[str, Any]) -> ComparisonSettings:
    """Checked settings from the keys next to `env`. Raises UsageError."""
    return typed(ComparisonSettings, {name: v for name, v in values.items() if name != "env"}, "comparison")


def compare(values: Mapping[str, Any], out: str | None, engine: EngineSettings = HERE) -> int:
    """The command compare, by `env` and the keys of ComparisonSettings: measure, write to `out`, print."""
    settings = settings_of(values)
    if settings.policies is not None and len(settings.policies) < 2:
        raise UsageError("a comparison needs at least 2 policies: for one, use training/evaluate.py")
    directory = prepare_directory(Path(out) if out else Path("results") / str(values["env"]["name"]))
    with engine.open() as opened:
        measured = measure(values["env"], settings, opened)
    write_comparison(measured, directory)
    print_comparison(measured.comparison, directory)
    return 0


def evaluate(values: Mapping[str, Any], out: str | None, engine: EngineSettings = HERE) -> int:
    """The command evaluate: measure one policy, print its table, write files if `out` is given.

    `values`, as for `compare`, name one rule in `policies`, or one checkpoint.
    """
    settings = settings_of(values)
    if settings.policies is None and settings.checkpoint is None:
        raise UsageError("name the policy to evaluate: checkpoint=PATH or policy=RULE, e.g. policy=maf")
    several = settings.checkpoint if settings.policies is None else settings.policies
    if several is not None and not isinstance(several, str) and len(several) != 1:
        raise UsageError("one policy is evaluated at a time: for several, use training/compare.py")
    directory = prepare_directory(Path(out)) if out else None
    with engine.open() as opened:
        measured = measure(values["env"], settings, opened, rules=())
    console().print(evaluation_table(measured.comparison))
    if directory is not None:
        write_comparison(measured, directory, "evaluation.json")
        print(f"written: {directory / 'evaluation.json'}")
    return 0


def compare_after_training(
    player: SuitePlayer,
    engine: Engine | None,
    policy: Policy,
    rules: Sequence[Policy],
    episodes: int,
    run: Path,
    values: Mapping[str, Any],
) -> Comparison:
    """Compare the policy of a finished training run with rules on the test suite; results go to RUN/test.

    The policy is that of RUN/policy.pt; the `env` of `values`, the run's configuration, is saved with the
    result. Raises WriteError.
    """
    directory = prepare_directory(run / "test")
    path = str(run / "policy.pt")
    settings = ComparisonSettings(checkpoint={policy.name: path}, episodes=episodes, lanes=player.lanes)
    measured = _run(player, engine, [policy, *rules], settings, values["env"], {policy.name: (policy, path)})
    write_comparison(measured, directory)
    print_comparison(measured.comparison, directory)
    return measured.comparison
