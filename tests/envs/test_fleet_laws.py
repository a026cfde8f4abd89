"""Laws of several federated applications on shared quotas, whatever their policies decide."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.federated.mapping.claims import cheapest_claim
from agents.federated.rules.always_on import AlwaysOn
from agents.federated.rules.fed_cost_aware import FedCostAware
from envs.simulation.federations.fleet.calendar import begun_at
from envs.simulation.federations.fleet.fleet import Entrant, Played, play_fleet
from envs.simulation.federations.fleet.quotas import SharedQuota, instances_of
from envs.simulation.federations.rounds.application import Application, Market
from envs.simulation.federations.rounds.decisions import RoundScheduler
from envs.simulation.federations.rounds.world import play
from tests.envs.rounds_cases import RandomPolicy
from tests.envs.test_rounds_laws import applications, check_money, check_rounds, check_states

POLICIES: list[tuple[Market, Callable[[int], RoundScheduler]]] = [
    (Market.ON_DEMAND, RandomPolicy),
    (Market.SPOT, lambda seed: FedCostAware()),
    (Market.SPOT, lambda seed: FedCostAware(threshold_s=0, buffer_s=0)),
    (Market.SPOT, lambda seed: AlwaysOn(Market.SPOT)),
    (Market.ON_DEMAND, lambda seed: AlwaysOn(Market.ON_DEMAND)),
]
NAMES = ("on-demand", "spot 0", "spot 1")


@dataclass
class Case:
    """What is drawn: entrants, how their policies are made, and quotas that each of them fits into alone."""

    entrants: list[Entrant]
    policies: list[Callable[[int], RoundScheduler]]
    quotas: tuple[SharedQuota, ...]

    def play(self) -> list[Played]:
        made = [make(number) for number, make in enumerate(self.policies)]
        return play_fleet(self.entrants, made, self.quotas)


@st.composite
def cases(draw: st.DrawFn, most: int = 4) -> Case:
    chosen = draw(st.lists(applications(), min_size=1, max_size=most))
    kinds = [draw(st.sampled_from(POLICIES)) for _ in chosen]
    largest = max(len(application.clients) for application in chosen)
    limit = largest + draw(st.integers(0, 3))
    quotas = [SharedQuota("machines", limit, dict.fromkeys(NAMES, 1.0))]
    if draw(st.booleans()):
        quotas.append(instances_of("on-demand", largest + draw(st.integers(0, 2))))
    if draw(st.booleans()):
        quotas.append(SharedQuota("spot", 2 * limit, {"spot 0": 1, "spot 1": 2}))
    entrants = [
        Entrant(
            application,
            draw(st.integers(0, 100)),
            cheapest_claim(application, quotas, market),
            draw(st.integers(0, 3000)),
            draw(st.booleans()),
        )
        for application, (market, _) in zip(chosen, kinds, strict=True)
    ]
    return Case(entrants, [make for _, make in kinds], tuple(quotas))


def check_quotas(played: Sequence[Played], quotas: Sequence[SharedQuota]) -> None:
    """At no second is more rented than a quota allows. Instances end before others begin."""
    for quota in quotas:
        changes = []
        for item in played:
            offers = item.outcome.application.offers
            for bill in item.outcome.bills:
                amount = quota.amounts.get(offers[bill.offer].name, 0)
                if bill.end_s > bill.start_s:
                    changes += [(item.begun_s + bill.start_s, amount), (item.begun_s + bill.end_s, -amount)]
        used = 0.0
        for _, amount in sorted(changes):
            used += amount
            assert used <= quota.limit
        assert used == 0


@pytest.mark.real
@settings(deadline=None, max_examples=250)
@given(cases())
def test_no_quota_is_exceeded_and_every_application_ends(case: Case) -> None:
    played = case.play()
    check_quotas(played, case.quotas)
    for item, entrant in zip(played, case.entrants, strict=True):
        assert item.begun_s >= item.start_s == entrant.start_s
        check_states(item.outcome)
        check_money(item.outcome)
        assert isinstance(entrant.root, int)
        check_rounds(item.outcome, entrant.root)


@pytest.mark.real
@settings(deadline=None, max_examples=60)
@given(cases())
def test_the_same_fleet_gives_the_same(case: Case) -> None:
    once, again = case.play(), case.play()
    assert [item.begun_s for item in once] == [item.begun_s for item in again]
    for item, other in zip(once, again, strict=True):
        # Prices counted from a later second are made again for each play.
        assert item.outcome == dataclasses.replace(other.outcome, application=item.outcome.application)


@pytest.mark.real
@settings(deadline=None, max_examples=60)
@given(cases())
def test_without_shared_quotas_each_is_as_if_it_were_alone(case: Case) -> None:
    case.quotas = ()
    for number, (item, entrant) in enumerate(zip(case.play(), case.entrants, strict=True)):
        assert item.begun_s == entrant.start_s
        alone = play(
            begun_at(entrant.application, entrant.start_s), case.policies[number](number), entrant.root
        )
        assert (item.outcome.bills, item.outcome.spans) == (alone.bills, alone.spans)
        assert (item.outcome.rounds, item.outcome.epochs) == (alone.rounds, alone.epochs)
        assert item.outcome.questions == alone.questions


@settings(deadline=None, max_examples=60)
@given(cases(most=1))
def test_a_fleet_of_one_is_the_application(case: Case) -> None:
    """One instance takes one of each client's place, so the quotas, which fit them all, are never felt."""
    case.quotas = case.quotas[:1]
    (item,) = case.play()
    (entrant,) = case.entrants
    alone = play(begun_at(entrant.application, entrant.start_s), case.policies[0](0), entrant.root)
    assert item.begun_s == entrant.start_s
    assert (item.outcome.bills, item.outcome.spans) == (alone.bills, alone.spans)
    assert (item.outcome.rounds, item.outcome.epochs) == (alone.rounds, alone.epochs)
    assert (item.outcome.time_s, item.outcome.questions) == (alone.time_s, alone.questions)


@pytest.mark.real
@settings(deadline=None, max_examples=60)
@given(applications(), st.lists(st.integers(0, 5), min_size=2, max_size=4), st.integers(0, 3), st.randoms())
def test_the_order_of_equal_applications_does_not_matter(
    application: Application, starts: list[int], more: int, shuffler: random.Random
) -> None:
    """Equal but for their starts, those that start together have the same draws as well."""
    quotas = (SharedQuota("machines", len(application.clients) + more, dict.fromkeys(NAMES, 1.0)),)
    claim = cheapest_claim(application, quotas, Market.SPOT)

    def results(starts: list[int]) -> list[tuple[int, int, int, float]]:
        entrants = [Entrant(application, start, claim, 400 * start) for start in starts]
        played = play_fleet(entrants, [FedCostAware() for _ in entrants], quotas)
        return sorted((item.start_s, item.begun_s, item.end_s, item.outcome.cost_usd) for item in played)

    shuffled = shuffler.sample(starts, len(starts))
    assert results(starts) == results(shuffled)
