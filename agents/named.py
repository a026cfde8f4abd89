"""Every rule by name, whatever it is made for. A rule's code is imported when it is made."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from pkgutil import resolve_name
from typing import TYPE_CHECKING, NamedTuple, cast

from spotweave.agents.rules import RULES, make_rule

if TYPE_CHECKING:
    from spotweave.agents.policy import Policy
    from spotweave.envs.simulation.world import WorldSpec


class QuestionRule(NamedTuple):
    """A rule of an environment that asks about one task at a time."""

    environment: str  # where it can play
    policy: str  # `MODULE:NAME` of what makes it
    title: str  # what tables call it
    source: str  # where it is described


_ROUNDS = "spotweave.agents.federated.rules"
_STEPS = "spotweave.agents.workflows.online"
QUESTION_RULES = {
    "round_cost": QuestionRule(
        "federated",
        "spotweave.agents.federated.cost:RoundCost",
        "Expected cost of rounds",
        "Spotweave: late starts, two epochs on one instance",
    ),
    "fed_cost_aware": QuestionRule(
        "federated", f"{_ROUNDS}.fed_cost_aware:FedCostAware", "FedCostAware", "Sinha 2025, Listing 1"
    ),
    "always_spot": QuestionRule(
        "federated", f"{_ROUNDS}.always_on:always_spot", "Always on, spot", "Sinha 2025, Table I"
    ),
    "always_on_demand": QuestionRule(
        "federated", f"{_ROUNDS}.always_on:always_on_demand", "Always on, on demand", "Sinha 2025, Table I"
    ),
    "dynamic_scheduler": QuestionRule(
        "federated",
        f"{_ROUNDS}.dynamic_scheduler:DynamicScheduler",
        "Dynamic Scheduler",
        "Brum 2023, Algorithms 1 to 3",
    ),
    "bag_cost": QuestionRule(
        "bags",
        "spotweave.agents.bags.cost:BagCost",
        "Expected cost of a bag's tasks",
        "Spotweave, docs/bags.md",
    ),
    "heft_on_demand": QuestionRule(
        "workflows", f"{_STEPS}:HeftOnDemand", "HEFT on demand", "Topcuoglu, Hariri and Wu 2002, step by step"
    ),
    "heft_spot": QuestionRule(
        "workflows",
        f"{_STEPS}:HeftSpot",
        "HEFT on spot",
        "Topcuoglu, Hariri and Wu 2002, step by step; falls back to on demand",
    ),
    "cheapest_place": QuestionRule(
        "workflows", f"{_STEPS}:CheapestPlace", "Cheapest place", "common practice"
    ),
    "workflow_cost": QuestionRule(
        "workflows",
        f"{_STEPS}:WorkflowCost",
        "Expected cost of a workflow's steps",
        "Spotweave, docs/environments.md",
    ),
}
"""In the order of tables."""

RULE_NAMES: tuple[str, ...] = (*RULES, *QUESTION_RULES)


def question_rules(environment: str) -> tuple[str, ...]:
    """Names of the rules that only this environment knows."""
    return tuple(name for name, rule in QUESTION_RULES.items() if rule.environment == environment)


def rules_of(environment: str, first: str | None = None) -> tuple[str, ...]:
    """Names of the rules that are compared in an environment by default.

    Args:
        environment: its name, as rules declare it.
        first: the rule that comes first.
    """
    if own := question_rules(environment):
        return own if len(own) > 1 else (*own, "random")
    names = [rule.name for rule in RULES.values() if rule.worlds is None or environment in rule.worlds]
    return tuple(sorted(names, key=lambda name: name != first))


def playable(spec: WorldSpec) -> tuple[str, ...]:
    """Names of the rules that know what is decided in a world."""
    names = [rule.name for rule in RULES.values() if spec.forecast or not rule.forecast]
    if spec.federated:
        names += question_rules("federated")
    return tuple(dict.fromkeys([*names, *question_rules(spec.name), *rules_of(spec.name)]))


def require_rule(name: str) -> None:
    """Raise ValueError unless there is such a rule; it lists all names and gives the closest one."""
    if name not in RULE_NAMES:
        near = get_close_matches(name, RULE_NAMES, 1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise ValueError(f"unknown rule {name!r}{hint}: expected one of {', '.join(RULE_NAMES)}")


def require_policy(name: str, checkpoints: Sequence[str]) -> None:
    """Raise ValueError unless a policy is a rule, or one of the names of what checkpoints hold."""
    if name not in RULE_NAMES and name not in checkpoints:
        near = get_close_matches(name, [*RULE_NAMES, *checkpoints], 1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(
            f"policy {name!r} is not a rule, so it needs a checkpoint of that name "
            f"(checkpoint=PATH): {hint}rules are {', '.join(RULE_NAMES)}"
        )


def named_rule(name: str, spec: WorldSpec | None = None) -> Policy:
    """The rule `name` with its default parameters.

    Args:
        name: one of `RULE_NAMES`.
        spec: of the world where it shall play; None: it is not checked.

    Raises:
        ValueError: for an unknown name (see `require_rule`), or for a rule that does not know what is decided
            in the world.
    """
    require_rule(name)
    if spec is not None and name not in playable(spec):
        lacks = "needs env.forecast=true" if name in RULES else f"does not know what {spec.name} decides"
        raise ValueError(f"rule {name!r} {lacks}: expected one of {', '.join(playable(spec))}")
    if name in QUESTION_RULES:
        return cast("Policy", resolve_name(QUESTION_RULES[name].policy)())
    return make_rule(name)
