"""Plays suites with an engine: a task is a few episodes of a policy."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass, field
from threading import Event
from typing import Any, NamedTuple

import torch

from spotweave.agents.named import RULE_NAMES, named_rule, require_policy, rules_of
from spotweave.agents.policy import Policy
from spotweave.agents.stored import policy_file
from spotweave.agents.value_policy import ValuePolicy
from spotweave.envs.environments import ENVIRONMENTS
from spotweave.envs.simulation.world import BatchWorld, EpisodeKey, WorldSpec
from spotweave.training.checkpoint import load_policy
from spotweave.training.config import UsageError
from spotweave.training.engine import Engine
from spotweave.training.evaluation.episodes import EpisodeResult, Suite, run_episodes, run_suite
from spotweave.training.files import file_hash
from spotweave.training.progress import PlayProgress

EPISODES_PER_TASK = 5
"""A number that no number of workers changes: what a network sums up may depend on who is beside it."""


class Part(NamedTuple):
    """A task: some episodes of one policy in one of the worlds."""

    world: int
    policy: Policy
    keys: tuple[EpisodeKey, ...]


@dataclass(eq=False)
class SuitePlayer:
    """Plays episodes in worlds that are made where they are played; it can be pickled."""

    builds: Sequence[Callable[[int], BatchWorld]]  # each builds a world with the given number of lanes
    lanes: int  # episodes played at the same time in this process; no result depends on it
    _worlds: dict[tuple[int, int, int], BatchWorld] = field(default_factory=dict, init=False)

    def __getstate__(self) -> dict[str, object]:
        return {"builds": self.builds, "lanes": self.lanes, "_worlds": {}}

    def world(self, number: int = 0, lanes: int | None = None, copy: int = 0) -> BatchWorld:
        """The world of builds[number] of this process, or another copy of it."""
        key = number, self.lanes if lanes is None else lanes, copy
        if key not in self._worlds:
            self._worlds[key] = self.builds[number](key[1])
        return self._worlds[key]

    def __call__(self, part: Part) -> list[EpisodeResult]:
        """The results of a task, in the order of its episodes."""
        return run_episodes(self.world(part.world, EPISODES_PER_TASK), part.policy, part.keys)

    def play(
        self,
        engine: Engine | None,
        who: Sequence[tuple[int, Policy]],
        suite: Suite,
        progress: PlayProgress | None = None,
    ) -> list[list[EpisodeResult]]:
        """The results of each (world, policy) of `who` on the suite, in the suite's order.

        Without an engine they are played in this process, and `progress` is told of every episode that ended;
        elsewhere, of every task.

        Raises:
            UsageError: if a policy computes on a GPU, which workers do not have.
            ValueError: what `run_episodes` refuses.
        """
        if engine is None:
            return self._play_here(who, suite, progress)
        for _, policy in who:
            if isinstance(policy, ValuePolicy) and policy.device.type != "cpu":
                raise UsageError(
                    f"policy {policy.name} computes on {policy.device}, which workers may not have: give "
                    "device=cpu, or play here, without engine= and workers="
                )
        keys = suite.episode_keys()
        starts = range(0, len(keys), EPISODES_PER_TASK)
        parts = [
            Part(world, policy, tuple(keys[start : start + EPISODES_PER_TASK]))
            for world, policy in who
            for start in starts
        ]
        done = Counter[str]()

        def arrived(number: int) -> None:
            part = parts[number]
            done[part.policy.name] += len(part.keys)
            if progress is not None:
                progress(part.policy.name, done[part.policy.name], len(keys))

        results = engine.map(self, parts, arrived)
        of_each = [results[first : first + len(starts)] for first in range(0, len(parts), len(starts))]
        return [[result for part in of_one for result in part] for of_one in of_each]

    def _play_here(
        self, who: Sequence[tuple[int, Policy]], suite: Suite, progress: PlayProgress | None
    ) -> list[list[EpisodeResult]]:
        """`play` in a thread for each core: compiled worlds and policies let each other run."""
        # Neither worlds nor policies are thread-safe: each thread has its own.
        apart = [(self.world(world, copy=copy), deepcopy(policy)) for copy, (world, policy) in enumerate(who)]
        stopped = Event()

        def run(one: tuple[BatchWorld, Policy]) -> list[EpisodeResult]:
            world, policy = one

            def told(done: int, total: int) -> None:
                if stopped.is_set():
                    raise CancelledError
                if progress is not None:
                    progress(policy.name, done, total)

            return run_suite(world, policy, suite, told)

        # A new thread does not inherit torch's number of threads, on which the last bits of a sum depend.
        as_here = torch.set_num_threads, (torch.get_num_threads(),)
        with ThreadPoolExecutor(min(len(who), os.cpu_count() or 1), "playing", *as_here) as threads:
            try:
                return list(threads.map(run, apart))
            except BaseException:
                stopped.set()
                raise


# From names and checkpoint paths to the policies that take part in a comparison.

Checkpoints = str | Sequence[str] | Mapping[str, str] | None
"""A path or released name, several of them, or some by the name that tables shall print."""


def load_checkpoints(
    checkpoint: Checkpoints, spec: WorldSpec, weights: Sequence[float] | None, device: str
) -> dict[str, tuple[Policy, str]]:
    """Trained policies with their paths, by name: the mapping's, or else the agent's in the checkpoint.

    Raises:
        UsageError: if two checkpoints have one name, or a name that is a rule's.
        CheckpointError: if one does not fit the world.
    """
    if checkpoint is None:
        pairs: list[tuple[str | None, str]] = []
    elif isinstance(checkpoint, str):
        pairs = [(None, checkpoint)]
    elif isinstance(checkpoint, Mapping):
        pairs = [(str(name), path) for name, path in checkpoint.items()]
    else:
        pairs = [(None, path) for path in checkpoint]
    loaded: dict[str, tuple[Policy, str]] = {}
    for name, path in pairs:
        policy = load_policy(policy_file(path), spec, weights, device)
        if name is not None:
            policy.name = name
        if policy.name in loaded or policy.name in RULE_NAMES:
            taken = "another checkpoint" if policy.name in loaded else "a rule"
            raise UsageError(
                f"{path} holds {policy.name!r}, the name of {taken}: name it yourself, "
                f"checkpoint={{my_{policy.name}: {path}}}"
            )
        loaded[policy.name] = (policy, path)
    return loaded


def default_rules(env: Mapping[str, Any]) -> Sequence[str]:
    """The rules that policies are compared with in an environment, unless the user names others."""
    entry = ENVIRONMENTS[env["name"]]
    return rules_of(env["name"], entry.reference) if entry.rules is None else entry.rules


def contestants(
    names: Sequence[str] | None,
    loaded: Mapping[str, tuple[Policy, str]],
    default_rules: Sequence[str],
    spec: WorldSpec,
) -> list[Policy]:
    """The policies in the order of `names`; without names: every checkpoint, then the world's rules.

    Without names and checkpoints MAF comes first, as the reference that the literature uses.

    Raises:
        UsageError: for a checkpoint that no name uses.
        ValueError: for an unknown name, an agent without its checkpoint, or a rule that does not know what is
            decided in the world.
    """
    if names is None:
        rules = sorted(default_rules, key=lambda name: name != "maf") if not loaded else default_rules
        return [policy for policy, _ in loaded.values()] + [named_rule(name, spec) for name in rules]
    for name, (_, path) in loaded.items():
        if name not in names:
            raise UsageError(f"checkpoint {path} holds {name!r}, which policies= does not name: add it there")
    policies: list[Policy] = []
    for name in names:
        if name in loaded:
            policies.append(loaded[name][0])
        else:
            require_policy(name, list(loaded))
            policies.append(named_rule(name, spec))
    return policies


def checkpoint_facts(loaded: Mapping[str, tuple[Policy, str]]) -> dict[str, dict[str, str]]:
    """Path and SHA-256 of each checkpoint, for the summary."""
    return {
        name: {"path": path, "sha256": file_hash(policy_file(path))} for name, (_, path) in loaded.items()
    }
