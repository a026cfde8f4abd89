"""Synchronous rounds, second by second and cent by cent, against figures computed by hand."""

from __future__ import annotations

import copy
import dataclasses

import numpy as np
import pytest

from envs.simulation.federations.rounds.application import Application, Client, Interruption, Market, Offer
from envs.simulation.federations.rounds.decisions import (
    NEVER,
    Cause,
    InvalidAnswerError,
    Leave,
    Placement,
    State,
)
from envs.simulation.federations.rounds.history import Bill, Exclusion, Span
from envs.simulation.federations.rounds.tariff import Tariff
from envs.simulation.federations.rounds.world import RoundsWorld, play
from envs.simulation.series import StepSeries
from tests.envs.rounds_cases import FAST, SLOW, RandomPolicy, Script, two_clients, two_offers


def test_instances_that_stay_are_paid_from_request_to_end() -> None:
    outcome = play(two_clients(3), Script({}), 0)
    # Spin-up 100 s, one cold round of 700 s, two warm ones of 600 s.
    assert outcome.rounds == [(100, 800), (800, 1400), (1400, 2000)]
    assert outcome.time_s == 2000
    assert [(bill.start_s, bill.end_s) for bill in outcome.bills] == [(0, 2000), (0, 2000)]
    assert outcome.cost_usd == pytest.approx(0.40, abs=1e-12)
    assert outcome.spans[FAST] == [
        Span(0, 100, State.SPIN_UP, 0),
        Span(100, 250, State.TRAINING, 0),
        Span(250, 800, State.IDLE, 0),
        Span(800, 900, State.TRAINING, 1),
        Span(900, 1400, State.IDLE, 1),
        Span(1400, 1500, State.TRAINING, 2),
        Span(1500, 2000, State.IDLE, 2),
    ]


def test_a_released_client_comes_back_cold_at_its_time() -> None:
    outcome = play(two_clients(2), Script({(Cause.FINISHED, FAST): Placement(0, 650)}), 0)
    # Off from 250 to 650, ready at 750, 50 s before the round begins; its second epoch is a cold one.
    assert outcome.rounds == [(100, 800), (800, 1400)]
    fast = [bill for bill in outcome.bills if bill.client == FAST]
    # Its answer for the second round lies in the past by then, so the instance stays to the end.
    assert [(bill.start_s, bill.end_s) for bill in fast] == [(0, 250), (650, 1400)]
    assert outcome.seconds_in(FAST, State.TRAINING) == 150 + 150
    assert outcome.seconds_in(FAST, State.OFF) == 400


def test_a_late_client_holds_up_a_round_only_where_rounds_begin_together() -> None:
    late = Script({(Cause.FINISHED, FAST): Placement(0, 900), (Cause.ROUND, FAST): Placement(0, 900)})
    # Ready at 1000 in both; together the slow client waits for it, alone it has begun at 800.
    assert play(two_clients(2), late, 0).rounds[1] == (1000, 1600)
    alone = play(two_clients(2, start_together=False), late, 0)
    assert alone.rounds == [(0, 800), (800, 1400)]
    assert [epoch.end_s for epoch in alone.epochs if epoch.client == FAST] == [250, 1000 + 150]


def test_aggregation_lies_between_rounds_and_after_the_last() -> None:
    outcome = play(two_clients(2, aggregation_s=40), Script({}), 0)
    assert outcome.rounds == [(100, 800), (840, 1440)]
    assert outcome.time_s == 1480


def test_an_interrupted_epoch_goes_on_from_its_checkpoint() -> None:
    outcome = play(two_clients(1, ((SLOW, 500),)), Script({}), 0)
    # Trained from 100; 100 s of a cold start, so 300 s of work, five checkpoints of 60 s. A new instance at
    # 500 is ready at 600 and needs 100 s + 300 s.
    assert outcome.rounds == [(100, 1000)]
    assert outcome.interruptions == [(SLOW, 500)]
    assert [bill.by_provider for bill in outcome.bills if bill.client == SLOW] == [True, False]


def test_work_after_the_last_checkpoint_is_lost_and_all_of_it_without_checkpoints() -> None:
    assert play(two_clients(1, ((SLOW, 559),)), Script({}), 0).rounds == [(100, 559 + 100 + 100 + 300)]
    none = two_clients(1, ((SLOW, 559),), checkpoint_s=None)
    assert play(none, Script({}), 0).rounds == [(100, 559 + 100 + 700)]


