"""Synchronous rounds and what they have shown, second by second and cent by cent, against figures by hand."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotweave.agents.federated.rules.always_on import AlwaysOn
from spotweave.agents.federated.rules.fed_cost_aware import FedCostAware
from spotweave.envs.simulation.federations.rounds.application import (
    Application,
    Client,
    Interruption,
    Market,
    Offer,
    Tariff,
)
from spotweave.envs.simulation.federations.rounds.decisions import (
    NEVER,
    Bill,
    Cause,
    Exclusion,
    InvalidAnswerError,
    Leave,
    Outcome,
    Placement,
    RoundScheduler,
    Span,
    State,
)
from spotweave.envs.simulation.federations.rounds.draws import Draws
from spotweave.envs.simulation.federations.rounds.world import play
from spotweave.envs.simulation.round_estimates import (
    ERROR_WEIGHT,
    OVERDUE_SHARE,
    UNSEEN_SHARE,
    WARM_S,
    RoundEstimates,
    ask_again_s,
    epoch_left_s,
    slack_s,
)
from spotweave.envs.simulation.series import StepSeries
from tests.envs.federated_cases import FAST, SLOW, RandomPolicy, Script, bills_of, two_clients, two_offers


def played(rounds: int, interruptions: tuple[tuple[int, int], ...] = (), **settings: Any) -> Outcome:
    """What becomes of two clients whose instances always stay."""
    return play(two_clients(rounds, interruptions, **settings), Script({}), 0)


def test_instances_that_stay_are_paid_from_request_to_end() -> None:
    outcome = played(3)
    # Spin-up 100 s, one cold round of 700 s, two warm ones of 600 s.
    assert outcome.rounds == [(100, 800), (800, 1400), (1400, 2000)]
    assert outcome.time_s == 2000
    assert bills_of(outcome, SLOW) == bills_of(outcome, FAST) == [(0, 2000)]
    assert outcome.cost_usd == pytest.approx(0.40, abs=1e-12)
    # A server costs its price from beginning to end.
    assert played(3, server_usd_hour=0.18).cost_usd == pytest.approx(0.40 + 0.10, abs=1e-12)
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
    # Its answer for the second round lies in the past by then, so the instance stays to the end.
    assert bills_of(outcome, FAST) == [(0, 250), (650, 1400)]
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
    outcome = played(2, aggregation_s=40)
    assert outcome.rounds == [(100, 800), (840, 1440)]
    assert outcome.time_s == 1480


def test_an_interrupted_epoch_goes_on_from_its_checkpoint() -> None:
    outcome = played(1, ((SLOW, 500),))
    # Trained from 100; 100 s of a cold start, so 300 s of work, five checkpoints of 60 s. A new instance at
    # 500 is ready at 600 and needs 100 s + 300 s.
    assert outcome.rounds == [(100, 1000)]
    assert outcome.interruptions == [(SLOW, 500)]
    assert [bill.by_provider for bill in outcome.bills if bill.client == SLOW] == [True, False]


def test_work_after_the_last_checkpoint_is_lost_and_all_of_it_without_checkpoints() -> None:
    assert played(1, ((SLOW, 559),)).rounds == [(100, 559 + 100 + 100 + 300)]
    assert played(1, ((SLOW, 559),), checkpoint_s=None).rounds == [(100, 559 + 100 + 700)]
    # A second interruption loses no checkpoint: the instance had just loaded its data (600 to 700).
    assert played(1, ((SLOW, 500), (SLOW, 650))).rounds == [(100, 650 + 100 + 100 + 300)]


def test_a_result_delivered_in_the_second_of_an_interruption_counts() -> None:
    outcome = played(1, ((FAST, 250),))
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
    assert [start_s for start_s, _ in bills_of(outcome, FAST)] == [0, 900]


def test_a_client_moves_to_another_offer_before_a_round() -> None:
    moving = Script({(Cause.ROUND, FAST): Placement(1), (Cause.FINISHED, FAST): Placement(0)})
    outcome = play(two_clients(2), moving, 0)
    bills = [bill for bill in outcome.bills if bill.client == FAST]
    # Moved at 800, ready at 900, trained until 1050, then sent back by its answer to FINISHED; the slow
    # client waited from 800 to 900.
    assert outcome.rounds == [(100, 800), (900, 1500)]
    assert bills[:2] == [Bill(FAST, 0, 0, 800, 0.08, False), Bill(FAST, 1, 800, 1050, 0.075, False)]


def test_a_short_instance_costs_the_minimum_and_an_early_interruption_nothing() -> None:
    short = played(1, ((FAST, 40),))
    assert short.bills[0][:4] == (FAST, 0, 0, 40)
    assert short.bills[0].usd == pytest.approx(0.006, abs=1e-12)
    free = played(1, ((FAST, 40),), free_first_s=3600)
    assert free.bills[0] == Bill(FAST, 0, 0, 40, 0.0, True)


def test_a_budget_ends_an_instance_in_the_last_second_it_pays() -> None:
    outcome = played(3, fast_budget_usd=0.13)
    # 0.0001 USD per second last 1300 s; its second result came at 900.
    assert outcome.exclusions == [Exclusion(FAST, 1300, 1, work_lost=False)]
    assert outcome.client_cost_usd(FAST) == pytest.approx(0.13, abs=1e-12)
    assert outcome.client_cost_usd(FAST) <= 0.13
    assert [epoch.round_index for epoch in outcome.epochs if epoch.client == SLOW] == [0, 1, 2]
    assert [epoch.round_index for epoch in outcome.epochs if epoch.client == FAST] == [0, 1]


def test_a_budget_that_ends_within_an_epoch_is_told_as_lost_work() -> None:
    outcome = played(3, fast_budget_usd=0.085)
    assert outcome.exclusions == [Exclusion(FAST, 850, 1, work_lost=True)]
    assert outcome.rounds == [(100, 800), (800, 1400), (1400, 2000)]


def test_the_application_ends_when_everybody_has_left() -> None:
    leaving = Script({(Cause.ROUND, SLOW): Leave(), (Cause.ROUND, FAST): Leave()})
    outcome = play(two_clients(3), leaving, 0)
    assert outcome.time_s == 800
    assert len(outcome.rounds) == 1


def test_a_changing_price_is_paid_second_by_second() -> None:
    offers = two_offers(tariff=Tariff([0, 1000, 1500], [0.36, 0.72, 0.0]))
    application = dataclasses.replace(two_clients(3), offers=offers)
    outcome = play(application, Script({}), 0)
    # 1000 s at 0.0001, 500 s at 0.0002, 500 s for nothing; twice.
    assert outcome.cost_usd == pytest.approx(2 * (0.10 + 0.10), abs=1e-12)
    assert outcome.accumulated_usd(FAST, 1250) == pytest.approx(0.15, abs=1e-12)


def test_falling_availability_interrupts_and_no_instance_starts_there() -> None:
    series = StepSeries(np.array([0, 300, 900]), np.array([1.0, 0.0, 1.0]))
    clients = (Client("only", 600, 700, 100, (0, 1)),)
    application = Application("gaps", 1, clients, two_offers(availability=series))
    with pytest.raises(InvalidAnswerError, match="spot is not available at 300 s"):
        play(application, Script({}), 0)
    outcome = play(application, Script({(Cause.INTERRUPTED, 0): Placement(0, 900)}), 0)
    # 200 s trained, 100 of them loading; one checkpoint of 60 s. On again at 900: 100 + 100 + 540 s.
    assert outcome.interruptions == [(0, 300)]
    assert outcome.time_s == 900 + 100 + 100 + 540
    moving = Script({(Cause.INTERRUPTED, 0): Placement(1), (Cause.FINISHED, 0): Placement(1)})
    moved = play(application, moving, 0)
    assert [bill.offer for bill in moved.bills] == [0, 1]


def test_answers_that_cannot_be_followed_are_refused() -> None:
    never = Script({(Cause.FINISHED, FAST): Placement(0, NEVER), (Cause.ROUND, FAST): Placement(0, NEVER)})
    with pytest.raises(InvalidAnswerError, match="round 2 waits for fast, which are never started"):
        play(two_clients(2), never, 0)
    with pytest.raises(InvalidAnswerError, match="slow may not rent offer 7"):
        play(two_clients(1), Script({(Cause.START, SLOW): Placement(7)}), 0)


def changed(**change: Any) -> Callable[[], Application]:
    return lambda: dataclasses.replace(two_clients(3), **change)


def client(
    warm_s: int, cold_s: int, spin_up_s: int, offers: tuple[int, ...], budget_usd: float | None = None
) -> Client:
    return Client("a", warm_s, cold_s, spin_up_s, offers, budget_usd)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (changed(rounds=0), "rounds is 0"),
        (changed(aggregation_s=-1), "aggregation_s is -1"),
        (changed(epoch_cv=float("nan")), "epoch_cv is nan"),
        (changed(checkpoint_s=0), "checkpoint_s is 0"),
        (changed(clients=()), "has no clients"),
        (changed(offers=()), "has no offers"),
        (changed(offers=(two_offers()[0],) * 2), "two offers are called 'spot'"),
        (changed(clients=(client(1, 1, 0, (5,)),)), "names the offers"),
        (changed(clients=(client(1, 1, 0, ()),)), "names the offers"),
        (changed(clients=(client(100, 100, 100, (0,), 0.0199),)), "its first round alone"),
        (changed(interruptions=(Interruption(9, 5),)), "names client 9"),
        (lambda: client(-1, 1, 0, (0,)), "epochs of -1 and 1 s"),
        (lambda: client(2, 1, 0, (0,)), "cold one not below the warm one"),
        (lambda: client(1, 1, -3, (0,)), "spin_up_s of client .* is -3"),
        (lambda: client(1, 1, 0, (0,), -1.0), "budget_usd of client .* is -1.0"),
        (lambda: Tariff([], []), "at least one"),
        (lambda: Tariff([0, 1], [1.0]), "as many times as values"),
        (lambda: Tariff([0, 0], [1.0, 2.0]), "must strictly increase"),
        (lambda: Tariff([0], [-1.0]), "-1.0 USD"),
        (lambda: Tariff([0], [float("nan")]), "not finite"),
    ],
)
def test_what_is_impossible_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_a_cold_and_a_warm_epoch_are_told_apart() -> None:
    known = RoundEstimates(2)
    assert known.epoch_s(0, cold=True) is None
    known.note_epoch(0, 150.0, cold=True)
    assert known.epoch_s(0, cold=True) == 150
    assert known.epoch_s(0, cold=False) == 0.8 * 150
    assert known.epoch_s(0, cold=False, warm_share=1.0) == 150
    assert known.cold_extra_s(0) is None
    known.note_epoch(0, 100.0, cold=False)
    known.note_epoch(0, 120.0, cold=False)
    assert known.measured_s(0, WARM_S) == 110
    assert known.cold_extra_s(0) == 40
    assert known.epoch_s(1, cold=False) is None


def test_the_weight_is_of_the_new_sample() -> None:
    known = RoundEstimates(1, weight=0.9)
    for seconds in (100.0, 200.0):
        known.note_epoch(0, seconds, cold=False)
    assert known.epoch_s(0, cold=False) == pytest.approx(190)


def test_the_error_is_that_of_the_slowest_other_client_and_of_starts() -> None:
    known = RoundEstimates(3)
    assert known.error_s(-1) == 0
    for seconds in (100.0, 103.0):
        known.note_epoch(0, seconds, cold=False)
    for seconds in (500.0, 530.0, 515.0):
        known.note_epoch(1, seconds, cold=False)
    # 30 s off, then exactly as expected.
    slow = 30 * (1 - ERROR_WEIGHT)
    assert known.error_s(0) == pytest.approx(slow)
    assert known.error_s(1) == pytest.approx(3)
    known.note_spin_up(2, 60.0)
    assert known.error_s(1) == pytest.approx(3)
    known.note_spin_up(2, 64.0)
    assert known.error_s(1) == pytest.approx(5)


def test_an_epoch_that_outlasts_its_estimate_goes_on_for_a_while() -> None:
    assert epoch_left_s(100.0, 30.0, True) == 70
    assert epoch_left_s(100.0, 200.0, True) == OVERDUE_SHARE * 200
    assert epoch_left_s(100.0, 20.0, False) == 80
    assert epoch_left_s(100.0, 90.0, False) == UNSEEN_SHARE * 90


def test_slack_is_until_the_latest_start_in_time() -> None:
    # Its epoch of 50 s must end in 300 s and begins 40 s after the request.
    assert slack_s(True, 300.0, 500.0, 40.0, 50.0) == 210
    # It works for the next round, which begins in 300 s and lasts 500 s.
    assert slack_s(False, 300.0, 500.0, 40.0, 50.0) == 710
    # An epoch longer than the round cannot begin before the round does.
    assert slack_s(False, 300.0, 500.0, 40.0, 900.0) == 260


@pytest.mark.parametrize(("slack", "after"), [(-50.0, 15), (40.0, 20), (900.0, 450), (9000.0, 600)])
def test_half_of_the_slack_within_bounds(slack: float, after: float) -> None:
    assert ask_again_s(slack) == after


# Laws that every application of synchronous rounds obeys, whatever its policy decides.


ON = (State.SPIN_UP, State.IDLE, State.TRAINING)


@st.composite
def tariffs(draw: st.DrawFn) -> Tariff:
    gaps = draw(st.lists(st.integers(1, 2000), max_size=4))
    prices = draw(st.lists(st.floats(0.01, 3), min_size=len(gaps) + 1, max_size=len(gaps) + 1))
    return Tariff([0, *np.cumsum(gaps).tolist()], prices)


@st.composite
def applications(draw: st.DrawFn, budgets: bool = True) -> Application:
    offers = [Offer("on-demand", "a", Market.ON_DEMAND, draw(tariffs()))]
    for k in range(draw(st.integers(1, 2))):
        gap = draw(st.none() | st.integers(1, 3000))
        series = None if gap is None else StepSeries(np.array([0, gap, gap + 200]), np.array([1.0, 0.0, 1.0]))
        mean = draw(st.none() | st.floats(300, 5000))
        offers.append(Offer(f"spot {k}", "a", Market.SPOT, draw(tariffs()), mean, series))
    clients = []
    for k in range(draw(st.integers(1, 4))):
        warm, extra, spin_up = (
            draw(st.integers(least, most)) for least, most in ((1, 600), (0, 200), (0, 200))
        )
        most = 3 * (warm + extra + spin_up + 60) / 3600
        budget = draw(st.none() | st.floats(most, 10 * most)) if budgets else None
        clients.append(Client(f"client {k}", warm, warm + extra, spin_up, tuple(range(len(offers))), budget))
    return Application(
        "drawn",
        draw(st.integers(1, 5)),
        tuple(clients),
        tuple(offers),
        aggregation_s=draw(st.integers(0, 30)),
        start_together=draw(st.booleans()),
        checkpoint_s=draw(st.none() | st.integers(1, 100)),
        epoch_cv=draw(st.sampled_from([0.0, 0.2])),
        spin_up_cv=draw(st.sampled_from([0.0, 0.3])),
        billing_minimum_s=draw(st.sampled_from([0, 60])),
        free_first_s=draw(st.sampled_from([0, 0, 600])),
    )


POLICIES: list[Callable[[int], RoundScheduler]] = [
    RandomPolicy,
    lambda seed: FedCostAware(),
    lambda seed: FedCostAware(threshold_s=0, buffer_s=0, whole_round_budget=True),
    lambda seed: AlwaysOn(Market.SPOT),
    lambda seed: AlwaysOn(Market.ON_DEMAND),
]


def check_states(outcome: Outcome) -> None:
    """States follow each other without gaps; what is on is exactly what is billed."""
    for client, spans in enumerate(outcome.spans):
        edges = [0, *(span.end_s for span in spans)]
        assert [span.start_s for span in spans] == edges[:-1]
        assert edges[-1] == outcome.time_s
        on = sum(outcome.seconds_in(client, state) for state in ON)
        bills = [bill for bill in outcome.bills if bill.client == client]
        assert on == sum(bill.end_s - bill.start_s for bill in bills)
        for before, after in pairwise(bills):
            assert before.end_s <= after.start_s
        for span in spans:
            covering = [b for b in bills if b.start_s <= span.start_s and span.end_s <= b.end_s]
            assert len(covering) == (1 if span.state in ON else len(covering))
            if span.state not in ON:
                assert not any(b.start_s < span.end_s and span.start_s < b.end_s for b in bills)


def check_money(outcome: Outcome) -> None:
    """Each bill is the sum of the prices of its seconds; nobody pays more than the budget."""
    application = outcome.application
    for bill in outcome.bills:
        if bill.by_provider and bill.end_s - bill.start_s < application.free_first_s:
            assert bill.usd == 0
            continue
        end_s = max(bill.end_s, bill.start_s + application.billing_minimum_s)
        tariff = application.offers[bill.offer].tariff
        by_hand = sum(tariff.usd_hour(second) for second in range(bill.start_s, end_s)) / 3600
        assert bill.usd == pytest.approx(by_hand, abs=1e-9)
    for client, given_client in enumerate(application.clients):
        cost = outcome.client_cost_usd(client)
        assert cost == pytest.approx(outcome.accumulated_usd(client, outcome.time_s), abs=1e-12)
        if given_client.budget_usd is not None:
            assert cost <= given_client.budget_usd


def check_rounds(outcome: Outcome, seed: int) -> None:
    """Every client delivers every round once, until it leaves; nobody delivers faster than it can train."""
    application = outcome.application
    delivered = Counter((epoch.client, epoch.round_index) for epoch in outcome.epochs)
    assert all(count == 1 for count in delivered.values())
    left = {item.client: item for item in outcome.exclusions}
    for client in range(len(application.clients)):
        rounds = sorted(r for c, r in delivered if c == client)
        assert rounds == list(range(len(rounds)))
        if client not in left:
            assert len(rounds) == application.rounds
    if len(left) < len(application.clients):
        assert len(outcome.rounds) == application.rounds
    previous_s = 0
    for number, (begin_s, end_s) in enumerate(outcome.rounds):
        ends = [epoch.end_s for epoch in outcome.epochs if epoch.round_index == number]
        assert previous_s <= begin_s
        # A client that left within the round may have been the last one that it waited for.
        losses = [i.time_s for i in outcome.exclusions if i.round_index == number and i.work_lost]
        assert end_s == max(ends + losses)
        previous_s = end_s
    draws = Draws(application, seed)
    for client, spans in enumerate(outcome.spans):
        trained = sum(span.end_s - span.start_s for span in spans if span.state is State.TRAINING)
        assert trained >= sum(draws.warm_s[client][r] for c, r in delivered if c == client)


@pytest.mark.real
@settings(max_examples=150)
@given(applications(), st.sampled_from(POLICIES), st.integers(0, 1000))
def test_money_states_and_rounds_are_conserved(
    application: Application, policy: Callable[[int], RoundScheduler], seed: int
) -> None:
    outcome = play(application, policy(seed), seed)
    check_states(outcome)
    check_money(outcome)
    check_rounds(outcome, seed)


@settings(max_examples=40)
@given(applications(budgets=False), st.integers(0, 1000))
def test_decisions_change_no_draw(application: Application, seed: int) -> None:
    """However often the spin-ups and interruptions are asked for, and in which order, they are the same."""
    plain, asked = Draws(application, seed), Draws(application, seed)
    for client in reversed(range(len(application.clients))):
        for offer in reversed(range(len(application.offers))):
            asked.next_interruption_s(client, offer, 20_000)
        asked.spin_up_s(client, 0, 3)
    for client in range(len(application.clients)):
        assert plain.spin_up_s(client, 0, 3) == asked.spin_up_s(client, 0, 3)
        for offer in range(len(application.offers)):
            first_s = plain.next_interruption_s(client, offer, 10)
            assert first_s == asked.next_interruption_s(client, offer, 10)


def test_times_vary_around_their_means() -> None:
    offers = (Offer("a", "a", Market.SPOT, Tariff.constant(1), mean_time_to_interruption_s=1000.0),)
    application = Application(
        "means", 4000, (Client("only", 500, 700, 200, (0,)),), offers, epoch_cv=0.2, spin_up_cv=0.3
    )
    draws = Draws(application, 1)
    warm = np.array(draws.warm_s[0])
    assert warm.mean() == pytest.approx(500, rel=0.01)
    assert warm.std() / warm.mean() == pytest.approx(0.2, rel=0.05)
    assert np.array(draws.cold_s[0]).mean() == pytest.approx(700, rel=0.01)
    spin_ups = np.array([draws.spin_up_s(0, r, attempt) for r in range(4000) for attempt in (0, 1)])
    assert spin_ups.mean() == pytest.approx(200, rel=0.01)
    assert spin_ups.std() / spin_ups.mean() == pytest.approx(0.3, rel=0.05)
    gaps, now = [], 0
    for _ in range(4000):
        after = draws.next_interruption_s(0, 0, now)
        assert after is not None
        gaps.append(after - now)
        now = after
    assert np.mean(gaps) == pytest.approx(1000, rel=0.05)
    assert np.std(gaps) == pytest.approx(1000, rel=0.05)
