"""Decisions with their candidates and reasons."""

from __future__ import annotations

import numpy as np
import pytest

from agents.networks.rl_lsfc import RLFC
from agents.value_policy import ValuePolicy
from deploy.model.jobs import Places, Resources
from deploy.scheduler.decide.decider import Decider, Decision
from deploy.scheduler.decide.policies import (
    MARKET_COMPONENTS,
    Loaded,
    combined,
    load_federated_policy,
    load_market_policy,
    load_round_policy,
)
from deploy.scheduler.snapshot.needs import Need, Round
from deploy.scheduler.snapshot.occupancy import Occupancy
from deploy.scheduler.snapshot.writer import snapshot_of
from tests.deploy.scheduler.cases import need, offer

OFFERS = [
    offer("cheap-spot", price_usd_hour=0.2),
    offer("dear-spot", price_usd_hour=0.6),
    offer("sure", "on_demand"),
]


def decide(policy: str, *needs: Need, used: dict[str, int] | None = None) -> Decision:
    loaded = load_market_policy(policy, len(OFFERS))
    decider = Decider(loaded.policy, components=loaded.components)
    snapshot = snapshot_of(OFFERS, needs, used or {}, Occupancy())
    decision = decider.decide(snapshot, needs, OFFERS)
    assert decision is not None
    return decision


def test_no_needs_no_decision() -> None:
    decider = Decider(load_market_policy("cheapest", len(OFFERS)).policy)
    assert decider.decide(snapshot_of(OFFERS, [], {}, Occupancy()), [], OFFERS) is None


@pytest.mark.parametrize(("policy", "place"), [("cheapest", "cheap-spot"), ("on_demand", "sure")])
def test_rules_choose_as_they_do_in_simulation(policy: str, place: str) -> None:
    decision = decide(policy, need())
    assert decision.offer_id == place
    assert decision.candidates[0].offer_id == place
    assert decision.candidates[0].values == {}
    assert decision.candidates[0].total is None
    assert 0 < decision.candidates[0].expected_usd < 1


def test_the_released_policy_gives_the_value_of_every_component() -> None:
    """Of each choice that it weighs: what is far from the cheapest, or must queue, it does not look at."""
    decision = decide("multicloud", need(kind="deadline", slack_s=7200.0))
    assert len(decision.candidates) == 4
    assert decision.candidates[0].offer_id == decision.offer_id
    weighed = [candidate for candidate in decision.candidates if candidate.values]
    assert len(weighed) > 1
    for candidate in weighed:
        assert set(candidate.values) == set(MARKET_COMPONENTS)
        assert candidate.total is not None
        assert candidate.values["money"] < 0.0


@pytest.mark.parametrize("policy", ["multicloud", "expected_cost", "maf", "on_demand"])
def test_a_choice_that_looks_worse_names_the_margin_or_the_rule_that_decided(policy: str) -> None:
    reasons = set()
    for slack_s in (900.0, 1500.0, 3000.0, 10_000.0, 0.0):
        for used in ({}, {"cheap-spot": 4}, {"cheap-spot": 4, "dear-spot": 4}):
            asked = need(kind="deadline", slack_s=slack_s) if slack_s else need()
            decision = decide(policy, asked, used=used)
            chosen, *others = decision.candidates
            worth = -chosen.expected_usd if chosen.total is None else chosen.total
            better = [
                other
                for other in others
                if other.valid
                and (-other.expected_usd if chosen.total is None else other.total or -np.inf) > worth + 1e-6
            ]
            assert bool(better) == bool(decision.why), (decision.why, decision.candidates)
            reasons.add(decision.why)
            assert chosen.risk == 0 or "spot" in str(chosen.offer_id)
    if policy == "on_demand":
        assert "on_demand goes by its own order, not by expected USD (cheap-spot is cheaper)" in reasons


def test_every_candidate_that_is_out_says_why() -> None:
    picky = need(places=Places(markets=("spot",)), resources=Resources(instances=2))
    decision = decide("cheapest", picky, used={"cheap-spot": 3})
    reasons = {item.offer_id: item.reason for item in decision.candidates}
    assert decision.offer_id == "dear-spot"
    assert reasons == {
        "dear-spot": "",
        None: "",
        "cheap-spot": "1 of 4 instances are free, the job needs 2",
        "sure": "the job allows market spot, this is on_demand",
    }


