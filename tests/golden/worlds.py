"""Sections `episodes` and `decisions`: what worlds draw, and what rules and released policies do in them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spotweave.agents.named import named_rule, playable
from spotweave.agents.policy import Policy
from spotweave.agents.stored import (
    CheckpointError,
    load_policy_state,
    policy_file,
    released_names,
    stored_policy,
)
from spotweave.envs.environments import ENVIRONMENTS
from spotweave.envs.simulation.world import BatchWorld, EpisodeKey, WorldError
from spotweave.training.config import compose_values, world_config

MARKET = "+env=multicloud env.workload.jobs=12"
WORLDS = {
    "market": MARKET,
    "market hibernating": f"{MARKET} env.market.hibernate=true env.market.providers=[aws]",
    "market strict": f"{MARKET} env.market.strict_fifo=true env.market.owned_executors=0",
    "market gcp": f"{MARKET} +env/markets=gcp env.workload.gangs=[1,2] env.workload.gang_weights=[1,1]",
    "market uniform": f"{MARKET} +env/markets=uniform env.market.notice_missed=0.5",
    "market jobs": f"{MARKET} +env/markets=jobs",
    "clusters": "+env=multicluster env.n_jobs=60",
    "clusters forecast": "+env=multicluster env.n_jobs=60 env.forecast=true env.allow_none=true",
    "clusters bernoulli": "+env=multicluster env.n_jobs=60 env.workload.arrivals.pattern=bernoulli",
    "anyclusters 4": "+env=anyclusters env.clusters=4 env.world.n_jobs=60",
    "anyclusters 9": "+env=anyclusters env.clusters=9 env.seed=3 env.world.n_jobs=60",
    "chapter4 uniform": "+env=chapter4 env.pattern=uniform env.load=stressed env.n_jobs=60",
    "chapter4 bernoulli": "+env=chapter4 env.pattern=bernoulli env.load=normal env.n_jobs=60",
    "chapter4 beta": "+env=chapter4 env.pattern=beta env.load=eased env.n_jobs=60",
    "federated": "+env=federated env.clients_most=4 env.rounds_most=8",
    "federated zones": "+env=federated env.market=zones env.measured=true env.budget_share=0.5",
    "spot multi": "+env=spot env.work_h=12",
    "spot single": "+env=spot env.rules=adrs_single env.work_h=12 env.launch_s=300 env.notice_s=600",
    "spot poisson": "+env=spot env.availability=poisson env.work_h=6 env.launch_failure=0.2",
    "bags": "+env=bags",
    "bags J60": "+env=bags env.job=J60 env.scenario=sc_4 env.deadline_s=3000",
    "workflows": "+env=workflows env.steps=20",
    "workflows rented": "+env=workflows env.owned_executors=0 env.steps=30 env.providers=[aws,gcp]",
}
"""Small worlds by name: the words that a command would be given."""

EPISODES = [
    EpisodeKey(0, "train", 0),
    EpisodeKey(7, "train", 3),
    EpisodeKey(0, "validation", 0),
    EpisodeKey(1, "validation", 2),
    EpisodeKey(0, "test", 0),
    EpisodeKey(0, "test", 1),
]
PLAYED = EPISODES[2], EPISODES[5]
DECISIONS = 100
"""Of each of the episodes that are played, side by side."""
SHOWN = 16


def digest(content: bytes | str) -> str:
    raw = content.encode() if isinstance(content, str) else content
    return hashlib.sha256(raw).hexdigest()[:8]


def digest_of(array: NDArray[Any]) -> str:
    """Of numbers to six digits, so that no processor's last bit shows."""
    if not np.issubdtype(array.dtype, np.floating):
        return digest(array.tobytes())
    mantissas, exponents = np.frexp(array.astype(np.float64))
    # 0.6, not 0.5: what a few bits can say exactly does not lie where it is rounded up or down by luck.
    return digest(np.ldexp(np.floor(mantissas * 2**20 + 0.6) + 0.0, exponents).tobytes())


# Both sections build all worlds, and `decisions` offers every released policy to every world.
composed, released = cache(compose_values), cache(load_policy_state)


def build(name: str, lanes: int) -> BatchWorld:
    values = composed("evaluate", tuple(WORLDS[name].split()))["env"]
    return ENVIRONMENTS[values["name"]].build(world_config(values), lanes)


def episodes() -> list[str]:
    """Of every world its facts; of some episodes digests of what is random and of what is seen first."""
    lines = []
    of_first: dict[str, dict[str, object]] = {}
    for name, words in WORLDS.items():
        world = build(name, 1)
        facts = asdict(world.spec) | {
            part: np.asarray(array).shape[1:] for part, array in world.observation.items()
        }
        first = of_first.setdefault(world.spec.name, {})
        lines.append(f"{name}: {words}")
        lines += [
            f"{name}: {fact} {json.dumps(facts[fact])}" for fact in facts if first.get(fact) != facts[fact]
        ]
        first.update({fact: value for fact, value in facts.items() if fact not in first})
        for key in EPISODES:
            world.reset([key])
            random = world.fingerprint(key)[:16]
            lines.append(f"{name}: {key.split}/{key.seed}/{key.index} {random} seen {' '.join(_seen(world))}")
    return lines


def decisions() -> list[str]:
    """Of every rule and released policy, in every world that it knows, what it decides at first."""
    lines = [
        "world: policy | decisions, digest | the first | rewards | digests of what is seen at last, metrics"
    ]
    for name in WORLDS:
        world = build(name, len(PLAYED))
        for policy_name, policy in (*_rules(world), *_released(world)):
            try:
                played = _played(world, policy)
            except ValueError as error:
                played = f"refused: {error}"
            lines.append(f"{name}: {policy_name} | {played}")
    return lines


def _rules(world: BatchWorld) -> Iterable[tuple[str, Policy]]:
    for name in playable(world.spec):
        yield name, named_rule(name, world.spec)


def _released(world: BatchWorld) -> Iterable[tuple[str, Policy]]:
    for name in released_names():
        try:
            file = policy_file(name)
            yield f"checkpoint {name}", stored_policy(file, released(file), world.spec)
        except (CheckpointError, WorldError):
            continue  # it was trained for another world


def _played(world: BatchWorld, policy: Policy) -> str:
    lanes = np.arange(world.n_lanes)
    world.reset(PLAYED)
    for lane, key in enumerate(PLAYED):
        policy.begin(lane, key.index)
    active = np.ones(world.n_lanes, np.bool_)
    taken: list[list[int]] = [[] for _ in PLAYED]
    total = np.zeros(world.n_lanes)
    for _ in range(DECISIONS):
        actions = np.zeros(world.n_lanes, np.int64)
        actions[active] = policy.act_lanes(world.observation, lanes[active])
        for lane in lanes[active]:
            taken[lane].append(int(actions[lane]))
        reward, done = world.step(actions, active)
        total += np.where(active, reward, 0.0)
        active &= ~done
        if not active.any():
            break
    counts = "+".join(str(len(of_lane)) for of_lane in taken)
    first = " ".join(map(str, taken[0][:SHOWN]))
    rewards = " ".join(f"{value:.6g}" for value in total)
    ended = [list(world.metrics(lane).values()) for lane in lanes[~active]]
    seen = digest("".join(_seen(world)))
    return f"{counts} {digest(str(taken))} | {first} | {rewards} | {seen} {digest_of(np.array(ended, float))}"


def _seen(world: BatchWorld) -> list[str]:
    return [digest_of(np.asarray(array)) for array in world.observation.values()]
