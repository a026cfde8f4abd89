"""Decisions over HTTP: ranking, weights of one request, limits."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploy.scheduler.policies import MARKET_COMPONENTS, load_market_policy
from deploy.server.app import create_app
from deploy.server.context import ServerSettings
from deploy.server.deciding import Deciders, RequestError
from deploy.server.schemas import (
    OFFER_EXAMPLE,
    TASK_EXAMPLE,
    DecisionRequest,
    DecisionResponse,
    OfferFacts,
    TaskFacts,
)
from tests.deploy.server.service import Api

COMPONENTS = set(MARKET_COMPONENTS)


def offer(name: str, market: str = "spot", **changes: Any) -> dict[str, Any]:
    price = 0.3 if market == "spot" else 1.0
    facts = {"offer_id": name, "market": market, "price_usd_hour": price, "on_demand_usd_hour": 1.0}
    return {**OFFER_EXAMPLE, **facts, "used": 0, "speed": 1.0, "gpu": None, "gpus": 0, "quota": 4, **changes}


def task(name: str, **changes: Any) -> dict[str, Any]:
    facts = {"job_id": name, "kind": "general", "standard_s": 600.0, "slack_s": None}
    return {**TASK_EXAMPLE, **facts, "resources": {}, "age_s": 0.0, "waited_s": 0.0, **changes}


def federated(name: str, **changes: Any) -> dict[str, Any]:
    return task(name, kind="federated", task="client-a", executions_left=5, **changes)


OFFERS = [offer("cheap"), offer("dear", price_usd_hour=0.6), offer("sure", "on_demand")]


@pytest.fixture
def api(deciders: Deciders) -> Api:
    """A policy server that only decides."""
    return Api(create_app(ServerSettings(tokens=False), deciders))


def decisions(api: Api, tasks: list[dict[str, Any]], **more: Any) -> list[dict[str, Any]]:
    response = api.post("/v1/decisions", json={"offers": OFFERS, "tasks": tasks, **more})
    assert response.status_code == 200, response.text
    found = response.json()["decisions"]
    assert isinstance(found, list)
    return found


def request(one: dict[str, Any]) -> DecisionRequest:
    return DecisionRequest(offers=tuple(OfferFacts(**facts) for facts in OFFERS), tasks=(TaskFacts(**one),))


def test_the_answer_ranks_every_place_and_gives_the_values_of_what_was_weighed(api: Api) -> None:
    assert decisions(api, []) == []
    (decision,) = decisions(api, [task("job")])
    assert decision["task"] == {"job_id": "job", "task": "main"}
    assert decision["kind"] == "market"
    assert set(decision["weights"]) == COMPONENTS
    candidates = decision["candidates"]
    assert {one["offer_id"] for one in candidates} == {"cheap", "dear", "sure", None}
    assert candidates[0]["offer_id"] == decision["offer_id"] == decision["policy_choice"]
    for one in candidates:
        assert one["available"]
        if one["total"] is None:
            assert one["values"] == {}
            continue
        assert set(one["values"]) == COMPONENTS
        weighed = sum(one["values"][name] * weight for name, weight in decision["weights"].items())
        assert one["total"] == pytest.approx(weighed, rel=1e-4)
    assert sum(one["total"] is not None for one in candidates) > 1
    prices = {one["offer_id"]: one["price_usd_hour"] for one in candidates}
    assert prices == {"cheap": 0.3, "dear": 0.6, "sure": 1.0, None: 0.0}


@pytest.mark.parametrize(
    ("used", "places", "cheap"),
    [
        (0, {"markets": ["on_demand"]}, "the job allows market on_demand, this is spot"),
        (4, {}, "0 of 4 instances are free, the job needs 1"),
    ],
)
def test_a_place_that_is_out_says_why(api: Api, used: int, places: dict[str, Any], cheap: str) -> None:
    offers = [offer("cheap", used=used), offer("sure", "on_demand")]
    (decision,) = decisions(api, [task("job", places=places)], offers=offers)
    reasons = {one["offer_id"]: (one["available"], one["reason"]) for one in decision["candidates"]}
    assert decision["offer_id"] in ("sure", None)
    assert (reasons["cheap"], reasons["sure"]) == ((False, cheap), (True, ""))


def test_more_tasks_than_the_window_and_the_first_by_arrival_are_seen(api: Api) -> None:
    tasks = [task(f"job-{age}", age_s=float(age)) for age in range(20)]
    (decision,) = decisions(api, tasks)
    window = decision["window"]
    assert (window["size"], window["left_out"]) == (8, 12)
    assert [one["job_id"] for one in window["considered"]] == [f"job-{age}" for age in range(19, 11, -1)]
    assert decision["task"] in window["considered"]


def test_federated_tasks_go_to_the_policy_for_rounds_and_others_do_not(api: Api) -> None:
    waits = {"idle": True, "owes": False, "round_left_s": 1000.0, "round_s": 1200.0, "cold_s": 30.0}
    waiting = federated("fl", here="cheap", standard_s=100.0, round=waits, age_s=2.0)
    rounds, market = decisions(api, [task("spark", age_s=1.0), waiting])
    assert (rounds["kind"], rounds["policy"]) == ("federated", "round_cost")
    # Waiting 1,000 s costs more than half of a start: it is released.
    assert rounds["task"] == {"job_id": "fl", "task": "client-a"}
    assert rounds["offer_id"] is None
    assert rounds["candidates"][0]["values"] == {}
    assert rounds["weights"] == {}
    assert (market["kind"], market["task"]["job_id"]) == ("market", "spark")


def test_the_second_decision_of_a_request_counts_what_the_first_takes(api: Api) -> None:
    one_left = [offer("only", quota=1)]
    tasks = [federated("fl", age_s=2.0, round={"owes": True}), task("spark", age_s=1.0)]
    rounds, market = decisions(api, tasks, offers=one_left)
    assert rounds["offer_id"] == "only"
    assert market["offer_id"] is None
    reasons = {one["offer_id"]: one["reason"] for one in market["candidates"]}
    assert reasons["only"] == "0 of 1 instances are free, the job needs 1"


def test_the_safety_net_overrules_and_says_so(api: Api) -> None:
    offers = [offer("sure", "on_demand", launch_s=60.0)]
    urgent = task("job", kind="deadline", slack_s=700.0, places={"markets": ["on_demand"]})
    spot_only = [offer("cheap", price_usd_hour=0.001), *offers]
    urgent_anywhere = {**urgent, "places": {}}
    for shown, asked in ((offers, urgent), (spot_only, urgent_anywhere)):
        (decision,) = decisions(api, [asked], offers=shown)
        # 660 s on demand, with margins 786 s: there is no time for spot or for waiting.
        assert decision["offer_id"] == "sure"
        assert bool(decision["net"]) == (decision["policy_choice"] != "sure")


def test_weights_of_a_request_change_its_scores_and_no_other_requests(api: Api) -> None:
    asked = [task("job", kind="deadline", slack_s=3000.0)]
    (before,) = decisions(api, asked)
    (changed,) = decisions(api, asked, weights={"money": 0.0, "own_misses": 7.5})
    (after,) = decisions(api, asked)
    assert before == after
    assert changed["weights"] == {**before["weights"], "money": 0.0, "own_misses": 7.5}
    others = {one["offer_id"]: one for one in changed["candidates"]}
    for one in before["candidates"]:
        if one["total"] is not None:
            assert others[one["offer_id"]]["total"] != one["total"]
            assert others[one["offer_id"]]["values"] == pytest.approx(one["values"])


def test_requests_at_once_get_the_answers_that_each_gets_alone(api: Api) -> None:
    bodies = [
        {
            "offers": OFFERS,
            "tasks": [task(f"job-{k}", kind="deadline", slack_s=1000.0 + 100 * k), federated("fl")],
            "weights": {"money": float(k % 5)},
        }
        for k in range(24)
    ]
    alone = [api.post("/v1/decisions", json=body).json() for body in bodies]
    together = api.at_once("/v1/decisions", bodies)
    assert [response.status_code for response in together] == [200] * len(bodies)
    assert [response.json() for response in together] == alone


@pytest.mark.parametrize("rule", ["random", "rr", "cheapest"])
def test_a_rule_answers_the_same_question_the_same_whatever_was_asked_before(rule: str) -> None:
    deciders, asked = Deciders.load(rule), request(task("job"))
    first = deciders.answer(asked)
    assert all(deciders.answer(asked) == first for _ in range(5))


def test_a_service_without_a_policy_for_rounds_refuses_federated_tasks() -> None:
    # The released policy and rules for Spark jobs know both kinds.
    asked = request(federated("fl"))
    with pytest.raises(RequestError, match="no policy for federated tasks"):
        Deciders(load_market_policy("multicloud", 0)).answer(asked)
    for name, policy in (("multicloud", "mtdqn"), ("expected_cost", "expected_cost")):
        assert [one.policy for one in Deciders.load(name).answer(asked).decisions] == [policy]
    with pytest.raises(RequestError, match="policy expected_cost has no value components"):
        Deciders.load("expected_cost").answer(asked.model_copy(update={"weights": {"money": 1.0}}))


_EXTREME_S = st.sampled_from([0.0, 1e-9, 1.0, 3600.0, 1e9])


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_extreme_numbers_are_answered_with_numbers(data: st.DataObject, deciders: Deciders) -> None:
    draw = data.draw
    offers = [
        offer(
            f"offer-{k}",
            draw(st.sampled_from(["spot", "on_demand", "owned"])),
            price_usd_hour=draw(st.sampled_from([0.0, 1e-6, 1e6])),
            speed=draw(st.sampled_from([1e-3, 1e3])),
            quota=draw(st.sampled_from([0, 1, 100_000])),
            used=draw(st.sampled_from([0, 1, 100_000])),
            available=draw(st.booleans()),
            launch_s=draw(_EXTREME_S),
            spell_s=draw(_EXTREME_S),
            mean_up_s=draw(_EXTREME_S),
        )
        for k in range(draw(st.integers(1, 3)))
    ]
    tasks = [
        task(
            f"task-{k}",
            kind=draw(st.sampled_from(["general", "deadline", "streaming", "federated"])),
            resources={"instances": draw(st.sampled_from([1, 1000]))},
            standard_s=draw(_EXTREME_S),
            slack_s=draw(st.sampled_from([None, -1e9, 0.0, 1e9])),
            age_s=draw(_EXTREME_S),
            period_s=draw(_EXTREME_S),
            executions_left=draw(st.sampled_from([0, 1, 1_000_000])),
            progress=draw(st.sampled_from([0.0, 1.0])),
            checkpoint_s=draw(_EXTREME_S),
            running=draw(st.booleans()),
            here=draw(st.sampled_from([None, "offer-0"])),
            round={"idle": draw(st.booleans()), "round_s": draw(_EXTREME_S)},
        )
        for k in range(draw(st.integers(1, 3)))
    ]
    asked = DecisionRequest.model_validate({"offers": offers, "tasks": tasks}, strict=False)
    answer = DecisionResponse.model_validate_json(deciders.answer(asked).model_dump_json())
    for decision in answer.decisions:
        for one in decision.candidates:
            assert all(map(math.isfinite, (one.finish_s, one.cost_usd, *one.values.values())))
