"""The market rules on hand-made offers: every expected choice is computed by hand in the comments."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from spotweave.agents.rules.expectation import (
    ExpectedCostParameters,
    down_time,
    expected_usd,
    free_s,
    late_batches,
)
from spotweave.agents.rules.policy import from_python
from spotweave.envs.simulation.snapshot import Category, Observation, arrays_of
from tests.agents.test_rules import Row, observe, pick

SPOT: Row = {
    "CAPACITY_NOW": 8,
    "PRICE_USD_HOUR": 1.0,
    "ON_DEMAND_USD_HOUR": 3.0,
    "IS_SPOT": 1,
    "AVAILABLE": 1,
    "UP_RATIO": 0.8,
    "MEAN_UP_S": 14400,
    "SPELL_S": 14400,
    "LAUNCH_S": 100,
    "PROVIDER": 1,
}
ON_DEMAND: Row = {**SPOT, "PRICE_USD_HOUR": 3.0, "IS_SPOT": 0, "UP_RATIO": 1, "MEAN_UP_S": 0, "SPELL_S": 0}
OWNED: Row = {"CAPACITY_NOW": 4, "AVAILABLE": 1, "UP_RATIO": 1, "QUEUES": 1}
# 3600 s of work after 100 s of launch and 100 s of transfer: finish 3800 s, changeover d = 200 s.
ASK: Row = {"REQUEST": 2, "PEAK_REQUEST": 2, "EXECUTION_S": 3600, "DEADLINE_S": 10000, "TRANSFER_S": 100}
HERE: Row = {**ASK, "HERE": 1}
JOB: Row = {
    "CATEGORY": Category.TIME_CRITICAL,
    "STANDARD_S": 3600,
    "EXECUTIONS": 1,
    "HAS_DEADLINE": 1,
    "SLACK_S": 10000,
    "DURATION_S": 3600,
}
GENERAL: Row = {"CATEGORY": Category.GENERAL, "HAS_DEADLINE": 0, "SLACK_S": 0}
STREAM: Row = {"CATEGORY": Category.STREAMING}
NONE = 3
SPOT_RULES = ["spot_fallback", "price_capacity", "uniform_progress"]


DOWN: Row = {"AVAILABLE": 0}


def market(
    job: Row, spot: Row | None = None, owned: Row | None = None, ask: Row | None = None
) -> Observation:
    """Offers: 0 spot, 1 on demand, 2 owned (full unless said otherwise)."""
    clusters = [{**SPOT, **(spot or {})}, ON_DEMAND, {**OWNED, "USED": 4, **(owned or {})}]
    return shown(clusters, job, {**ASK, **(ask or {})})


def shown(clusters: Sequence[Row], job: Row, *asks: Row) -> Observation:
    """One job on these offers, which asks the same of all unless told."""
    pairs = asks if len(asks) == len(clusters) else asks * len(clusters)
    return observe(clusters, [{**JOB, **job}], [pairs], allow_none=True)


def test_on_demand_only_takes_safe_capacity() -> None:
    assert pick("on_demand", market({})) == (0, 1)
    # An owned cluster with room is safe and costs nothing.
    assert pick("on_demand", market({}, owned={"USED": 0})) == (0, 2)


def test_cheapest_takes_the_smallest_cost_among_what_fits() -> None:
    # 2 * 3800 s: spot 2.11 USD, on demand 6.33 USD; the owned cluster is free of charge but full.
    assert pick("cheapest", market({})) == (0, 0)
    assert pick("cheapest", market({}, spot={"PRICE_USD_HOUR": 3.1})) == (0, 1)
    assert pick("cheapest", market({}, owned={"USED": 0})) == (0, 2)
    # It knows no risk: even with no time to lose it takes spot.
    assert pick("cheapest", market({"SLACK_S": 3900})) == (0, 0)


@pytest.mark.parametrize("name", SPOT_RULES)
def test_the_safety_net_opens_at_two_changeover_delays(name: str) -> None:
    # Needed: 3600 + 2 * 200 = 4000 s.
    assert pick(name, market({"SLACK_S": 4001})) == (0, 0)
    assert pick(name, market({"SLACK_S": 3999})) == (0, 1)
    # A checkpoint interval of 600 s may be lost as well: 4600 s.
    assert pick(name, market({"SLACK_S": 4599, "CHECKPOINT_INTERVAL_S": 600})) == (0, 1)
    # Nothing can save the deadline any more (3800 s to finish on demand): money decides.
    assert pick(name, market({"SLACK_S": 3700})) == (0, 0)
    assert pick(name, market({"SLACK_S": 4100}), {"changeovers": 3.0}) == (0, 1)


@pytest.mark.parametrize("name", SPOT_RULES)
def test_a_stream_goes_on_demand_only_if_there_is_no_spot(name: str) -> None:
    # A batch of 600 s: 600 + 2 * 200 s and 600 s that a stop would undo are needed.
    stream = {**STREAM, "PERIOD_S": 900, "EXECUTIONS": 5, "CHECKPOINT_INTERVAL_S": 900}
    batch = {"EXECUTION_S": 600}
    assert pick(name, market({**stream, "SLACK_S": 1599}, ask=batch)) == (0, 0)
    assert pick(name, market({**stream, "SLACK_S": 1599}, spot=DOWN, ask=batch)) == (0, 1)
    assert pick(name, market({**stream, "SLACK_S": 1601}, spot=DOWN, ask=batch)) == (0, NONE)


@pytest.mark.parametrize("name", ["spot_fallback", "price_capacity"])
def test_greedy_spot_waits_while_no_spot_is_available(name: str) -> None:
    assert pick(name, market({"SLACK_S": 5000}, spot=DOWN)) == (0, NONE)
    assert pick(name, market({"SLACK_S": 3900}, spot=DOWN)) == (0, 1)
    assert pick(name, market({"SLACK_S": 5000}, spot=DOWN, owned={"USED": 0})) == (0, 2)


@pytest.mark.parametrize(("slack", "chosen"), [(4001, 2), (3999, 1), (3700, 2)])
def test_greedy_spot_moves_a_running_job_to_safety_in_time(slack: int, chosen: int) -> None:
    job = {"RUNNING": 1, "SLACK_S": slack}
    assert pick("spot_fallback", shown([SPOT, ON_DEMAND], job, HERE, ASK)) == (0, chosen)


def test_price_capacity_pays_a_little_for_depth_but_not_more() -> None:
    shallow = {**SPOT, "UP_RATIO": 0.3}
    deep = {**SPOT, "UP_RATIO": 0.9, "PRICE_USD_HOUR": 1.2}
    assert pick("price_capacity", shown([shallow, deep, ON_DEMAND], {}, ASK)) == (0, 1)
    dear = {**deep, "PRICE_USD_HOUR": 1.3}
    assert pick("price_capacity", shown([shallow, dear, ON_DEMAND], {}, ASK)) == (0, 0)
    # Equal but for the room: 8 executors leave more than 2.
    small = {**SPOT, "CAPACITY_NOW": 2}
    assert pick("price_capacity", shown([small, SPOT, ON_DEMAND], {}, ASK)) == (0, 1)


@pytest.mark.parametrize("name", SPOT_RULES)
def test_spot_that_costs_more_than_on_demand_is_not_bought(name: str) -> None:
    # On demand 6.3333 USD; spot 2.1111 USD, with egress of 4.2 USD 6.3111, with 4.3 USD 6.4111.
    for egress, chosen in ((4.2, 0), (4.3, 1)):
        assert pick(name, shown([SPOT, ON_DEMAND], {}, {**ASK, "EGRESS_USD": egress}, ASK)) == (0, chosen)


def test_uniform_progress_buys_on_demand_only_when_behind() -> None:
    # Arrived 2000 s ago, 8000 s to go: expected progress .2.
    late = {"AGE_S": 2000, "SLACK_S": 8000}
    assert pick("uniform_progress", market({**late, "PROGRESS": 0.19}, spot=DOWN)) == (0, 1)
    assert pick("uniform_progress", market({**late, "PROGRESS": 0.21}, spot=DOWN)) == (0, NONE)
    # Taking risks: spot whenever there is some, even when behind.
    assert pick("uniform_progress", market({**late, "PROGRESS": 0.0})) == (0, 0)
    # Without a deadline a job is never behind; a stream with a backlog is.
    assert pick("uniform_progress", market({**late, "HAS_DEADLINE": 0}, spot=DOWN)) == (0, NONE)
    stream = {**STREAM, "SLACK_S": 8000, "PERIOD_S": 9000, "EXECUTIONS": 5}
    assert pick("uniform_progress", market({**stream, "BACKLOG": 1}, spot=DOWN)) == (0, 1)
    assert pick("uniform_progress", market({**stream, "BACKLOG": 0}, spot=DOWN)) == (0, NONE)


def test_uniform_progress_stays_on_spot_and_leaves_on_demand_with_hysteresis() -> None:
    clusters = [SPOT, ON_DEMAND]
    # ep(2000 + 2 * 200) = 2400 / 10000 = .24.
    for progress, chosen in ((0.23, 2), (0.25, 0)):
        job = {"RUNNING": 1, "AGE_S": 2000, "SLACK_S": 8000, "PROGRESS": progress}
        assert pick("uniform_progress", shown(clusters, job, ASK, HERE)) == (0, chosen)
    late = {"RUNNING": 1, "AGE_S": 9000, "SLACK_S": 3900}
    assert pick("uniform_progress", shown(clusters, late, HERE, ASK)) == (0, 2)


@pytest.mark.parametrize("name", ["cheapest", "on_demand", *SPOT_RULES, "expected_cost"])
def test_market_rules_take_the_most_urgent_job_first(name: str) -> None:
    jobs = [{**JOB, "HAS_DEADLINE": 0}, {**JOB, "SLACK_S": 9000}, {**JOB, "SLACK_S": 8000}]
    assert pick(name, observe([SPOT, ON_DEMAND], jobs, [[ASK, ASK]] * 3, allow_none=True))[0] == 2


# What the sums below were worked out with.
PLAIN = {
    "miss_usd": 25.0,
    "batch_miss_usd": 5.0,
    "delay_usd_hour": 0.36,
    "owned_usd_hour": 0.5,
    "hazard": 1.0,
    "spell_memory": 0.0,
    "safety_s": 0.0,
    "patience": 1.0,
    "queue_s": 7200.0,
    "move_margin": 0.1,
    "move_usd": 0.2,
    "allowance": 1.25,
    "postpone_s": 300.0,
    "queue_risk": 1.0,
    "down_memory": 0.0,
    "typical_up_s": 7200.0,
    "typical_down_s": 3600.0,
    "full_s": 3600.0,
    "full_memory": 0.0,
    "ask_usd": 0.0,
    "owned_power": 0.0,
    "notice": 0.0,
    "free_first_s": 0.0,
}


def usd(observation: Observation, cluster: int, wait_s: float = 0.0) -> float:
    """Expected cost of job 0 with the parameters above."""
    vector = ExpectedCostParameters().changed(PLAIN).vector()
    return float(from_python(expected_usd)(arrays_of(observation), 0, cluster, wait_s, vector))


def test_batches_that_fall_ever_further_behind_are_late_from_some_point_on() -> None:
    # Each of 700 s instead of 600 s is 100 s later than the one before: the first six are in time.
    assert from_python(late_batches)(-600.0, 700.0, 600.0, 27.0) == 21.0
    assert from_python(late_batches)(50.0, 700.0, 600.0, 27.0) == 27.0
    # 250 s late, 300 s made up for by each.
    assert from_python(late_batches)(250.0, 300.0, 600.0, 27.0) == pytest.approx(1 + 250 / 300)
    assert from_python(late_batches)(-1.0, 300.0, 600.0, 27.0) == 0.0


def test_what_is_interrupted_in_its_first_hour_is_free() -> None:
    # One interruption an hour: the integral of t e^-t from 0 to 1 is 1 - 2 / e.
    assert from_python(free_s)(1 / 3600, 7200.0, 3600.0) == pytest.approx(3600 * (1 - 2 / math.e))
    assert from_python(free_s)(1 / 3600, 1800.0, 3600.0) == pytest.approx(3600 * (1 - 1.5 * math.exp(-0.5)))
    assert from_python(free_s)(0.0, 7200.0, 3600.0) == 0.0


def test_expected_cost_on_demand_by_hand() -> None:
    # Paid 3800 s * 2 * 3 USD / 3600 = 6.3333, delay 3800 s * .36 / 3600 = .38.
    assert usd(market({}), 1) == pytest.approx(6.3333333 + 0.38, rel=1e-6)
    # It ends 100 s late: one miss.
    assert usd(market({"SLACK_S": 3700}), 1) == pytest.approx(6.3333333 + 0.38 + 25, rel=1e-6)
    # Four steps wait for it, and it makes 30 % of them late.
    step = {"SLACK_S": 3700, "EXECUTIONS": 5}
    assert usd(market(step), 1) == pytest.approx(6.3333333 + 0.38 + 25 * (1 + 4 * 0.3), rel=1e-6)


def test_expected_cost_on_spot_by_hand() -> None:
    # Interruptions 3600 / 14400 = .25, each loses 1800 s (half the work) + 100 + 100: rework 500 s.
    # Paid (3800 + 500) * 2 * 1 / 3600 = 2.3889, egress .4 * 1.25 = .5, delay 4300 * .0001 = .43.
    observation = market({}, ask={"EGRESS_USD": 0.4})
    # Margin 10000 - 3800 = 6200 s: 3 interruptions of 2000 s can be borne.
    tail = 1 - math.exp(-0.25) * (1 + 0.25 + 0.25**2 / 2 + 0.25**3 / 6)
    assert usd(observation, 0) == pytest.approx(2.3888889 + 0.5 + 0.43 + 25 * tail, rel=1e-6)
    # Margin 1200 s: none can.
    tight = market({"SLACK_S": 5000}, ask={"EGRESS_USD": 0.4})
    assert usd(tight, 0) == pytest.approx(2.3888889 + 0.5 + 0.43 + 25 * (1 - math.exp(-0.25)), rel=1e-6)


def test_expected_cost_of_queueing_on_an_owned_cluster_by_hand() -> None:
    # 2 executors of 4 are missing: 7200 * 2 / 4 = 3600 s of wait; start 3700 s, work 3600 s.
    # Executors at .5: 2 * .5 * 7300 / 3600 = 2.0278; delay 7300 * .0001 = .73; 10000 s are enough.
    assert usd(market({}), 2) == pytest.approx(2.0277778 + 0.73, rel=1e-6)
    # One more comes after 300 s, one is missing: 300 + 7200 / 4 = 2100 s of wait, and 5800 s in all.
    assert usd(market({}, owned={"CAPACITY_MAX": 5}), 2) == pytest.approx(1.6111111 + 0.58, rel=1e-6)


def test_expected_cost_of_a_streaming_job_by_hand() -> None:
    # 5 batches of 300 s every 600 s, the next one to be done in 250 s. On demand it starts after 200 s and
    # ends 250 s late: 1 + 250 / (600 - 300) misses. With an allowance of 1.25 periods that batch was due
    # 500 s ago and the last one is due in 1900 s; it works until 2200 s, which is 2000 s of work.
    # Executors (200 + 2000) s * 6 / 3600 = 3.6667; delay 200 s * .0001 / 5.
    stream = {**STREAM, "PERIOD_S": 600, "EXECUTIONS": 5, "DURATION_S": 3000, "SLACK_S": 250}
    observation = market(stream, ask={"EXECUTION_S": 300, "DEADLINE_S": 600})
    assert usd(observation, 1) == pytest.approx(3.6666667 + 0.004 + 5 * (1 + 250 / 300), rel=1e-6)
    # Slower than its period it never catches up: every batch is missed, and it works until 2600 s.
    slow = market(stream, ask={"EXECUTION_S": 700, "DEADLINE_S": 600})
    assert usd(slow, 1) == pytest.approx(4.3333333 + 0.004 + 5 * 5, rel=1e-6)


def test_expected_cost_lets_a_stream_start_late_to_save_idle_time() -> None:
    stream = {**STREAM, "PERIOD_S": 1800, "EXECUTIONS": 12, "DURATION_S": 21600, "SLACK_S": 4000}
    dead = {**DOWN, "UP_RATIO": 0}
    early = market(stream, ask={"EXECUTION_S": 600}, spot=dead, owned=DOWN)
    # 200 s to start, 600 s of work: 3200 s in hand. Starting 300 s later saves 300 s * 6 USD / 3600 = .5 USD.
    assert usd(early, 1) - usd(early, 1, 300.0) == pytest.approx(0.5 - 300 * 0.0001 / 12, rel=1e-4)
    assert pick("expected_cost", early, PLAIN) == (0, NONE)
    urgent = market({**stream, "SLACK_S": 1000}, ask={"EXECUTION_S": 600}, spot=dead, owned=DOWN)
    assert pick("expected_cost", urgent, PLAIN) == (0, 1)


def test_expected_down_time_follows_from_the_up_ratio() -> None:
    obs = arrays_of(market({}, spot={**DOWN, "SPELL_S": 900}))
    # 14400 s up at a ratio of .8: 3600 s down. It has been down for 900 s: the geometric mean is 1800 s.
    for memory, seconds in ((0.0, 3600.0), (0.5, 1800.0), (1.0, 900.0)):
        vector = ExpectedCostParameters().changed({**PLAIN, "down_memory": memory}).vector()
        assert from_python(down_time)(obs, 0, vector) == pytest.approx(seconds, rel=1e-6)


def test_expected_cost_waits_for_spot_only_while_the_slack_permits() -> None:
    # Spot returns in about 3600 s. 12 h of slack leave time for that, and spot saves about 4 USD.
    assert pick("expected_cost", market({"SLACK_S": 43200}, spot=DOWN, owned=DOWN), PLAIN) == (0, NONE)
    # 6000 s do not: 3600 + 3800 is late.
    assert pick("expected_cost", market({"SLACK_S": 6000}, spot=DOWN, owned=DOWN), PLAIN) == (0, 1)
    # Available spot: with plenty of slack yes, with 5000 s the risk of 22 % costs 5.5 USD.
    assert pick("expected_cost", market({"SLACK_S": 43200}, owned=DOWN), PLAIN) == (0, 0)
    assert pick("expected_cost", market({"SLACK_S": 5000}, owned=DOWN), PLAIN) == (0, 1)


def test_expected_cost_does_not_take_a_full_offer_for_one_that_is_free() -> None:
    full = {"USED": 8, "UP_RATIO": 1}
    # 2 executors of 8 are missing: 3600 * 2 / 8 = 900 s of wait, for which spot saves about 4 USD.
    assert pick("expected_cost", market({}, spot=full, owned=DOWN), PLAIN) == (0, NONE)
    # 36000 s are too long: the job is late after 10000 s.
    slow = {**PLAIN, "full_s": 144_000.0}
    assert pick("expected_cost", market({}, spot=full, owned=DOWN), slow) == (0, 1)


def test_expected_cost_does_not_wait_for_an_offer_that_is_too_small() -> None:
    for quota, expected in ((9, 2), (8, 1)):
        away = {**SPOT, "AVAILABLE": 0, "CAPACITY_NOW": 0, "CAPACITY_MAX": quota}
        clusters = [away, {**ON_DEMAND, "CAPACITY_NOW": 16}]
        seen = shown(clusters, GENERAL, {**ASK, "REQUEST": 9, "PEAK_REQUEST": 9})
        assert pick("expected_cost", seen, PLAIN) == (0, expected)


@pytest.mark.parametrize(
    ("job", "owned", "chosen"),
    [
        ({}, {"USED": 4}, 1),
        (GENERAL, {"USED": 4}, 2),
        (GENERAL, {"USED": 2}, 1),
        ({**GENERAL, "WAITED_S": 259_199}, {"USED": 4}, 2),
        ({**GENERAL, "WAITED_S": 259_200}, {"USED": 4}, 1),
        (GENERAL, {"USED": 4, "CAPACITY_MAX": 6}, 1),  # it grows by the two executors asked for
        (GENERAL, {"USED": 4, "CAPACITY_MAX": 5}, 2),
        (GENERAL, {"USED": 4, "CAPACITY_MAX": 6, "HALTED": 1}, 2),
    ],
)
def test_expected_cost_queues_with_a_deadline_or_after_days(job: Row, owned: Row, chosen: int) -> None:
    """A spot offer that is down for long, and an owned cluster of 4 executors whose queue takes minutes."""
    clusters = [{**SPOT, **DOWN, "UP_RATIO": 0.1}, {**OWNED, **owned}]
    asked = shown(clusters, {"SLACK_S": 40000, **job}, {**ASK, "DEADLINE_S": 40000})
    assert pick("expected_cost", asked, {**PLAIN, "queue_s": 600.0, "queue_risk": 1.0}) == (0, chosen)


CLIENT: Row = {**GENERAL, "CATEGORY": Category.FEDERATED.value, "EXECUTIONS": 5, "OWES": 1, "ROUND_S": 600}


@pytest.mark.parametrize(
    ("job", "executors", "place", "others", "gives_way"),
    [
        (GENERAL, 2, {"USED": 2}, [], False),  # leaves 4 of 8 executors free
        (GENERAL, 2, {"USED": 3}, [], True),
        (GENERAL, 2, {**OWNED, "CAPACITY_NOW": 8, "USED": 2, "IS_SPOT": 0}, [], False),
        (GENERAL, 2, {**OWNED, "CAPACITY_NOW": 8, "USED": 3, "IS_SPOT": 0}, [], True),
        (GENERAL, 2, {"USED": 3, "MISSED": 0}, [], False),  # all are in time
        ({**GENERAL, "WAITED_S": 259_200}, 2, {"USED": 3}, [], False),
        (GENERAL, 8, {}, [], False),  # a gang that could never leave any
        (GENERAL, 7, {}, [], False),
        (GENERAL, 5, {"USED": 2}, [], True),
        (GENERAL, 2, {"USED": 3}, [{**ON_DEMAND, "USED": 2}], False),  # others need not wait for spot
        (GENERAL, 2, {"USED": 3}, [{**ON_DEMAND, "USED": 3}], True),
        (GENERAL, 2, {"USED": 3}, [{**ON_DEMAND, "CAPACITY_NOW": 1, "CAPACITY_MAX": 1}], True),
        ({}, 2, {"USED": 5}, [], False),  # 25 USD for 2 executor-hours
        ({}, 3, {"USED": 4}, [], True),  # for 3
        ({"SLACK_S": 3700}, 2, {"USED": 3}, [], True),  # late wherever it starts
        (CLIENT, 1, {"USED": 3}, [], False),
        (CLIENT, 1, {"USED": 4}, [], True),
        ({**CLIENT, "AGE_S": 86_399}, 1, {"USED": 4}, [], True),
        ({**CLIENT, "AGE_S": 86_400}, 1, {"USED": 4}, [], False),
        ({**CLIENT, "HAS_DEADLINE": 1, "SLACK_S": 20_000, "DURATION_S": 9001}, 1, {"USED": 4}, [], True),
        (
            {**CLIENT, "HAS_DEADLINE": 1, "SLACK_S": 20_000, "DURATION_S": 8999},
            1,
            {"USED": 4},
            [],
            False,
        ),  # 25 USD for 2.5 h
        ({**CLIENT, "HAS_DEADLINE": 1, "DURATION_S": 8999, "SLACK_S": -1}, 1, {"USED": 4}, [], True),
    ],
)
def test_expected_cost_leaves_scarce_capacity_to_those_that_it_saves_more(
    job: Row, executors: int, place: Row, others: list[Row], gives_way: bool
) -> None:
    ask = {**ASK, "REQUEST": executors, "PEAK_REQUEST": executors}
    asked = shown([{**SPOT, "MISSED": 1, **place}, *others], job, ask)
    none = 1 + len(others)
    assert pick("expected_cost", asked, PLAIN) == (0, none if gives_way else 0)


def test_expected_cost_moves_a_running_job_only_for_a_margin() -> None:
    # Staying costs 6.36 (3600 s on demand); spot costs about 2.8: it moves, unless the margin is 60 %.
    observation = shown([SPOT, ON_DEMAND], {"RUNNING": 1, "SLACK_S": 43200}, ASK, HERE)
    assert pick("expected_cost", observation, PLAIN) == (0, 0)
    assert pick("expected_cost", observation, {**PLAIN, "move_margin": 0.6}) == (0, 2)