def test_federated_tasks_have_their_own_policy() -> None:
    loaded = load_round_policy("round_cost", 3)
    waits = need(
        kind="federated",
        here="cheap-spot",
        executions_left=5,
        standard_s=100.0,
        round=Round(idle=True, owes=False, round_left_s=1000.0, round_s=1200.0, cold_s=30.0),
    )
    decider = Decider(loaded.policy)
    decision = decider.decide(snapshot_of(OFFERS, [waits], {"cheap-spot": 1}, Occupancy()), [waits], OFFERS)
    assert decision is not None
    assert decision.policy == "round_cost"
    # Waiting 1,000 s costs more than half of a start (90 s): it is released.
    assert decision.offer_id is None


def test_one_policy_serves_both_kinds_and_each_task_names_who_decided() -> None:
    """The first to arrive is decided first; each half of the policy sees its own kind only."""
    market = load_market_policy("cheapest", 3)
    policy = combined(market, load_federated_policy("round_cost", market, 3))
    client = need("fl", kind="federated", standard_s=100.0, round=Round(round_s=120.0, cold_s=30.0))
    job = need()
    decider = Decider(policy)
    for shown, name in (([client, job], "round_cost"), ([job, client], "cheapest")):
        decision = decider.decide(snapshot_of(OFFERS, shown, {}, Occupancy()), shown, OFFERS)
        assert decision is not None
        assert (decision.policy, decision.need) == (name, shown[0])
        alone = Decider(decider.policy_for(shown[0])).decide(
            snapshot_of(OFFERS, shown[:1], {}, Occupancy()), shown[:1], OFFERS
        )
        assert alone is not None
        assert decision.offer_id == alone.offer_id


def test_the_released_policy_serves_both_kinds_alone() -> None:
    """It sees Spark jobs and clients in one window."""
    both = load_market_policy("multicloud", 3)
    assert combined(both, load_federated_policy(None, both, 3)) is both.policy
    client = need("fl", kind="federated", standard_s=100.0, round=Round(round_s=120.0, cold_s=30.0))
    decider = Decider(both.policy, components=both.components)
    shown, decided = [client, need()], set()
    while shown:
        decision = decider.decide(snapshot_of(OFFERS, shown, {}, Occupancy()), shown, OFFERS)
        assert decision is not None
        assert decision.invalid is None
        decided.add(decision.need.kind)
        shown.remove(decision.need)
    assert decided == {"federated", "general"}


def test_a_network_of_one_kind_does_not_decide_about_the_other() -> None:
    network = RLFC(3, (1.0,))
    market = Loaded(ValuePolicy(network, (1.0,), "flat"), ("value",), "flat")
    with pytest.raises(ValueError, match="was not trained with federated tasks"):
        load_federated_policy(None, market, 3)
    rule = load_market_policy("expected_cost", 3)
    assert combined(rule, load_federated_policy(None, rule, 3)) is rule.policy


@pytest.mark.parametrize(
    ("load", "name", "message"),
    [
        (load_market_policy, "nope", "no checkpoint at nope"),
        (load_market_policy, "liu2022/spotweave", "was trained for"),
        (load_round_policy, "maf", "does not know federated tasks"),
        (load_round_policy, "multicloud", "was trained for"),
    ],
)
def test_a_policy_that_does_not_fit_is_refused_in_one_line(load: object, name: str, message: str) -> None:
    assert callable(load)
    with pytest.raises(ValueError, match=message) as refused:
        load(name, 3)
    assert "\n" not in str(refused.value)


def test_weights_go_to_policies_with_components_only() -> None:
    with pytest.raises(ValueError, match="leave weights out"):
        load_market_policy("maf", 3, [1.0, 1.0, 1.0, 1.0])
    with pytest.raises(ValueError, match="value weights"):
        load_market_policy("multicloud", 3, [1.0])
    assert load_market_policy("multicloud", 3, [5.0, 5.0, 0.1, 1.0, 0.3]).components[3] == "money"
