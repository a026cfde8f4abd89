"""Executions of bags by a policy, in the same worlds as those by a scheduler."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from agents.named import RULE_NAMES, named_rule
from agents.policy import Policy
from agents.stored import policy_file
from envs.simulation.bags.cases import Case
from envs.simulation.bags.model import Environment
from envs.simulation.bags.options import compute_d_spot
from envs.simulation.bags.outcome import Outcome
from envs.simulation.bags.plan import Plan
from envs.simulation.bags.scenarios import Scenario, drawn
from envs.simulation.bags.world import BagWorld
from envs.simulation.world import EpisodeKey
from training.checkpoint import load_policy

RELEASED = "bags"
"""The released policy."""


@dataclass(frozen=True)
class OnePlan:
    """One plan in the worlds of consecutive seeds, one for each index of an episode. A `CaseSource`.

    A plan without VMs leaves the start to the policy.
    """

    plan: Plan
    environment: Environment
    scenario: Scenario
    launch_s: float
    first_seed: int = 0

    def case(self, key: EpisodeKey) -> Case:
        """The case of an episode."""
        d_spot_s = compute_d_spot(self.plan.bag.tasks, self.environment, self.plan.deadline_s)
        changes = drawn(self.scenario, self.first_seed + key.index)
        return Case(self.plan, self.environment, self.scenario, changes, d_spot_s, self.launch_s)


def unplanned(plan: Plan) -> Plan:
    """The same bag and deadline, without VMs."""
    return replace(plan, vms=())


def play(policy: Policy, source: OnePlan, seeds: int) -> list[Outcome]:
    """Executions with so many seeds, as `simulating.execute` gives them for a scheduler."""
    world = BagWorld(source, seeds)
    world.reset([EpisodeKey(0, "test", seed) for seed in range(seeds)])
    for lane in range(seeds):
        policy.begin(lane, lane)
    actions = np.zeros(seeds, np.int64)
    # Where nothing hibernates, a plan may end without a question.
    active = np.asarray(world.observation["action_mask"].any(1), np.bool_)
    while active.any():
        lanes = np.flatnonzero(active)
        actions[lanes] = policy.act_lanes(world.observation, lanes)
        _, done = world.step(actions, active)
        active &= ~done
    return [replace(world.outcome(lane), scheduler=policy.name) for lane in range(seeds)]


def policy_named(name: str, source: OnePlan) -> Policy:
    """One of `agents.bags.schedulers.POLICIES`. Raises CheckpointError if its file is damaged."""
    if name in RULE_NAMES:
        return named_rule(name)
    return load_policy(policy_file(RELEASED), BagWorld(source, 1).spec)
