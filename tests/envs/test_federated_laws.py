"""Laws of federated applications as decisions, whatever is drawn and whatever is chosen."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotweave.agents.federated.cost import RoundCost, RoundParameters
from spotweave.agents.federated.rules.always_on import AlwaysOn
from spotweave.agents.named import named_rule, question_rules
from spotweave.envs.federated_episodes import FederatedConfig, build_federated, federated_source
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.federations import observation
from spotweave.envs.simulation.federations.rounds.application import SERVER, Application, Market, Tariff
from spotweave.envs.simulation.federations.rounds.decisions import Outcome
from spotweave.envs.simulation.federations.rounds.world import play
from spotweave.envs.simulation.federations.world import FederatedWorld
from spotweave.envs.simulation.series import StepSeries
from spotweave.envs.simulation.streams import episode_sequence
from spotweave.envs.simulation.world import EpisodeKey
from tests.envs.checks import by_policy
from tests.envs.federated_cases import (
    FAST,
    KEY,
    NONE,
    SPOT,
    play_at_random,
    play_policy,
    two_clients,
    world_of,
)
from tests.envs.test_rounds_server import federated
from tests.envs.test_rounds_stories import applications, check_money, check_rounds, check_states

ROOT = episode_sequence(KEY.seed, KEY.split, KEY.index)
ZONES = FederatedConfig(market="zones", rounds_most=8)
LANES = 100
"""As deep as decisions are tried out."""


def laws(world: FederatedWorld, rule: str, seed: int) -> tuple[Outcome, Mapping[str, float]]:
    """Plays the episode by a rule, or at random, and checks what holds in all of them."""
    world.reset([KEY])
    reward = play_at_random(world, seed) if rule == "random" else by_policy(world, named_rule(rule))
    outcome, metrics = world.outcome(0, rule), world.metrics(0)
    check_states(outcome)
    assert metrics["cost_usd"] == pytest.approx(outcome.cost_usd, abs=1e-9)
    assert reward == pytest.approx(-metrics["cost_index"], abs=1e-6)
    return outcome, metrics


@pytest.mark.real
@settings(max_examples=100)
@given(
    applications(),
    st.integers(0, 1000),
    st.sampled_from(["random", *question_rules("federated")]),
    st.booleans(),
)
def test_every_round_is_done_every_bill_counts_and_no_budget_is_exceeded(
    application: Application, seed: int, rule: str, measured: bool
) -> None:
    world = world_of(application, measured=measured)
    outcome, metrics = laws(world, rule, seed)
    assert not world.truncated(0)
    check_money(outcome)
    check_rounds(outcome, ROOT)  # type: ignore[arg-type]
    assert metrics["time_min"] == pytest.approx(outcome.time_s / 60)
    if metrics["left"] < len(application.clients):
        assert metrics["rounds_lost"] == 0
    assert not world.observation["action_mask"].any()


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.sampled_from([SERVER, 0, 1]), st.integers(1, 600)), max_size=4),
    st.integers(0, 1000),
    st.sampled_from(["random", *question_rules("federated")]),
)
def test_the_same_with_a_server_and_messages(
    interruptions: list[tuple[int, int]], seed: int, rule: str
) -> None:
    _, metrics = laws(world_of(federated(tuple(interruptions))), rule, seed)
    assert metrics["rounds_lost"] == metrics["left"] == 0


@settings(max_examples=60)
@given(applications(budgets=False), st.sampled_from(list(Market)))
def test_always_on_is_the_planner_of_the_paper_to_the_last_bill(
    application: Application, market: Market
) -> None:
    """Where its market always has something: else the planner waits for it, and the rule takes the other."""
    tariffs = [Tariff.constant(round(offer.tariff.usd_hour(0), 2)) for offer in application.offers]
    offers = tuple(
        dataclasses.replace(offer, availability=None, tariff=tariff)
        for offer, tariff in zip(application.offers, tariffs, strict=True)
    )
    application = dataclasses.replace(application, offers=offers, start_together=False)
    planner, world = AlwaysOn(market), world_of(application)
    play_policy(world, planner)
    assert world.outcome(0, planner.name) == play(application, planner, ROOT)


@pytest.mark.parametrize("market", list(Market))
def test_always_on_is_the_planner_with_a_server_too(market: Market) -> None:
    world, planner = build_federated(FederatedConfig(scenario="til", measured=True)), AlwaysOn(market)
    play_policy(world, planner)
    assert world.outcome(0, planner.name) == play(world.source.application(KEY), planner, ROOT)


def test_a_scenario_begins_each_client_when_it_is_ready() -> None:
    application = federated_source(FederatedConfig(scenario="mnist")).application(KEY)
    assert not application.start_together
    assert application.rounds > 1


@pytest.mark.parametrize(
    "change", [{"aggregation_s": 9}, {"rounds": 3}, {"checkpoint_s": None}, {"interruptions": ((0, 50),)}]
)
def test_another_application_has_another_fingerprint(change: dict[str, object]) -> None:
    given = {"rounds": 2, **change}
    world, other = world_of(two_clients(2)), world_of(two_clients(**given))  # type: ignore[arg-type]
    assert world.fingerprint(KEY) != other.fingerprint(KEY)


def test_drawn_applications_keep_to_their_ranges_and_their_split() -> None:
    config = dataclasses.replace(ZONES, clients_least=3, clients_most=4, rounds_least=6, budget_share=0.5)
    source = federated_source(config)
    data = source.data  # type: ignore[attr-defined]
    applications = [source.application(EpisodeKey(5, "validation", index)) for index in range(40)]
    assert {len(application.clients) for application in applications} == {3, 4}
    assert {application.rounds for application in applications} == {6, 7, 8}
    budgeted = [application.clients[0].budget_usd is not None for application in applications]
    assert 5 < sum(budgeted) < 35
    start, end = data.splits["validation"]
    for application in applications:
        assert len(application.offers) == source.n_offers
        recorded = [offer.availability for offer in application.offers if offer.availability is not None]
        # Nothing from outside the split: neither its past nor its future.
        assert all(series.times_s[-1] - series.times_s[0] < end - start for series in recorded)
    mixed = federated_source(FederatedConfig(market="mixed"))
    kinds = {len(mixed.application(EpisodeKey(0, "train", k)).offers) for k in range(20)}
    assert kinds == {2, source.n_offers}


def test_recorded_zones_are_shown_as_they_were_recorded() -> None:
    """Availability and its past, at the moment of a question, against a look at the record itself."""
    source = federated_source(ZONES)
    world = build_federated(ZONES)
    for index in range(5):
        key = EpisodeKey(2, "test", index)
        world.reset([key])
        offers = source.application(key).offers
        for row, offer in enumerate(offers):
            shown = world.observation["clusters"][0, row]
            assert shown[col.PRICE_USD_HOUR] == pytest.approx(offer.tariff.usd_hour(0))
            assert shown[col.AVAILABLE] == float(offer.available(0))
            series = offer.availability
            if series is None:
                assert shown[col.IS_SPOT] == 0
                continue
            begin = max(-86_400, int(series.times_s[0]))
            seconds = np.arange(begin, 0)
            up = series.values[np.searchsorted(series.times_s, seconds, side="right") - 1]
            if len(up):
                assert shown[col.UP_RATIO] == pytest.approx((up > 0).mean(), abs=1e-6)


@settings(max_examples=150)
@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=12),
    st.lists(st.booleans(), min_size=13, max_size=13),
    st.integers(-200, 100),
    st.integers(-210, 500),
)
def test_uptime_against_brute_force(gaps: list[int], ups: list[bool], first: int, now_s: int) -> None:
    times = np.cumsum([first, *gaps])
    values = np.array(ups[: len(times)], np.float64)
    day_s, week_s = 50, 170
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(observation, "DAY_S", day_s)
        patch.setattr(observation, "WEEK_S", week_s)
        past = observation.Uptime(StepSeries(times, values))
        ratio, spell_s, mean_s = past.ratio(now_s), past.spell_s(now_s), past.mean_up_s(now_s)
        now_up = past.up(now_s)

    def state(second: int) -> bool:
        return bool(values[max(0, int(np.searchsorted(times, second, side="right")) - 1)])

    assert now_up == state(now_s)
    day = [state(second) for second in range(max(first, now_s - day_s), now_s)]
    assert ratio == pytest.approx(np.mean(day) if day else float(now_up))
    changes = [int(t) for t in times[1:] if t <= now_s and state(int(t)) != state(int(t) - 1)]
    assert spell_s == max(0, now_s - max([first, *changes]))
    week = [state(second) for second in range(max(first, now_s - week_s), now_s)]
    begun = sum(b and not a for a, b in pairwise([False, *week]))
    # A spell that begins this very second has no length yet, but it has begun.
    begun += bool(now_up and now_s >= first and (not week or not week[-1]))
    assert mean_s == pytest.approx(sum(week) / begun if begun else 0.0)


def best_cost_usd(rounds: int) -> float:
    """The fast client of `two_clients` in steps of whole epochs: at its round's beginning or end.

    It may be kept or released in between; nothing else can be cheaper, as an epoch in the middle of a round
    needs a start of its own, or waits at least as long.
    """
    usd_s, launch_s, cold_s, warm_s = 0.0001, 100, 150, 100
    # State when a round begins: on (ready) or off; seconds paid so far. The slow one's first round is 800 s.
    least = {False: 0.0}
    for number in range(rounds):
        length_s = 800 if number == 0 else 600
        after: dict[bool, float] = {}
        for on, paid in least.items():
            options = [(False, launch_s + cold_s), (True, launch_s + cold_s)]  # late; ready at the end
            options += [(True, launch_s + cold_s + length_s - launch_s - cold_s)]  # early and kept
            if on:
                options += [(False, warm_s), (True, length_s)]
            for end, seconds in options:
                after[end] = min(after.get(end, float("inf")), paid + seconds)
        least = after
    return min(least.values()) * usd_s


@pytest.mark.parametrize("rounds", [2, 3, 4, 7])
def test_the_late_start_rule_starts_once_for_two_rounds(rounds: int) -> None:
    world = world_of(two_clients(rounds), measured=True)
    parameters = RoundParameters()
    play_policy(world, RoundCost(parameters))
    outcome = world.outcome(0, "round_cost")
    bills = [bill for bill in outcome.bills if bill.client == FAST]
    starts = -(-rounds // 2)
    assert len(bills) == starts
    assert outcome.time_s == 800 + 600 * (rounds - 1)
    # An even number of rounds: (100 + 150 + 100) s for every two; the rest is what is kept in reserve.
    expected = 0.0001 * (350 * (rounds // 2) + 250 * (rounds % 2))
    assert best_cost_usd(rounds) == pytest.approx(expected)
    reserve_s = parameters.buffer_s + parameters.buffer_launch * 100 + 1
    assert expected <= outcome.client_cost_usd(FAST) <= expected + starts * reserve_s * 0.0001


@pytest.mark.real
def test_no_sequence_of_decisions_is_better_than_the_rule() -> None:
    """All sequences of keep, start and wait of the fast client over two rounds, through the world itself."""
    world = world_of(two_clients(2), lanes=LANES, measured=True)
    world.reset([KEY] * LANES)
    best, played = float("inf"), 0

    def follow(depth: int, action: int) -> None:
        nonlocal best, played
        lane = np.zeros(LANES, np.bool_)
        lane[depth] = True
        actions = np.full(LANES, action)
        _, done = world.step(actions, lane)
        # The slow client always stays.
        while not done[depth] and world._lanes[depth].question.client != FAST:  # type: ignore[union-attr]
            _, done = world.step(np.full(LANES, SPOT), lane)
        if done[depth]:
            played += 1
            best = min(best, world.metrics(depth)["cost_index"])
            return
        # Money and time only grow.
        if world.metrics(depth)["cost_index"] >= best:
            return
        for choice in np.flatnonzero(world.observation["action_mask"][depth])[[0, -1]]:
            world.copy_lanes(np.array([depth]), np.array([depth + 1]))
            follow(depth + 1, int(choice))

    follow(0, SPOT)
    rule = world_of(two_clients(2), measured=True)
    play_policy(rule, RoundCost())
    assert played > 20
    # The reserve of 28 s before the latest start costs 0.0028 of 0.84 USD that the reference costs.
    assert best <= rule.metrics(0)["cost_index"] <= best + 100 * 0.0029 / 0.84
    assert world.source.n_offers == NONE


def test_the_timeline_holds_every_instance() -> None:
    world = world_of(two_clients(2, ((FAST, 230),)))
    play_policy(world, named_rule("always_spot"))
    timeline = world.timeline(0)
    bills = world.outcome(0, "spot").bills
    assert sorted((s.job, s.cluster, s.start, s.end) for s in timeline.segments) == sorted(
        (bill.client, bill.offer, bill.start_s, bill.end_s) for bill in bills
    )
    assert timeline.interruptions == ((230.0, 0),)
    assert timeline.used[0].at(100) == 2
    assert timeline.price_usd_hour[1].at(500) == pytest.approx(1.08)