def test_a_second_interruption_loses_no_checkpoint() -> None:
    outcome = play(two_clients(1, ((SLOW, 500), (SLOW, 650))), Script({}), 0)
    # The second instance had just loaded its data (600 to 700) when it was taken.
    assert outcome.rounds == [(100, 650 + 100 + 100 + 300)]


def test_a_result_delivered_in_the_second_of_an_interruption_counts() -> None:
    outcome = play(two_clients(1, ((FAST, 250),)), Script({}), 0)
    assert [epoch.end_s for epoch in outcome.epochs] == [250, 800]
    assert outcome.interruptions == [(FAST, 250)]


def test_an_interruption_while_nothing_runs_takes_nothing() -> None:
    released = Script({(Cause.FINISHED, FAST): Placement(0, NEVER)})
    outcome = play(two_clients(1, ((FAST, 400),)), released, 0)
    assert outcome.interruptions == []


def test_other_released_clients_are_asked_again_after_an_interruption() -> None:
    policy = Script({(Cause.FINISHED, FAST): Placement(0, 700), (Cause.REPLAN, FAST): Placement(0, 900)})
    outcome = play(two_clients(2, ((SLOW, 500),)), policy, 0)
    assert [now for now, question in policy.asked if question.cause is Cause.REPLAN] == [500]
    assert [bill.start_s for bill in outcome.bills if bill.client == FAST] == [0, 900]


def test_a_client_moves_to_another_offer_before_a_round() -> None:
    moving = Script({(Cause.ROUND, FAST): Placement(1), (Cause.FINISHED, FAST): Placement(0)})
    outcome = play(two_clients(2), moving, 0)
    bills = [bill for bill in outcome.bills if bill.client == FAST]
    # Moved at 800, ready at 900, trained until 1050, then sent back by its answer to FINISHED; the slow
    # client waited from 800 to 900.
    assert outcome.rounds == [(100, 800), (900, 1500)]
    assert bills[:2] == [Bill(FAST, 0, 0, 800, 0.08, False), Bill(FAST, 1, 800, 1050, 0.075, False)]


def test_a_short_instance_costs_the_minimum_and_an_early_interruption_nothing() -> None:
    short = play(two_clients(1, ((FAST, 40),)), Script({}), 0)
    assert short.bills[0][:4] == (FAST, 0, 0, 40)
    assert short.bills[0].usd == pytest.approx(0.006, abs=1e-12)
    free = play(two_clients(1, ((FAST, 40),), free_first_s=3600), Script({}), 0)
    assert free.bills[0] == Bill(FAST, 0, 0, 40, 0.0, True)


def test_the_server_is_paid_from_beginning_to_end() -> None:
    outcome = play(two_clients(3, server_usd_hour=0.18), Script({}), 0)
    assert outcome.cost_usd == pytest.approx(0.40 + 0.10, abs=1e-12)


def test_a_budget_ends_an_instance_in_the_last_second_it_pays() -> None:
    outcome = play(two_clients(3, fast_budget_usd=0.13), Script({}), 0)
    # 0.0001 USD per second last 1300 s; its second result came at 900.
    assert outcome.exclusions == [Exclusion(FAST, 1300, 1, work_lost=False)]
    assert outcome.client_cost_usd(FAST) == pytest.approx(0.13, abs=1e-12)
    assert outcome.client_cost_usd(FAST) <= 0.13
    assert [epoch.round_index for epoch in outcome.epochs if epoch.client == SLOW] == [0, 1, 2]
    assert [epoch.round_index for epoch in outcome.epochs if epoch.client == FAST] == [0, 1]


def test_a_budget_that_ends_within_an_epoch_is_told_as_lost_work() -> None:
    outcome = play(two_clients(3, fast_budget_usd=0.085), Script({}), 0)
    assert outcome.exclusions == [Exclusion(FAST, 850, 1, work_lost=True)]
    assert outcome.rounds == [(100, 800), (800, 1400), (1400, 2000)]


def test_the_application_ends_when_everybody_has_left() -> None:
    leaving = Script({(Cause.ROUND, SLOW): Leave(), (Cause.ROUND, FAST): Leave()})
    outcome = play(two_clients(3), leaving, 0)
    assert outcome.time_s == 800
    assert len(outcome.rounds) == 1


def test_a_changing_price_is_paid_second_by_second() -> None:
    tariff = Tariff([0, 1000, 1500], [0.36, 0.72, 0.0])
    application = dataclasses.replace(
        two_clients(3), offers=(Offer("spot", "zone", Market.SPOT, tariff), two_offers()[1])
    )
    outcome = play(application, Script({}), 0)
    # 1000 s at 0.0001, 500 s at 0.0002, 500 s for nothing; twice.
    assert outcome.cost_usd == pytest.approx(2 * (0.10 + 0.10), abs=1e-12)
    assert outcome.accumulated_usd(FAST, 1250) == pytest.approx(0.15, abs=1e-12)


