"""Every rule by name, whatever it is made for."""

from __future__ import annotations

from difflib import get_close_matches

import numpy as np
from numpy.typing import NDArray

from agents.bags.cost import BAG_ENVIRONMENTS, BagCost
from agents.federated.rules import ROUND_ENVIRONMENTS, ROUND_RULES
from agents.policy import Policy
from agents.rules import RULES, make_rule
from agents.workflows.online.rules import WORKFLOW_ENVIRONMENTS, WORKFLOW_RULES
from envs.simulation import columns as col
from envs.simulation.snapshot import Category, Observation, take_rows
from envs.simulation.world import WorldSpec

RULE_NAMES: tuple[str, ...] = (*RULES, *ROUND_RULES, BagCost.name, *WORKFLOW_RULES)


def rules_of(environment: str, first: str | None = None) -> tuple[str, ...]:
    """Names of the rules that are compared in an environment by default.

    Args:
        environment: its name, as rules declare it.
        first: the rule that comes first.
    """
    if environment in ROUND_ENVIRONMENTS:
        return tuple(ROUND_RULES)
    if environment in BAG_ENVIRONMENTS:
        return (BagCost.name, "random")
    if environment in WORKFLOW_ENVIRONMENTS:
        return tuple(WORKFLOW_RULES)
    names = [rule.name for rule in RULES.values() if rule.worlds is None or environment in rule.worlds]
    return tuple(sorted(names, key=lambda name: name != first))


def playable(spec: WorldSpec) -> tuple[str, ...]:
    """Names of the rules that know what is decided in a world."""
    names = [rule.name for rule in RULES.values() if spec.forecast or not rule.forecast]
    if spec.federated or spec.name in ROUND_ENVIRONMENTS:
        names += ROUND_RULES
    return tuple(dict.fromkeys([*names, *rules_of(spec.name)]))


def named_rule(name: str, spec: WorldSpec | None = None) -> Policy:
    """The rule `name` with its default parameters.

    Args:
        name: one of `RULE_NAMES`.
        spec: of the world where it shall play; None: it is not checked.

    Raises:
        ValueError: for an unknown name (all names and the closest one are given), or for a rule that does not
            know what is decided in the world.
    """
    if name not in RULE_NAMES:
        near = get_close_matches(name, RULE_NAMES, 1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise ValueError(f"unknown rule {name!r}{hint}: expected one of {', '.join(RULE_NAMES)}")
    if spec is not None and name not in playable(spec):
        lacks = "needs env.forecast=true" if name in RULES else f"does not know what {spec.name} decides"
        raise ValueError(f"rule {name!r} {lacks}: expected one of {', '.join(playable(spec))}")
    if name in ROUND_RULES:
        return ROUND_RULES[name]()
    if name == BagCost.name:
        return BagCost()
    if name in WORKFLOW_RULES:
        return WORKFLOW_RULES[name]()
    return make_rule(name)


# One policy for everything that arrives, made of two: one for federated tasks, one for all others.


class ByKind(Policy):
    """The first job of the window is decided by the policy of its kind, which does not see the other kind.

    A policy that was trained with both kinds needs none of this.

    Args:
        others: decides about Spark jobs.
        federated: decides about clients and servers of federated applications, one at a time.
    """

    def __init__(self, others: Policy, federated: Policy) -> None:
        names = dict.fromkeys([others.name, federated.name])
        self.name = "+".join(names)
        self.others = others
        self.federated = federated

    def begin(self, lane: int, seed: int) -> None:
        """Start an episode in a lane."""
        self.others.begin(lane, seed)
        self.federated.begin(lane, seed)

    def act_batch(self, observations: Observation, lanes: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n,) flat actions."""
        federated = observations["jobs"][..., col.CATEGORY] == Category.FEDERATED
        actions = np.empty(len(federated), np.int64)
        for first in np.unique(federated[:, 0]):
            rows = np.flatnonzero(federated[:, 0] == first)
            shown = take_rows(observations, rows)
            if first:
                n_choices = shown["clusters"].shape[1] + 1
                shown["jobs"], shown["pairs"] = shown["jobs"][:, :1], shown["pairs"][:, :1]
                shown["action_mask"] = shown["action_mask"][:, :n_choices]
            else:
                hidden = federated[rows]
                shown["jobs"][hidden] = 0.0
                shown["pairs"][hidden] = 0.0
                shown["action_mask"].reshape(len(rows), hidden.shape[1], -1)[hidden] = 0
            policy = self.federated if first else self.others
            actions[rows] = policy.act_batch(shown, lanes[rows])
        return actions
