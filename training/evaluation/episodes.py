"""Runs a policy through the episodes of a suite, many lanes in lockstep, and keeps what was measured."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from spotweave.agents.policy import Policy
from spotweave.envs.simulation.series import Ints
from spotweave.envs.simulation.snapshot import Observation, take_rows
from spotweave.envs.simulation.streams import SPLITS, Split, Streams, episode_sequence
from spotweave.envs.simulation.world import BatchWorld, EpisodeKey

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