def test_falling_availability_interrupts_and_no_instance_starts_there() -> None:
    series = StepSeries(np.array([0, 300, 900]), np.array([1.0, 0.0, 1.0]))
    offers = (
        Offer("spot", "zone", Market.SPOT, Tariff.constant(0.36), availability=series),
        two_offers()[1],
    )
    application = Application("gaps", 1, (Client("only", 600, 700, 100, (0, 1)),), offers)
    with pytest.raises(InvalidAnswerError, match="spot is not available at 300 s"):
        play(application, Script({}), 0)
    outcome = play(application, Script({(Cause.INTERRUPTED, 0): Placement(0, 900)}), 0)
    # 200 s trained, 100 of them loading; one checkpoint of 60 s. On again at 900: 100 + 100 + 540 s.
    assert outcome.interruptions == [(0, 300)]
    assert outcome.time_s == 900 + 100 + 100 + 540
    moving = Script({(Cause.INTERRUPTED, 0): Placement(1), (Cause.FINISHED, 0): Placement(1)})
    moved = play(application, moving, 0)
    assert [bill.offer for bill in moved.bills] == [0, 1]


def test_a_policy_that_never_starts_a_client_is_told_so() -> None:
    never = Script({(Cause.FINISHED, FAST): Placement(0, NEVER), (Cause.ROUND, FAST): Placement(0, NEVER)})
    with pytest.raises(InvalidAnswerError, match="round 2 waits for fast, which are never started"):
        play(two_clients(2), never, 0)


def test_an_offer_that_a_client_may_not_rent_is_refused() -> None:
    with pytest.raises(InvalidAnswerError, match="slow may not rent offer 7"):
        play(two_clients(1), Script({(Cause.START, SLOW): Placement(7)}), 0)


def test_a_copy_goes_on_like_the_original() -> None:
    noisy = two_clients(5, epoch_cv=0.2, spin_up_cv=0.3)
    offers = tuple(dataclasses.replace(o, mean_time_to_interruption_s=900.0) for o in noisy.offers)
    noisy = dataclasses.replace(noisy, offers=offers)
    world = RoundsWorld(noisy, 7)
    policy = RandomPolicy(3, leaves=0)
    policy.start(world)
    for _ in range(6):
        question = world.advance()
        assert question is not None
        world.answer(policy.decide(question, world))
    ends = []
    for each, decider in ((copy.deepcopy(world), copy.deepcopy(policy)), (world, policy)):
        while (question := each.advance()) is not None:
            each.answer(decider.decide(question, each))
        ends.append(each.outcome("random"))
    assert ends[0].bills == ends[1].bills
    assert ends[0].spans == ends[1].spans


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rounds": 0}, "rounds is 0"),
        ({"aggregation_s": -1}, "aggregation_s is -1"),
        ({"epoch_cv": float("nan")}, "epoch_cv is nan"),
        ({"checkpoint_s": 0}, "checkpoint_s is 0"),
        ({"clients": ()}, "has no clients"),
        ({"offers": ()}, "has no offers"),
        ({"offers": (two_offers()[0],) * 2}, "two offers are called 'spot'"),
        ({"clients": (Client("a", 1, 1, 0, (5,)),)}, "may rent the offers"),
        ({"clients": (Client("a", 1, 1, 0, ()),)}, "may rent the offers"),
        ({"clients": (Client("a", 100, 100, 100, (0,), 0.0199),)}, "its first round alone"),
        ({"interruptions": (Interruption(9, 5),)}, "names client 9"),
    ],
)
def test_an_impossible_application_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(two_clients(3), **change)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("a", -1, 1, 0, (0,)), "epoch_warm_s -1"),
        (("a", 2, 1, 0, (0,)), "below epoch_warm_s"),
        (("a", 1, 1, -3, (0,)), "spin_up_s -3"),
        (("a", 1, 1, 0, (0,), -1.0), "budget of -1.0"),
    ],
)
def test_an_impossible_client_is_refused(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Client(*arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("times", "prices", "message"),
    [
        ([], [], "at least one"),
        ([0, 1], [1.0], "2 times and 1 prices"),
        ([0, 0], [1.0, 2.0], "must increase"),
        ([0], [-1.0], "-1.0 USD"),
        ([0], [float("nan")], "nan USD"),
    ],
)
def test_an_impossible_tariff_is_refused(times: list[int], prices: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Tariff(times, prices)
