"""Rules by name, and where they can play."""

from __future__ import annotations

import pytest

from agents.named import RULE_NAMES, named_rule, playable, rules_of
from envs.environments import ENVIRONMENTS
from envs.simulation.world import WorldSpec
from training.config import compose_values, world_config


def spec_of(*words: str) -> WorldSpec:
    env = compose_values("evaluate", [f"+env={words[0]}", *words[1:]])["env"]
    entry = ENVIRONMENTS[env["name"]]
    return entry.build(entry.members_of(world_config(env), "train")[0], 1).spec


@pytest.mark.parametrize("environment", sorted(ENVIRONMENTS))
def test_what_is_compared_in_an_environment_can_play_there(environment: str) -> None:
    entry = ENVIRONMENTS[environment]
    compared = rules_of(environment) if entry.rules is None else entry.rules
    assert {*compared} <= {*playable(spec_of(environment))} <= {*RULE_NAMES}


@pytest.mark.parametrize(
    ("name", "words", "why"),
    [
        ("committed", ["multicluster"], "needs env.forecast=true"),
        ("committed", ["multicloud"], "needs env.forecast=true"),
        ("round_cost", ["multicluster"], "does not know what multicluster decides"),
        ("round_cost", ["multicloud"], "does not know what multicloud decides"),
        ("bag_cost", ["workflows"], "does not know what workflows decides"),
        ("workflow_cost", ["federated"], "does not know what federated decides"),
    ],
)
def test_a_rule_is_refused_where_it_cannot_decide(name: str, words: list[str], why: str) -> None:
    with pytest.raises(ValueError, match=f"^rule '{name}' {why}: expected one of "):
        named_rule(name, spec_of(*words))


def test_a_rule_plays_where_the_world_is_set_so_that_it_can() -> None:
    assert named_rule("committed", spec_of("multicluster", "env.forecast=true")).name == "committed"
    assert named_rule("round_cost", spec_of("multicloud", "env.workload.federated=true")).name == "round_cost"


def test_an_unknown_rule_is_refused_with_the_closest_name() -> None:
    with pytest.raises(ValueError, match=r"^unknown rule 'tunned' \(did you mean 'tuned'\?\): "):
        named_rule("tunned")
