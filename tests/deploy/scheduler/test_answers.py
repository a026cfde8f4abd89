"""Decisions with their candidates and reasons; answers that must not be followed, and who decides instead."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from spotweave.agents.library_policy import Flattening, n_features, new_policy
from spotweave.agents.mtdqn.policy import MTDQNPolicy
from spotweave.agents.named import named_rule
from spotweave.agents.networks import RLFC, ValuePolicy
from spotweave.agents.policy import ByKind, Policy
from spotweave.agents.registry import LibrarySettings
from spotweave.deploy.model.jobs import Places, Resources
from spotweave.deploy.scheduler.chooser import INVALID_S
from spotweave.deploy.scheduler.decider import (
    MARKET_COMPONENTS,
    Decider,
    Decision,
    Loaded,
    combined,
    guided,
    load_federated_policy,
    load_market_policy,
    load_round_policy,
)
from spotweave.deploy.scheduler.needs import Need, Round
from spotweave.deploy.scheduler.snapshot import Occupancy, View, snapshot_of
from spotweave.deploy.server.deciding import Deciders
from spotweave.deploy.server.schemas import DECISION_EXAMPLE, DecisionRequest
from spotweave.deploy.store.intents import Mode
from spotweave.envs.simulation.snapshot import encode
from spotweave.envs.simulation.world import WorldSpec
from spotweave.training.checkpoint import save_policy
from tests.deploy.scheduler.training import A, B, TrainingWorld, federated
from tests.deploy.scheduler.worlds import Stubborn, World, batch, cheap_and_sure, need, offer

OFFERS = [
    offer("cheap-spot", price_usd_hour=0.2),
    offer("dear-spot", price_usd_hour=0.6),
    offer("sure", "on_demand"),
]


WAITS = need(
    kind="federated",
    executions_left=5,
    standard_s=100.0,
    round=Round(idle=False, owes=True, round_left_s=1000.0, round_s=1200.0, cold_s=30.0),
)
CLIENT = need("fl", kind="federated", standard_s=100.0, round=Round(round_s=120.0, cold_s=30.0))


def decide(
    policy: Policy | str, *needs: Need, window: int = 8, used: dict[str, int] | None = None
) -> Decision:
    loaded = load_market_policy(policy, len(OFFERS)) if isinstance(policy, str) else Loaded(policy, (), "")
    decider = Decider(loaded.policy, window, loaded.components)
    return decider.decide(snapshot_of(OFFERS, needs, used or {}, Occupancy()), needs, OFFERS)


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


@pytest.mark.parametrize("policy", ["multicloud", "expected_cost", "cheapest"])
def test_a_place_left_to_others_is_named(policy: str) -> None:
    """Spot alone, two of four instances in use, and a deadline was missed: one more would leave one free."""
    world = [offer("spot", price_usd_hour=0.2)]
    loaded = load_market_policy(policy, 1)
    decider = Decider(loaded.policy, components=loaded.components)
    view = View(world, Counter(spot=2), Counter(), Occupancy(), {"spot": 1})
    decision = decider.decide(view.snapshot([need()]), [need()], world)
    left = "spot is cheaper, but left to tasks that lose more by waiting"
    assert (decision.offer_id, decision.why) == ((None, left) if policy != "cheapest" else ("spot", ""))


def test_one_policy_serves_both_kinds_and_each_task_names_who_decided() -> None:
    """The first to arrive is decided first; each half of the policy sees its own kind only."""
    market = load_market_policy("cheapest", 3)
    policy = combined(market, load_federated_policy("round_cost", market, 3))
    job = need()
    for shown, name in (([CLIENT, job], "round_cost"), ([job, CLIENT], "cheapest")):
        decision = decide(policy, *shown)
        assert (decision.policy, decision.need) == (name, shown[0])
        assert decision.offer_id == decide(Decider(policy).policy_for(shown[0]), shown[0]).offer_id


def test_the_released_policy_serves_both_kinds_alone() -> None:
    """It sees Spark jobs and clients in one window."""
    both = load_market_policy("multicloud", 3)
    assert combined(both, load_federated_policy(None, both, 3)) is both.policy
    shown, decided = [CLIENT, need()], set()
    while shown:
        decision = decide("multicloud", *shown)
        assert decision.invalid is None
        decided.add(decision.need.kind)
        shown.remove(decision.need)
    assert decided == {"federated", "general"}


def test_one_file_decides_about_every_kind_of_task() -> None:
    market = load_market_policy("spotweave", 3)
    rounds = load_federated_policy(None, market, 3)
    policies = [policy for policy in (market.policy, rounds.policy) if isinstance(policy, MTDQNPolicy)]
    assert [policy.view.whole_episodes for policy in policies] == [False, True]
    for shown in (CLIENT, need()):
        decision = decide(combined(market, rounds), shown)
        assert (decision.policy, decision.invalid) == ("mtdqn", None)


def test_for_a_damaged_file_its_rule_stands_in(tmp_path: Path) -> None:
    policy = tmp_path / "policy.pt"
    policy.write_bytes(b"damaged")
    (tmp_path / "policy.pt.sha256").write_text(f"{'0' * 64}  policy.pt\n")
    for load, rule in ((load_market_policy, "expected_cost"), (load_round_policy, "round_cost")):
        with pytest.raises(ValueError, match="is damaged or was replaced"):
            load(str(policy), 3)
        stands_in = load(str(policy), 3, strict=False)
        assert stands_in.policy.name == rule
        assert stands_in.unusable.startswith(f"{policy} is damaged or was replaced")


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
        (load_market_policy, "spot/multi", "was trained for"),
    ],
)
@pytest.mark.parametrize("strict", [True, False])
def test_a_policy_that_does_not_fit_is_refused_in_one_line(
    load: Callable[..., Loaded], name: str, message: str, strict: bool
) -> None:
    with pytest.raises(ValueError, match=message) as refused:
        load(name, 3, strict=strict)
    assert "\n" not in str(refused.value)


def test_weights_go_to_policies_with_components_only() -> None:
    with pytest.raises(ValueError, match="leave weights out"):
        load_market_policy("maf", 3, [1.0, 1.0, 1.0, 1.0])
    with pytest.raises(ValueError, match="value weights"):
        load_market_policy("multicloud", 3, [1.0])
    assert load_market_policy("multicloud", 3, [5.0, 5.0, 0.1, 1.0, 0.3]).components[3] == "money"


def checkpoint(path: Path, agent: LibrarySettings) -> str:
    torch.manual_seed(0)
    size = n_features(agent.jobs, len(OFFERS))
    identity = np.zeros(size, np.float32), np.ones(size, np.float32)
    policy = new_policy(agent, Flattening(agent.jobs, len(OFFERS), *identity))
    ones = (1.0,) * len(MARKET_COMPONENTS)
    names, metrics = tuple(one.offer_id for one in OFFERS), ("cost_usd_eq",)
    spec = WorldSpec("multicloud", 8, 3, names, MARKET_COMPONENTS, ones, ones, metrics, (False,), "s")
    save_policy(path, policy, asdict(agent), spec, ones, ones, {})
    return str(path)


@pytest.mark.parametrize("kind", ["maskable_ppo", "decima"])
def test_a_checkpoint_of_a_library_decides(kind: str, tmp_path: Path) -> None:
    agent = LibrarySettings(kind, kind, jobs=4, hidden_sizes=[8], embedding_size=8)
    decision = decide(checkpoint(tmp_path / "policy.pt", agent), need("first"), need("second"))
    assert (decision.policy, decision.invalid) == (kind, None)
    assert decision.offer_id in {*(one.offer_id for one in OFFERS), None}


@pytest.mark.parametrize(
    ("answer", "fault", "answered"),
    [
        (0, "masked", "action 0, which the mask forbids"),
        (4, "masked", "action 4, which the mask forbids"),
        (999, "index", "action 999, there are 32"),
        (32, "index", "action 32, there are 32"),
        (-1, "index", "action -1, there are 32"),
        (2.0, "index", "action 2.0, there are 32"),
        (None, "index", "action None, there are 32"),
        (float("nan"), "index", "action nan, there are 32"),
        ("sure\nhere", "index", "action sure here, there are 32"),
        (ZeroDivisionError("by\nnought"), "error", "ZeroDivisionError: by nought"),
        (IndexError("x" * 900), "error", f"IndexError: {'x' * 188}…"),
    ],
)
def test_what_is_not_valid_is_decided_by_the_rule_that_policies_are_trained_with(
    answer: Any, fault: str, answered: str
) -> None:
    """The job wants on-demand capacity: 0 and 1 are masked, and so is every row of the window but one."""
    asked = need(places=Places(markets=("on_demand",)))
    decision = decide(Stubborn(answer), asked)
    assert decision.invalid is not None
    assert (decision.invalid.fault, decision.invalid.answered) == (fault, answered)
    assert decision.invalid.words == f"the policy's answer is not valid ({answered}): expected_cost decided"
    assert (decision.need, decision.offer_id) == (asked, "sure")
    assert decision.candidates[0].offer_id == "sure"
    assert all(one.total is None for one in decision.candidates)


@pytest.mark.parametrize("answer", [2, 3, np.int64(2)])
def test_what_is_valid_stands(answer: int) -> None:
    decision = decide(Stubborn(answer), need())
    assert decision.invalid is None
    assert decision.offer_id == (OFFERS[answer].offer_id if answer < 3 else None)


def test_the_guide_decides_about_federated_tasks_as_the_rule_of_rounds_does() -> None:
    expected = named_rule("round_cost").act(encode(snapshot_of(OFFERS, [WAITS], {}, Occupancy()), 1))
    decision = decide(Stubborn(77), WAITS, window=1)
    assert decision.invalid is not None
    assert decision.offer_id == (OFFERS[expected].offer_id if expected < 3 else None)


def test_where_even_the_guide_fails_the_task_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    observation = encode(snapshot_of(OFFERS, [need()], {}, Occupancy()), 2)
    for answer in (999, 7, RuntimeError("broken")):
        rule = "spotweave.deploy.scheduler.decider.named_rule"
        monkeypatch.setattr(rule, lambda _, answer=answer: Stubborn(answer))
        assert guided(observation) == 3
        assert decide(Stubborn(-1), need()).offer_id is None


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("part", ["network", "weights"])
def test_values_that_are_no_numbers_decide_nothing(value: float, part: str) -> None:
    policy = load_market_policy("multicloud", len(OFFERS)).policy
    assert isinstance(policy, MTDQNPolicy)
    assert decide(policy, need()).invalid is None
    if part == "network":
        policy.network.vector[:] = value
    else:
        policy.weights = (value,) * len(policy.weights)
    decision = decide(policy, need())
    assert decision.invalid is not None
    assert decision.invalid.fault == "values"
    assert decision.offer_id == decide(named_rule("expected_cost"), need()).offer_id
    assert all(np.isfinite(list(one.values.values())).all() for one in decision.candidates)


def test_weights_for_rounds_that_are_no_numbers_decide_nothing() -> None:
    policy = load_round_policy("federated", len(OFFERS)).policy
    assert isinstance(policy, MTDQNPolicy)
    assert decide(policy, WAITS, window=1).invalid is None
    policy.network.vector[3] = np.nan
    decision = decide(policy, WAITS, window=1)
    assert decision.invalid is not None
    assert decision.invalid.fault == "values"


def test_a_network_that_fails_when_it_is_explained_fails_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = load_market_policy("multicloud", len(OFFERS)).policy

    def fails(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(policy, "value_table", fails)
    decision = decide(policy, need())
    assert decision.invalid is not None
    assert decision.invalid.fault == "error"


# In the loop.


@pytest.mark.real
@pytest.mark.parametrize("answer", [0, 999, OverflowError("no")])
def test_a_job_runs_only_where_it_may_whatever_a_policy_answers(tmp_path: Path, answer: Any) -> None:
    """Action 0 is the spot offer, which the job does not allow."""
    world = World(tmp_path, cheap_and_sure(), Stubborn(answer))
    job = world.submit(batch(places=Places(markets=("on_demand",))))
    world.ends_well(job)
    assert set(world.offers_taken()) == {"sure"}
    assert world.metric("passes_failed_total") == 0
    (event,) = world.events("policy.invalid")
    fault = event.data["fault"]
    assert (event.job_id, event.task) == (job, "main")
    told = {"policy": "stubborn", "offer": "sure", "guide": "expected_cost", "times": 1}
    assert told.items() <= event.data.items()
    assert world.metric("invalid_answers_total", policy="stubborn", fault=fault) == 1
    assert world.metric("overruled_total", by="guide") == 1
    (decided,) = world.events("task.decided")
    assert (decided.data["offer"], decided.data["invalid"]) == ("sure", fault)
    (decision,) = world.store.decisions.latest(9)
    assert "expected_cost decided" in decision.candidates[0].reason


@pytest.mark.real
def test_it_is_told_of_once_an_hour_and_counted_each_time(tmp_path: Path) -> None:
    world = World(tmp_path, cheap_and_sure(), Stubborn(999))
    for k in range(6):
        world.submit(batch(f"job{k}", work_s=60.0))
        world.go(100.0)
    assert [event.data["times"] for event in world.events("policy.invalid")] == [1]
    assert world.metric("invalid_answers_total", policy="stubborn", fault="index") == 6
    world.clock.sleep(INVALID_S)
    world.submit(batch("late", work_s=60.0))
    world.go(100.0)
    told = world.events("policy.invalid")
    assert [event.data["times"] for event in told] == [1, 6]
    assert told[1].time_s - told[0].time_s >= INVALID_S
    assert told[1].job_id == "late-1"


def test_a_policy_that_is_only_watched_is_told_of_and_changes_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, cheap_and_sure(), mode=Mode.SHADOW, watched=Stubborn(999))
    job = world.submit(batch())
    world.ends_well(job)
    assert set(world.offers_taken()) == {"spot"}
    (event,) = world.events("policy.invalid")
    assert event.data["policy"] == "stubborn"
    assert world.metric("invalid_answers_total", policy="stubborn", fault="index") == 1
    (decided,) = world.events("task.decided")
    assert (decided.data["policy"], decided.data["overruled"]) == ("cheapest", "")


def test_federated_rounds_go_on_without_their_policy(tmp_path: Path) -> None:
    policy = ByKind(named_rule("cheapest"), Stubborn(999))
    world = TrainingWorld(tmp_path, cheap_and_sure(), policy, a=60.0, b=90.0)
    job = world.submit(federated(3, A, B, epoch_s=60.0))
    world.ends_well(job)
    assert world.events("policy.invalid")[0].data["guide"] == "expected_cost"


# On request.


@pytest.mark.parametrize(("answer", "valid"), [(lambda n: n, True), (lambda _: 999, False)])
def test_who_asks_for_a_decision_is_told_too(answer: Callable[[int], int], valid: bool) -> None:
    loaded = load_market_policy("expected_cost", 0)
    request = DecisionRequest.model_validate_json(json.dumps(DECISION_EXAMPLE))
    policy = Stubborn(answer(len(request.offers)))
    (answered,) = Deciders(replace(loaded, policy=policy)).answer(request).decisions
    assert (answered.invalid == "") is valid
    if not valid:
        assert answered.invalid.endswith("(action 999, there are 24): expected_cost decided")
