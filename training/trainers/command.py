"""Carries out one training: start or resume, learn, validate, save, compare at the end."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import torch

from spotweave.agents.named import named_rule
from spotweave.envs.environments import ENVIRONMENTS
from spotweave.mistakes import EXIT_INTERRUPTED
from spotweave.training.adaptation import judge, start_of, started_agent
from spotweave.training.adapters.base import LibraryTrainer
from spotweave.training.checkpoint import RunDirectory, load_policy, save_policy
from spotweave.training.config import (
    UsageError,
    provenance,
    training_settings,
    world_config,
)
from spotweave.training.engine import KEYS, Engine, engine_settings
from spotweave.training.evaluation.comparison import compare_after_training
from spotweave.training.evaluation.episodes import SuitePlayer, default_rules
from spotweave.training.trainers.build import build_trainer
from spotweave.training.trainers.session import InterruptedTraining, Session
from spotweave.training.trainers.trainer import Task

VALIDATION_LANES = 16


def choose_device(name: str) -> torch.device:
    """The device that `device=auto|cpu|cuda` names. Raises ValueError if it is unknown or not there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name not in ("cpu", "cuda"):
        raise ValueError(f"device is {name!r}: expected auto, cpu or cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError("device=cuda was asked for, but this machine offers no CUDA device: use device=auto")
    return torch.device(name)


def train(
    values: dict[str, Any], run: RunDirectory, state: dict[str, Any] | None, engine: Engine | None
) -> int:
    """Run (or go on with) one training; returns the exit code."""
    configured, agent, settings = training_settings(values)
    device = choose_device(configured.device)
    entry = ENVIRONMENTS[values["env"]["name"]]
    config = world_config(values["env"])
    members = entry.members_of(config, "validation")
    tested = settings.test_episodes if len(members) == 1 else 0
    if settings.variety.share > 0.0 and entry.draw_validation is not None:
        members = entry.drawn_for_validation(config, settings.variety, values["seed"])
    player = SuitePlayer([partial(entry.build, member) for member in members], VALIDATION_LANES)
    spec = player.world().spec
    start = start_of(run, values["checkpoint"], spec.name)
    task = Task(entry, config, agent, settings, values["seed"], device, start)
    trainer, scales, weights = build_trainer(task)

    def save(facts: dict[str, Any]) -> None:
        card = {"command": values["command"], "seed": values["seed"], **provenance(), **facts}
        save_policy(run.policy, trainer.policy, dataclasses.asdict(agent), spec, scales, weights, card)

    guide = named_rule(settings.guide, spec)
    session = Session(trainer, player, guide, settings, run, save, engine, values.get("tracking"))
    if state is not None:
        try:
            session.restore(state)
        except (KeyError, RuntimeError) as error:  # what torch raises for other sizes spans many lines
            raise UsageError(
                f"{run.state} does not fit {run.config}: resume with the files as saved"
            ) from error
    try:
        session.run()
    except InterruptedTraining:
        print(f"interrupted; everything is saved. Go on with: python training/train.py resume={run.path}")
        return EXIT_INTERRUPTED
    finally:
        if isinstance(trainer, LibraryTrainer):
            trainer.close()
    if start is not None:
        accepted = session.best.episode > 0
        adapted = load_policy(run.policy, spec) if accepted else trainer.policy
        worlds = [player.world(number) for number in range(len(members))]
        original = load_policy(run.start, spec, weights)
        print(judge(adapted, original, worlds, session.suite, accepted))
    if tested:
        policy = load_policy(run.policy, spec)
        rivals = default_rules(values["env"])[:7] if entry.rivals is None else entry.rivals
        rules = [named_rule(name) for name in rivals]
        compare_after_training(player, engine, policy, rules, tested, run.path, values)
    if start is None and session.best.episode == 0:
        print(
            f"no validation beat the untrained policy, which follows {guide.name}, so that one is kept. "
            "Train longer: trainer.episodes=N, trainer.max_minutes=N"
        )
    run.finish({"episodes": trainer.episodes_done, "decisions": session.decisions})
    print(f"policy: {run.policy}")
    return 0


def kept_values(values: dict[str, Any], command: str) -> dict[str, Any]:
    """What a new run is configured with, every setting checked; `values` are those of a command.

    Raises ValueError: one line naming the setting, or what is wrong with the checkpoint.
    """
    # No result depends on the engine: it is not part of the run, which may be resumed with another one.
    kept = {key: value for key, value in values.items() if key not in KEYS} | {"command": command}
    configured, settings, _ = training_settings(kept)
    choose_device(configured.device)
    config = world_config(kept["env"])
    if kept["checkpoint"] is not None:
        entry = ENVIRONMENTS[kept["env"]["name"]]
        spec = entry.build(entry.members_of(config, "validation")[0], 1).spec
        kept["agent"] = started_agent(settings, kept["checkpoint"], spec)
    return kept


def start_or_resume(values: dict[str, Any], command: str) -> tuple[int, RunDirectory]:
    """Carry out the command train, given its resolved configuration; its exit code and where the run is.

    The run is said to be trained by `command`. Raises ValueError: one line, before anything is written.
    """
    chosen = engine_settings(values)
    name = values["env"]["name"]
    if values["resume"] is not None:
        run, saved = RunDirectory.reopen(str(values["resume"]))
        if saved["env"]["name"] != name:
            raise UsageError(f"{run.path} is a run of +env={saved['env']['name']}, not of +env={name}")
        with chosen.open() as engine:
            return train(saved, run, run.load_state(), engine), run
    kept = kept_values(values, command)
    with chosen.open() as engine:
        run = RunDirectory.create(kept["out"], name, kept["agent"]["name"], kept["seed"], kept)
        return train(kept, run, None, engine), run
