"""Answers of policies that must not be followed: who decides instead, and who is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from agents.mtdqn.policy import MTDQNPolicy
from agents.named import ByKind, named_rule
from agents.policy import Policy
from deploy.model.jobs import FlowerClient, JobState, Places
from deploy.scheduler.decide.chooser import Policies
from deploy.scheduler.decide.decider import Decider, Decision, guided
from deploy.scheduler.decide.policies import load_market_policy, load_round_policy
from deploy.scheduler.decide.records import INVALID_S
from deploy.scheduler.snapshot.needs import Need, Round
from deploy.scheduler.snapshot.occupancy import Occupancy
from deploy.scheduler.snapshot.writer import snapshot_of
from deploy.server.deciding import Deciders
from deploy.server.schemas import DECISION_EXAMPLE, DecisionRequest
from deploy.store.decisions import Mode
from envs.simulation.snapshot import Observation, encode
from tests.deploy.scheduler.cases import need, offer
from tests.deploy.scheduler.test_federated import TrainingWorld
from tests.deploy.scheduler.training import federated
from tests.deploy.scheduler.worlds import World, batch, cheap_and_sure

OFFERS = [
    offer("dear-spot", price_usd_hour=0.6),
    offer("cheap-spot", price_usd_hour=0.2),
    offer("sure", "on_demand"),
]
WAITS = need(
    kind="federated",
    executions_left=5,
    standard_s=100.0,
    round=Round(idle=False, owes=True, round_left_s=1000.0, round_s=1200.0, cold_s=30.0),
)


class Stubborn(Policy):
    """Answers the same whatever it is asked."""

    name = "stubborn"

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def act_batch(self, observations: Observation, lanes: NDArray[np.int64]) -> NDArray[np.int64]:
        raise AssertionError("the live side asks one by one")

    def act(self, observation: Observation) -> int:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer  # type: ignore[no-any-return]


def decide(policy: Policy, *needs: Need, window: int = 8) -> Decision:
    decision = Decider(policy, window).decide(snapshot_of(OFFERS, needs, {}, Occupancy()), needs, OFFERS)
    assert decision is not None
    return decision


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
    snapshot = snapshot_of(OFFERS, [WAITS], {}, Occupancy())
    expected = named_rule("round_cost").act(encode(snapshot, 1))
    decision = decide(Stubborn(77), WAITS, window=1)
    assert decision.invalid is not None
    assert decision.offer_id == (OFFERS[expected].offer_id if expected < 3 else None)


def test_where_even_the_guide_fails_the_task_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    observation = encode(snapshot_of(OFFERS, [need()], {}, Occupancy()), 2)
    for answer in (999, 7, RuntimeError("broken")):
        rule = "deploy.scheduler.decide.decider.named_rule"
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


def test_a_network_that_fails_when_it_is_explained_is_no_error_of_the_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    policy = load_market_policy("multicloud", len(OFFERS)).policy

    def fails(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(policy, "value_table", fails)
    decision = decide(policy, need())
    assert decision.invalid is not None
    assert decision.invalid.fault == "error"


# In the loop.


class StubbornWorld(World):
    """The policy for Spark jobs, or the one that is watched, is stubborn."""

    def __init__(self, folder: Path, answer: Any, **changes: Any) -> None:
        self.answer = answer
        super().__init__(folder, cheap_and_sure(), **changes)

    def decides(self) -> Policies:
        stubborn = Decider(Stubborn(self.answer))
        if self.mode is Mode.SHADOW:
            return replace(super().decides(), watched=stubborn)
        return replace(super().decides(), decides=stubborn)


@pytest.mark.real
@pytest.mark.parametrize("answer", [0, 999, OverflowError("no")])
def test_a_job_runs_only_where_it_may_whatever_a_policy_answers(tmp_path: Path, answer: Any) -> None:
    """Action 0 is the spot offer, which the job does not allow."""
    world = StubbornWorld(tmp_path, answer)
    job = world.submit(batch(places=Places(markets=("on_demand",))))
    world.until_all_end()
    assert world.state(job) is JobState.SUCCEEDED
    assert {machine.report.offer_id for machine in world.cloud.machines.values()} == {"sure"}
    assert world.metric("passes_failed_total") == 0
    (event,) = world.events("policy.invalid")
    assert (event.job_id, event.task) == (job, "main")
    assert event.data["policy"] == "stubborn"
    assert event.data["offer"] == "sure"
    assert event.data["guide"] == "expected_cost"
    assert event.data["times"] == 1
    fault = event.data["fault"]
    assert world.metric("invalid_answers_total", policy="stubborn", fault=fault) == 1
    assert world.metric("overruled_total", by="guide") == 1
    (decided,) = world.events("task.decided")
    assert (decided.data["offer"], decided.data["invalid"]) == ("sure", fault)
    (decision,) = world.store.decisions.latest(9)
    assert "expected_cost decided" in decision.candidates[0].reason
    world.check_nothing_is_left()


@pytest.mark.real
def test_it_is_told_of_once_an_hour_and_counted_each_time(tmp_path: Path) -> None:
    world = StubbornWorld(tmp_path, 999)
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
    world = StubbornWorld(tmp_path, 999, mode=Mode.SHADOW)
    job = world.submit(batch())
    world.until_all_end()
    assert world.state(job) is JobState.SUCCEEDED
    assert {machine.report.offer_id for machine in world.cloud.machines.values()} == {"spot"}
    (event,) = world.events("policy.invalid")
    assert event.data["policy"] == "stubborn"
    assert world.metric("invalid_answers_total", policy="stubborn", fault="index") == 1
    (decided,) = world.events("task.decided")
    assert (decided.data["policy"], decided.data["overruled"]) == ("cheapest", "")


def test_federated_rounds_go_on_without_their_policy(tmp_path: Path) -> None:
    class Rounds(TrainingWorld):
        def decides(self) -> Policies:
            return replace(super().decides(), decides=Decider(ByKind(named_rule("cheapest"), Stubborn(999))))

    world = Rounds(tmp_path, cheap_and_sure(), a=60.0, b=90.0)
    job = world.submit(federated(3, FlowerClient(name="a"), FlowerClient(name="b"), epoch_s=60.0))
    world.until_all_end()
    assert world.state(job) is JobState.SUCCEEDED
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
