"""Runs a policy through the episodes of a suite, many lanes in lockstep, and keeps what was measured."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass, field
from threading import Event
from typing import Any, NamedTuple

import numpy as np
import torch

from spotweave.agents.named import RULE_NAMES, named_rule, require_policy, rules_of
from spotweave.agents.networks import ValuePolicy
from spotweave.agents.policy import Policy
from spotweave.agents.stored import policy_file
from spotweave.envs.environments import ENVIRONMENTS
from spotweave.envs.simulation.series import Ints
from spotweave.envs.simulation.snapshot import Observation, take_rows
from spotweave.envs.simulation.streams import SPLITS, Split, Streams, episode_sequence
from spotweave.envs.simulation.world import BatchWorld, EpisodeKey, WorldSpec
from spotweave.training.checkpoint import load_policy
from spotweave.training.config import UsageError
from spotweave.training.engine import Engine
from spotweave.training.files import file_hash
from spotweave.training.progress import PlayProgress

# Suites: frozen, hashed sets of episodes on which policies are measured.


@dataclass(frozen=True)
class Suite:
    """A named set of episodes: numbers 0 .. episodes-1 of a split under one published seed."""

    name: str  # what reports print
    split: Split  # "train", "validation" or "test"; splits share neither seeds nor trace time
    seed: int  # published seed, >= 0
    episodes: int  # how many, >= 1

    def __post_init__(self) -> None:
        if self.split not in SPLITS:
            raise ValueError(f"unknown split {self.split!r}: expected one of {', '.join(SPLITS)}")
        if self.seed < 0:
            raise ValueError(f"the seed of a suite must be >= 0, got {self.seed}")
        if self.episodes < 1:
            raise ValueError(f"a suite needs at least 1 episode, got episodes={self.episodes}")

    def episode_keys(self) -> list[EpisodeKey]:
        """The episodes, in order."""
        return [EpisodeKey(self.seed, self.split, index) for index in range(self.episodes)]


SUITES: dict[str, Suite] = {
    suite.name: suite
    for suite in (
        Suite("train", "train", seed=1001, episodes=30),
        Suite("validation", "validation", seed=2002, episodes=30),
        Suite("test", "test", seed=3003, episodes=50),
    )
}
"""The published suites. Never choose a seed, a checkpoint or a parameter on "test"."""


def find_suite(name: str, episodes: int | None = None) -> Suite:
    """A published suite, or its first `episodes` episodes (more than published simply continue the numbers).

    Raises:
        ValueError: for an unknown name or fewer than 1 episode.
    """
    if name not in SUITES:
        raise ValueError(f"unknown suite {name!r}: expected one of {', '.join(SUITES)}")
    suite = SUITES[name]
    return suite if episodes is None else dataclasses.replace(suite, episodes=episodes)


def suite_hash(world: BatchWorld, suite: Suite) -> str:
    """SHA-256 over the world's facts and everything random in every episode of the suite.

    Two reports with the same hash measured on the same workload, prices, availability and revocations; the
    suite's name does not enter.
    """
    digest = hashlib.sha256()
    facts = dataclasses.asdict(world.spec)
    del facts["forecast"]  # what is shown of an episode changes nothing in it
    digest.update(json.dumps(facts, sort_keys=True, separators=(",", ":")).encode())
    for key in suite.episode_keys():
        digest.update(f"\n{key.split}/{key.seed}/{key.index}:{world.fingerprint(key)}".encode())
    return digest.hexdigest()


Progress = Callable[[int, int], None]  # called with (episodes done, episodes in all) whenever an episode ends

LATENCY_DECISIONS = 300
LATENCY_WARM_UP = 20


@dataclass(frozen=True)
class EpisodeResult:
    """What one policy did in one episode."""

    policy: str  # the policy's name
    key: EpisodeKey  # the episode
    metrics: dict[str, float]  # every metric of the world's spec, finite, in the spec's order
    episode_return: float  # undiscounted sum of the rewards
    decisions: int  # decisions taken


@dataclass(frozen=True)
class Latency:
    """Milliseconds of one decision taken alone (a batch of 1), over `decisions` real observations."""

    p50_ms: float
    p99_ms: float
    decisions: int


def policy_seed(key: EpisodeKey) -> int:
    """Seed of a policy's own random stream in an episode: the same for every policy, in every lane."""
    return Streams(episode_sequence(key.seed, key.split, key.index)).key("policy")


def choose(policy: Policy, observation: Observation, lanes: Ints) -> Ints:
    """(n,) actions of `policy` for the rows `lanes` of a batched observation.

    Raises:
        ValueError: if the policy returns the wrong number of actions, or one that its mask forbids.
    """
    n_lanes = observation["action_mask"].shape[0]
    rows = observation
    if len(lanes) != n_lanes:
        rows = take_rows(observation, lanes)
    actions = np.asarray(policy.act_batch(rows, lanes))
    if actions.shape != lanes.shape or not np.issubdtype(actions.dtype, np.integer):
        raise ValueError(
            f"policy {policy.name!r} returned {actions.dtype} actions of shape {actions.shape}, "
            f"expected integers of shape {lanes.shape}"
        )
    n_actions = rows["action_mask"].shape[1]
    inside = (actions >= 0) & (actions < n_actions)
    valid = inside & (rows["action_mask"][np.arange(len(lanes)), np.where(inside, actions, 0)] != 0)
    if not valid.all():
        row = int(np.argmin(valid))
        raise ValueError(
            f"policy {policy.name!r} chose action {int(actions[row])} in lane {int(lanes[row])}, which the "
            f"action mask forbids (actions are 0..{n_actions - 1}, of which "
            f"{int(rows['action_mask'][row].sum())} are valid there)"
        )
    return actions.astype(np.int64, copy=False)


