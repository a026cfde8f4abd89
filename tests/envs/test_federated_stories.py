"""Federated applications as decisions: what is asked when, and every column and dollar by hand."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.federations import world as federated_world
from spotweave.envs.simulation.federations.rounds.application import SERVER, Application, Client
from spotweave.envs.simulation.federations.world import reference_of
from spotweave.envs.simulation.round_estimates import UNSEEN_SHARE, WARM_SHARE
from spotweave.envs.simulation.series import StepSeries
from spotweave.envs.simulation.snapshot import Category
from tests.envs.checks import check
from tests.envs.federated_cases import (
    FAST,
    KEY,
    NONE,
    ON_DEMAND,
    SLOW,
    SPOT,
    Story,
    two_clients,
    two_offers,
    world_of,
)
from tests.envs.test_rounds_server import FAR, NEAR, federated

USD_S = 0.0001
"""Spot price per second; on demand costs three times that."""


def test_what_the_first_question_shows_where_times_were_measured_beforehand() -> None:
    story = Story(two_clients(3))
    assert story.told(col.CATEGORY, col.EXECUTIONS) == [Category.FEDERATED, 3]
    assert story.told(col.STANDARD_S, col.ROUND_S, col.PERIOD_S, col.COLD_S) == [600, 600, 600, 100]
    assert story.job(col.DURATION_S) == 1800
    zeros = (col.AGE_S, col.IDLE, col.OWES, col.ROUND_LEFT_S, col.TIME_ERROR_S, col.IS_SERVER)
    assert story.told(*zeros, col.HAS_BUDGET, col.OTHERS_USD_HOUR) == [0] * 8
    assert story.clusters(col.PRICE_USD_HOUR) == pytest.approx([0.36, 1.08])
    assert story.clusters(col.ON_DEMAND_USD_HOUR) == pytest.approx([1.08, 1.08])
    assert story.clusters(col.IS_SPOT) == [1, 0]
    assert story.clusters(col.AVAILABLE) == story.clusters(col.UP_RATIO) == [1, 1]
    assert (story.clusters(col.LAUNCH_S), story.clusters(col.USED)) == ([100, 100], [0, 0])
    assert (story.pairs(col.EXECUTION_S), story.pairs(col.FINISH_S)) == ([700, 700], [800, 800])
    assert story.pairs(col.COST_USD) == pytest.approx([800 * USD_S, 2400 * USD_S])
    assert (story.pairs(col.HERE), story.mask) == ([0, 0], [1, 1, 1])
    assert story.answer(ON_DEMAND) == (0, SLOW)
    assert story.told(col.STANDARD_S, col.OTHERS_USD_HOUR) == [100, pytest.approx(1.08)]
    assert (story.clusters(col.USED), story.pairs(col.EXECUTION_S)) == ([0, 1], [150, 150])


def test_late_early_late_one_decision_after_the_other() -> None:
    """The fast client is started late, kept for an early epoch, released, and started late again."""
    story = Story(two_clients(3))
    assert story.answer(SPOT) == (0, SLOW)
    # Put off: an epoch of 150 s and a launch of 100 s fit into a round of 600 s with 350 s to spare.
    assert story.answer(NONE) == (0, FAST)
    assert story.told(col.AGE_S, col.OWES, col.ROUND_LEFT_S) == [175, 1, 625]
    # Half of what is left until 550 s (800 - 150 - 100), again and again, at least 15 s.
    asked = [story.answer(NONE)[0] for _ in range(6)]
    assert asked == [175, 362, 456, 503, 526, 541]
    assert story.now_s == 556
    assert story.answer(SPOT) == (556, FAST)
    # Ready at 656, cold epoch of 150 s; the slow one has delivered at 800, so 6 s too late.
    assert story.answer(SPOT) == (800, SLOW)
    assert story.told(col.AGE_S, col.IDLE, col.OWES, col.EXECUTIONS) == [806, 1, 0, 2]
    assert (story.pairs(col.EXECUTION_S), story.pairs(col.HERE)) == ([100, 150], [1, 0])
    assert story.pairs(col.FINISH_S) == [100, 250]
    assert story.answer(SPOT) == (806, FAST)
    # The next round: both are asked, stay, and train.
    assert story.told(col.EXECUTIONS, col.ROUND_LEFT_S) == [2, 0]
    assert story.answers(SPOT, SPOT) == [(806, SLOW), (806, FAST)]
    assert story.told(col.AGE_S, col.ROUND_LEFT_S) == [906, 500]
    # Released after the early epoch: it need not train before 500 + 600 - 100 - 100 s, so half of that.
    assert story.answers(NONE, NONE, SPOT) == [(906, FAST), (1356, FAST), (1406, SLOW)]
    # A plan that is older than the round is void: both are asked at its beginning.
    assert story.answers(SPOT, NONE) == [(1406, SLOW), (1406, FAST)]
    assert story.now_s == 1406 + 175
    while story.job(col.ROUND_LEFT_S) - 250 > 15:
        story.answer(NONE)
    start_s = story.now_s
    assert start_s == 1749
    assert story.answer(SPOT) == (start_s, FAST)
    # Ready at 1849, done at 1999; the round's end is 2006.
    assert story.job(col.EXECUTIONS) == 0
    assert story.answers(NONE, NONE) == [(1999, FAST), (2006, SLOW)]
    assert story.over
    fast_s = (906 - 556) + (1999 - 1749)
    # Reference: 100 + 700 + 2 * 600 s, two instances on demand.
    delay, cost = 100 * 6 / 2000, 100 * (2006 + fast_s) * USD_S / (2 * 2000 * 3 * USD_S)
    check(
        story.world.metrics(0),
        time_min=2006 / 60,
        cost_usd=(2006 + fast_s) * USD_S,
        delay_percent=delay,
        cost_percent=cost,
    )
    check(story.world.metrics(0), cost_index=cost + 2.5 * delay)
    assert story.reward == pytest.approx(-(cost + 2.5 * delay))


def test_without_measured_times_only_what_was_seen_is_known() -> None:
    story = Story(two_clients(2, aggregation_s=7), measured=False)
    assert story.told(col.STANDARD_S, col.COLD_S, col.ROUND_S) == [0, 0, 7]
    assert story.clusters(col.LAUNCH_S) == [100, 100]
    story.answers(SPOT, SPOT)
    # The fast one has delivered at 250 after 150 s, cold; the slow one has trained as long.
    warm_s = WARM_SHARE * 150
    told = story.told(col.AGE_S, col.STANDARD_S, col.ROUND_S, col.ROUND_LEFT_S)
    assert told == pytest.approx([250, warm_s, warm_s + 7, UNSEEN_SHARE * 150])
    assert story.pairs(col.EXECUTION_S) == pytest.approx([warm_s, 150])
    story.until_end(lambda _: SPOT)
    # Warm epochs of 600 and 100 s have been seen by the end.
    known = story.world._lanes[0].observed.known  # type: ignore[union-attr]
    assert (known.epoch_s(SLOW, True), known.epoch_s(SLOW, False)) == (700, 600)
    assert (known.epoch_s(FAST, True), known.cold_extra_s(FAST)) == (150, 50)


def test_an_interrupted_client_is_asked_about_with_what_its_checkpoint_saved() -> None:
    story = Story(two_clients(1, ((FAST, 230),)))
    story.answers(SPOT, SPOT)
    # Ready at 100, 50 s cold start, 80 s trained, 60 of 100 s saved.
    assert story.told(col.AGE_S, col.OWES, col.IDLE, col.PROGRESS) == pytest.approx([230, 1, 0, 0.6])
    assert story.pairs(col.EXECUTION_S) == pytest.approx([90, 90])
    assert story.mask == [1, 1, 1]
    assert story.answer(ON_DEMAND) == (230, FAST)
    assert story.now_s == 230 + 100 + 90
    assert story.pairs(col.HERE) == [0, 1]
    assert story.answers(NONE, NONE) == [(420, FAST), (800, SLOW)]
    assert story.over
    check(story.world.metrics(0), interruptions=1, cost_usd=(800 + 230 + 3 * 190) * USD_S)


def test_who_is_waited_for_may_not_wait_and_others_are_asked_again() -> None:
    story = Story(two_clients(1, ((SLOW, 300),)))
    assert story.answers(SPOT, NONE, NONE)[2] == (175, FAST)
    # 60 of 600 s are saved. Nobody else trains, and the fast one needs 250 s only: the slow one must go on.
    assert story.told(col.AGE_S, col.ROUND_LEFT_S) == [300, 250]
    assert (story.pairs(col.EXECUTION_S), story.mask) == ([640, 640], [1, 1, 0])
    with pytest.raises(ValueError, match=r"action 2 in lane 0 is not valid: expected one of \[0, 1\]"):
        story.answer(NONE)
    assert story.answer(SPOT) == (300, SLOW)
    # The fast one was to be asked at 362; the interruption asks it at once.
    assert (story.told(col.AGE_S, col.ROUND_LEFT_S), story.mask) == ([300, 740], [1, 1, 1])
    assert story.answer(SPOT) == (300, FAST)


def test_a_client_moves_to_another_offer() -> None:
    story = Story(two_clients(2))
    assert story.answers(SPOT, SPOT, ON_DEMAND, SPOT, SPOT)[2:4] == [(250, FAST), (800, SLOW)]
    # Ready on demand since 350, idle until the round of 800 s.
    assert (story.pairs(col.HERE), story.pairs(col.EXECUTION_S)) == ([0, 1], [150, 150])
    story.answer(ON_DEMAND)
    assert story.now_s == 950
    story.until_end(lambda _: NONE)
    check(story.world.metrics(0), cost_usd=(1400 + 250 + 3 * 700) * USD_S)


def recorded() -> Application:
    """One client; spot is recorded since two hours ago: an hour down, up until 400 s, up again at 1000 s."""
    series = StepSeries(np.array([-7200, -3600, 400, 1000]), np.array([0.0, 1.0, 0.0, 1.0]))
    offers, clients = two_offers(availability=series), (Client("only", 600, 700, 100, (0, 1)),)
    return Application("recorded", 2, clients, offers, start_together=False)


def test_what_an_offers_past_says_and_how_it_ends() -> None:
    story = Story(recorded())
    assert story.clusters(col.UP_RATIO) == pytest.approx([0.5, 1])
    assert story.clusters(col.SPELL_S) == story.clusters(col.MEAN_UP_S) == [3600, 0]
    story.answer(SPOT)
    # Interrupted at 400, and nothing starts there until 1000.
    assert (story.now_s, story.clusters(col.AVAILABLE)) == (400, [0, 1])
    assert story.clusters(col.UP_RATIO) == pytest.approx([4000 / 7600, 1])
    assert (story.clusters(col.SPELL_S), story.clusters(col.MEAN_UP_S)) == ([0, 0], [4000, 0])
    # It is the only client: it may not wait while something can be rented.
    assert story.mask == [0, 1, 0]
    with pytest.raises(ValueError, match="not valid"):
        story.answer(SPOT)


def test_who_finds_nothing_to_rent_may_wait() -> None:
    only_spot = dataclasses.replace(
        recorded(), offers=recorded().offers[:1], clients=(Client("only", 600, 700, 100, (0,)),)
    )
    story = Story(only_spot)
    story.answer(0)
    assert (story.now_s, story.mask) == (400, [0, 1])
    asked = story.until_end(lambda s: 0 if s.mask[0] else 1)
    # Every 15 s: it is late already. What is asked first after the rise starts it.
    waits = [time_s for time_s, _ in asked if time_s < 1000]
    assert waits == list(range(400, 1000, 15))
    assert asked[len(waits)][0] == 1000
    # 400 s: 300 s trained of which 100 s cold, 180 s saved: 1000 + 100 + 100 + 420, then 600.
    check(story.world.metrics(0), time_min=(1620 + 600) / 60)


def test_a_server_is_a_task_and_messages_are_paid() -> None:
    story = Story(federated())
    assert story.told(col.IS_SERVER, col.OWES, col.ROUND_LEFT_S) == [1, 1, 0]
    assert (story.pairs(col.EXECUTION_S), story.clusters(col.LAUNCH_S)) == ([5, 2], [20, 20])
    # Nothing goes on without a server.
    assert story.mask == [1, 1, 0]
    assert story.answer(NEAR) == (0, SERVER)
    assert story.job(col.IS_SERVER) == 0
    assert story.pairs(col.EXECUTION_S) == [160, 130]
    assert story.pairs(col.EGRESS_USD) == pytest.approx([0.001, 0.01])
    story.until_end(lambda _: NEAR)
    check(story.world.metrics(0), time_min=415 / 60, cost_usd=3 * 415 * USD_S + 6 * 0.001)
    check(story.world.metrics(0), cost_usd=story.world.outcome(0, "near").cost_usd)


def test_a_server_that_is_interrupted_loses_its_round_and_must_be_replaced_at_once() -> None:
    story = Story(federated(((SERVER, 100),)))
    story.answers(NEAR, NEAR, NEAR)
    assert story.told(col.AGE_S, col.IS_SERVER, col.IDLE) == [100, 1, 0]
    assert story.mask == [1, 1, 0]
    assert story.answer(FAR) == (100, SERVER)
    # The clients wait on their instances and are asked whether they stay.
    assert story.told(col.AGE_S, col.IDLE, col.OWES, col.EXECUTIONS) == [100, 1, 0, 3]
    assert story.mask == [1, 1, 1]
    story.until_end(lambda s: FAR if s.job(col.IS_SERVER) else NEAR)
    # Served again from 120 on; the slow one is cold still: 150 + 40 s, then 100 + 40; each time 2 s more.
    check(
        story.world.metrics(0), time_min=(120 + 190 + 2 + 2 * (140 + 2)) / 60, interruptions=1, rounds_lost=0
    )


def test_a_client_that_cannot_pay_for_the_coming_round_leaves_before_it() -> None:
    story = Story(two_clients(3, fast_budget_usd=0.085))
    story.answer(SPOT)
    assert story.told(col.HAS_BUDGET, col.BUDGET_LEFT_USD) == [1, pytest.approx(0.085)]
    story.answer(SPOT)
    assert story.job(col.BUDGET_LEFT_USD) == pytest.approx(0.06)
    asked = story.until_end(lambda _: SPOT)
    # At 800 it has spent 0.08: another 100 s would cost 0.01. It is not asked again.
    assert [client for _, client in asked] == [FAST, SLOW, SLOW, SLOW, SLOW, SLOW]
    outcome = story.world.outcome(0, "kept")
    assert [(item.client, item.time_s, item.work_lost) for item in outcome.exclusions] == [(FAST, 800, False)]
    check(story.world.metrics(0), left=1, rounds_lost=0, cost_usd=(2000 + 800) * USD_S)


def test_the_reference_never_waits_and_rents_on_demand() -> None:
    reference = reference_of(two_clients(3, aggregation_s=10, server_usd_hour=0.84))
    assert reference.time_s == 100 + 700 + 2 * 600 + 3 * 10
    assert reference.cost_usd == pytest.approx((2 * 1.08 + 0.84) * 2030 / 3600)
    # With a server: 2 s of aggregation on the far offer; the slow client's fastest epochs are 90 and 60 s
    # there, the fast one's 100 and 50 s. No offer is on demand: the dearest spot price counts.
    other = reference_of(federated())
    assert other.time_s == 20 + 100 + 2 * 60 + 3 * 2
    assert other.cost_usd == pytest.approx(3 * 0.72 * other.time_s / 3600)


def test_an_episode_that_never_ends_is_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(federated_world, "MAX_DECISIONS", 10)
    story = Story(two_clients(3))
    asked = story.until_end(lambda s: NONE if s.mask[NONE] else SPOT)
    assert len(asked) == 10
    assert story.world.truncated(0)
    assert story.mask == [0, 0, 0]
    assert story.world.metrics(0)["rounds_lost"] == 3
    story.world.reset([KEY])
    assert not story.world.truncated(0)


def test_a_lane_without_an_episode_is_told_so() -> None:
    with pytest.raises(ValueError, match="lane 0 has no episode: reset it first"):
        world_of(two_clients(1)).metrics(0)
