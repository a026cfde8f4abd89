"""Decisions over HTTP: ranking, weights of one request, limits."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotweave.deploy.scheduler.decider import MARKET_COMPONENTS, load_market_policy
from spotweave.deploy.security.tokens import AccessTokens, Role
from spotweave.deploy.server.app import create_app
from spotweave.deploy.server.context import ServerSettings
from spotweave.deploy.server.deciding import Deciders, RequestError
from spotweave.deploy.server.schemas import (
    OFFER_EXAMPLE,
    TASK_EXAMPLE,
    DecisionRequest,
    DecisionResponse,
    OfferFacts,
    TaskFacts,
)
from tests.deploy.node.agents import wait_until
from tests.deploy.server.service import NOW, Api, Make, Service, one_line_error, serving

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


@settings(max_examples=60)
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


# Events: pages, and a stream that can be resumed.


Listening = tuple[Service, httpx.Client]


def sequences(events: list[dict[str, Any]]) -> list[int]:
    return [event["sequence"] for event in events]


def happen(service: Service, count: int, job_id: str | None = None) -> None:
    for number in range(count):
        with service.store.transaction():
            service.store.events.add("thing.happened", NOW, {"number": number, "text": "a\nb"}, job_id=job_id)


def test_pages_of_events_follow_each_other(service: Service) -> None:
    happen(service, 3, "one")
    happen(service, 2, "two")
    pages: dict[str, list[int]] = {
        "after=0&limit=2": [1, 2],
        "after=2": [3, 4, 5],
        "limit=2": [4, 5],
        "job_id=one&limit=2": [2, 3],
        "job_id=two&after=4": [5],
        "after=5": [],
    }
    for query, found in pages.items():
        assert sequences(service.viewer.get(f"/v1/events?{query}").json()) == found, query


@pytest.fixture
def live(make: Make) -> Iterator[Listening]:
    """A real listener: the transport of the other tests waits for the end of an answer."""
    with serving(make(poll_s=0.02, heartbeat_s=0.05, streams=2)) as one, one.client(Role.VIEWER) as client:
        yield one.service, client


def read(
    client: httpx.Client,
    count: int,
    query: str = "",
    last: str | None = None,
    then: Callable[[], object] = int,
) -> list[dict[str, Any]]:
    """The first events of a stream; `then` is called when it has been opened."""
    found: list[dict[str, Any]] = []
    headers = {} if last is None else {"Last-Event-ID": last}
    with client.stream("GET", f"/v1/events/stream{query}", headers=headers) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        fields: dict[str, str] = {}
        for line in response.iter_lines():
            name, _, value = line.partition(": ")
            if name == "retry":
                then()
            elif name:
                fields[name] = value
            elif "data" in fields:
                event = json.loads(fields["data"])
                assert (fields["id"], fields["event"]) == (str(event["sequence"]), event["kind"])
                found.append(event)
                fields = {}
                if len(found) == count:
                    break
    return found


def test_a_stream_shows_each_event_as_it_comes(live: Listening) -> None:
    service, client = live
    happen(service, 2)
    found = read(client, 3, then=lambda: happen(service, 3))
    assert sequences(found) == [3, 4, 5]
    assert [event["data"] for event in found] == [{"number": k, "text": "a\nb"} for k in range(3)]
    happen(service, 1, "one")
    happen(service, 1, "two")
    assert sequences(read(client, 1, "?after=0&job_id=two")) == [7]


@pytest.mark.real
def test_a_stream_that_broke_is_taken_up_where_it_was(live: Listening) -> None:
    service, client = live
    happen(service, 700)
    first = read(client, 2, "?after=0")
    assert sequences(first) == [1, 2]
    rest = read(client, 698, "?after=0", last=str(first[-1]["sequence"]))
    assert sequences(rest) == list(range(3, 701))


@pytest.mark.parametrize("ends", ["its token", "the service"])
def test_a_stream_ends_with_its_token_and_with_the_service(live: Listening, ends: str) -> None:
    service, client = live
    access = AccessTokens(service.store)
    token = access.create("leaver", Role.VIEWER, NOW)
    headers = {"Authorization": f"Bearer {token.text}"}
    with client.stream("GET", "/v1/events/stream", headers=headers) as response:
        lines = response.iter_lines()
        while next(lines) != ": still here":
            pass
        if ends == "its token":
            access.revoke(token.record.token_id, NOW)
        else:
            service.app.state.context.closing.set()
        assert all(line in ("", ": still here") for line in lines), "the rest of the stream"


def test_only_so_many_streams_at_once(live: Listening) -> None:
    client = live[1]
    for last in ("x", "-1", str(2**63)):
        one_line_error(client.get("/v1/events/stream", headers={"Last-Event-ID": last}), 422)
    with client.stream("GET", "/v1/events/stream") as one, client.stream("GET", "/v1/events/stream") as two:
        # Held until the end: a generator that is thrown away closes its stream.
        held = [response.iter_lines() for response in (one, two)]
        for lines in held:
            next(lines)
        with client.stream("GET", "/v1/events/stream") as refused:
            refused.read()
        one_line_error(refused, 429)
        assert "spotweave_event_followers 2.0" in client.get("/metrics").text
    wait_until(lambda: "spotweave_event_followers 0.0" in client.get("/metrics").text)