def finished_metrics(world: BatchWorld, lane: int, policy: str, key: EpisodeKey) -> dict[str, float]:
    """The finished episode's metrics in the spec's order.

    Raises:
        ValueError: if the world gives none, or one that is not finite, for a metric of its spec.
    """
    given = world.metrics(lane)
    metrics: dict[str, float] = {}
    for name in world.spec.metrics:
        if name not in given:
            raise ValueError(f"world {world.spec.name!r} gave no metric {name!r} for {key}")
        value = float(given[name])
        if not math.isfinite(value):
            raise ValueError(
                f"metric {name!r} of policy {policy!r} is {value} in {key}: expected a finite number"
            )
        metrics[name] = value
    return metrics


def run_suite(
    world: BatchWorld, policy: Policy, suite: Suite, progress: Progress | None = None
) -> list[EpisodeResult]:
    """Run every episode of a suite; see `run_episodes`."""
    return run_episodes(world, policy, suite.episode_keys(), progress)


def run_episodes(
    world: BatchWorld, policy: Policy, keys: Sequence[EpisodeKey], progress: Progress | None = None
) -> list[EpisodeResult]:
    """Run some episodes; results come in their order, whatever the number of lanes.

    A lane that ends its episode takes the next one, so all lanes stay busy. Neither the world's streams nor
    the policy's own depend on the lane, so results do not depend on how many lanes there are.

    Whatever the world's lanes held is replaced. The policy's `begin` is called for each episode with the seed
    of the episode's "policy" stream, `progress` after each.

    Raises:
        ValueError: for an invalid action, or a metric that is missing or not finite.
    """
    results: list[EpisodeResult | None] = [None] * len(keys)
    n_lanes = min(world.n_lanes, len(keys))
    playing = np.arange(n_lanes)  # the episode that each lane plays
    active = np.zeros(world.n_lanes, np.bool_)
    active[:n_lanes] = True
    returns = np.zeros(world.n_lanes)
    decisions = np.zeros(world.n_lanes, np.int64)
    actions = np.zeros(world.n_lanes, np.int64)
    next_episode = n_lanes
    done_count = 0

    def start(lanes: list[int], episodes: list[int]) -> None:
        world.reset([keys[e] for e in episodes], lanes)
        for lane, episode in zip(lanes, episodes, strict=True):
            policy.begin(lane, policy_seed(keys[episode]))
            returns[lane], decisions[lane] = 0.0, 0

    start(list(range(n_lanes)), list(range(n_lanes)))
    while active.any():
        lanes = np.flatnonzero(active)
        actions[lanes] = choose(policy, world.observation, lanes)
        rewards, done = world.step(actions, active)
        returns[lanes] += rewards[lanes]
        decisions[lanes] += 1
        refill: list[int] = []
        for lane in lanes[done[lanes]].tolist():
            episode = int(playing[lane])
            results[episode] = EpisodeResult(
                policy.name,
                keys[episode],
                finished_metrics(world, lane, policy.name, keys[episode]),
                float(returns[lane]),
                int(decisions[lane]),
            )
            done_count += 1
            if progress is not None:
                progress(done_count, len(keys))
            if next_episode < len(keys):
                playing[lane] = next_episode
                next_episode += 1
                refill.append(lane)
            else:
                active[lane] = False
        if refill:
            start(refill, [int(playing[lane]) for lane in refill])
    return [result for result in results if result is not None]


def measure_latency(
    world: BatchWorld,
    policy: Policy,
    key: EpisodeKey,
    decisions: int = LATENCY_DECISIONS,
    warm_up: int = LATENCY_WARM_UP,
) -> Latency:
    """Time `act_batch` on one observation at a time, while the policy plays `key` in lane 0.

    The first `warm_up` decisions are not counted (compilation, caches). The episode starts again when it
    ends before enough decisions were seen.
    """
    lane = np.zeros(1, np.int64)
    active = np.zeros(world.n_lanes, np.bool_)
    active[0] = True
    actions = np.zeros(world.n_lanes, np.int64)
    times_ms: list[float] = []
    ended = True
    for count in range(warm_up + decisions):
        if ended:
            world.reset([key], [0])
            policy.begin(0, policy_seed(key))
        row = take_rows(world.observation, slice(0, 1))
        started = time.perf_counter_ns()
        chosen = policy.act_batch(row, lane)
        elapsed_ns = time.perf_counter_ns() - started
        if count >= warm_up:
            times_ms.append(elapsed_ns / 1e6)
        actions[0] = int(chosen[0])
        _, done = world.step(actions, active)
        ended = bool(done[0])
    return Latency(
        p50_ms=float(np.percentile(times_ms, 50)),
        p99_ms=float(np.percentile(times_ms, 99)),
        decisions=len(times_ms),
    )


# Plays suites with an engine: a task is a few episodes of a policy.


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
