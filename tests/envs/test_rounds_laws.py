"""Laws that every application of synchronous rounds obeys, whatever its policy decides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.federated.rules.always_on import AlwaysOn
from agents.federated.rules.fed_cost_aware import FedCostAware
from envs.simulation.federations.rounds.application import Application, Client, Market, Offer
from envs.simulation.federations.rounds.decisions import RoundScheduler, State
from envs.simulation.federations.rounds.draws import Draws
from envs.simulation.federations.rounds.history import Outcome
from envs.simulation.federations.rounds.tariff import Tariff
from envs.simulation.federations.rounds.world import play
from envs.simulation.series import StepSeries
from tests.envs.federated_cases import RandomPolicy

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
@settings(deadline=None, max_examples=150)
@given(applications(), st.sampled_from(POLICIES), st.integers(0, 1000))
def test_money_states_and_rounds_are_conserved(
    application: Application, policy: Callable[[int], RoundScheduler], seed: int
) -> None:
    outcome = play(application, policy(seed), seed)
    check_states(outcome)
    check_money(outcome)
    check_rounds(outcome, seed)


@settings(deadline=None, max_examples=40)
@given(applications(), st.sampled_from(POLICIES), st.integers(0, 1000))
def test_the_same_seed_gives_the_same_application(
    application: Application, policy: Callable[[int], RoundScheduler], seed: int
) -> None:
    assert play(application, policy(seed), seed) == play(application, policy(seed), seed)


@settings(deadline=None, max_examples=40)
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
