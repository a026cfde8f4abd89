"""Several federated applications on shared quotas: stories computed by hand, and the ledger's promise."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from agents.federated.mapping.claims import cheapest_claim
from agents.federated.renting import rent_at
from agents.federated.rules.always_on import AlwaysOn
from envs.simulation.federations.fleet.calendar import begun_at
from envs.simulation.federations.fleet.fleet import Entrant, Fleet, Played, play_fleet
from envs.simulation.federations.fleet.ledger import Ledger, Share
from envs.simulation.federations.fleet.quotas import SharedQuota, instances_of, quotas_of
from envs.simulation.federations.rounds.application import Application, Client, Market, Offer
from envs.simulation.federations.rounds.decisions import NEVER, Answer, Cause, Question, RoundScheduler
from envs.simulation.federations.rounds.history import Bill
from envs.simulation.federations.rounds.running import RunningApplication
from envs.simulation.federations.rounds.server import Degradation, Quota
from envs.simulation.federations.rounds.tariff import Tariff
from envs.simulation.series import StepSeries
from tests.envs.rounds_cases import FAST, SLOW, two_clients, two_offers

GPUS = SharedQuota("gpus", 2, {"spot": 1, "on-demand": 1})


class Releasing(AlwaysOn):
    """Always on, but the fast client's instance is released after the first round, until 700 s."""

    def decide(self, question: Question, view: RunningApplication) -> Answer:
        if question == (Cause.FINISHED, FAST) and view.round_index == 0:
            return rent_at(view, FAST, Market.SPOT, 700)
        return super().decide(question, view)


def one_client(epoch_s: int, cold_s: int) -> Application:
    return Application("one client", 1, (Client("only", epoch_s, cold_s, 100, (0, 1)),), two_offers())


def entrant(application: Application, start_s: int = 0, reserve: bool = False) -> Entrant:
    return Entrant(application, 0, cheapest_claim(application, (), Market.SPOT), start_s, reserve)


def run(
    entrants: list[Entrant], quotas: tuple[SharedQuota, ...], first: RoundScheduler | None = None
) -> list[Played]:
    policies = [AlwaysOn(Market.SPOT) for _ in entrants]
    return play_fleet(entrants, [first or policies[0], *policies[1:]], quotas)


def test_the_second_waits_until_the_first_has_released_its_gpus() -> None:
    """Given two GPUs and two applications of two clients that both want to run, one follows the other.

    Alone each takes 100 s of spin-up, a cold round of 700 s and a warm one of 600 s: 1400 s.
    """
    first, second = run([entrant(two_clients(2)), entrant(two_clients(2), start_s=100)], (GPUS,))
    assert (first.begun_s, first.waited_s, first.end_s) == (0, 0, 1400)
    assert (second.begun_s, second.waited_s, second.end_s) == (1400, 1300, 2800)
    # Two spot instances of 0.36 USD/h for 1400 s each; waiting to begin costs nothing.
    assert first.outcome.cost_usd == pytest.approx(0.28)
    assert second.outcome.cost_usd == pytest.approx(0.28)


def test_both_run_at_once_where_the_quota_has_room() -> None:
    four = SharedQuota("gpus", 4, GPUS.amounts)
    first, second = run([entrant(two_clients(2)), entrant(two_clients(2), start_s=100)], (four,))
    assert (first.end_s, second.begun_s, second.end_s) == (1400, 100, 1500)


def test_what_one_releases_between_rounds_another_rents() -> None:
    """The fast client is released at 250 s until 700 s; an application of 250 s fits into the gap."""
    first, second = run(
        [entrant(two_clients(2)), entrant(one_client(100, 150), start_s=50)],
        (GPUS,),
        Releasing(Market.SPOT),
    )
    assert (second.begun_s, second.end_s) == (250, 500)
    # Back at 700 s, ready at 800 s, when the slow client has delivered: nothing is lost.
    assert first.end_s == 1400
    assert [bill[:4] for bill in first.outcome.bills if bill.client == FAST] == [
        (FAST, 0, 0, 250),
        (FAST, 0, 700, 1400),
    ]


def test_who_comes_back_too_late_is_asked_again_when_the_place_is_free() -> None:
    """The other one needs 800 s, so the place is free at 1050 s, between two tries at 1000 s and 1060 s."""
    first, second = run(
        [entrant(two_clients(2)), entrant(one_client(600, 700), start_s=50)],
        (GPUS,),
        Releasing(Market.SPOT),
    )
    assert (second.begun_s, second.end_s) == (250, 1050)
    bills = [bill for bill in first.outcome.bills if bill.client == FAST]
    assert bills[1][:4] == (FAST, 0, 1050, 1750)
    # The slow client waits from 800 s until 1150 s, then both train the second round: 600 s.
    assert first.outcome.rounds == [(100, 800), (1150, 1750)]
    assert first.outcome.cost_usd == pytest.approx(1e-4 * (1750 + 250 + 700))


def test_a_reserved_place_is_kept_while_it_is_released() -> None:
    first, second = run(
        [entrant(two_clients(2), reserve=True), entrant(one_client(100, 150), start_s=50)],
        (GPUS,),
        Releasing(Market.SPOT),
    )
    assert first.end_s == 1400
    assert second.begun_s == 1400


def test_a_small_application_may_begin_before_a_large_one_that_waits() -> None:
    three = SharedQuota("gpus", 3, GPUS.amounts)
    first, large, small = run(
        [
            entrant(two_clients(2)),
            entrant(two_clients(2), start_s=10),
            entrant(one_client(100, 150), start_s=20),
        ],
        (three,),
    )
    assert (first.end_s, small.begun_s, large.begun_s) == (1400, 20, 1400)


def test_who_came_first_begins_first_whatever_the_order_of_the_list() -> None:
    late, early = run([entrant(two_clients(2), start_s=60), entrant(two_clients(2), start_s=50)], (GPUS,))
    assert (early.begun_s, late.begun_s) == (50, 1450)


def test_instances_of_one_offer_can_be_limited() -> None:
    """One spot instance: the second client is placed on demand, where the policy may go there."""

    class Anywhere(AlwaysOn):
        def decide(self, question: Question, view: RunningApplication) -> Answer:
            self._market = Market.SPOT if view.available(0) else Market.ON_DEMAND
            return super().decide(question, view)

    application = two_clients(1)
    (played,) = play_fleet(
        [Entrant(application, 0, {SLOW: 0, FAST: 1})], [Anywhere(Market.SPOT)], (instances_of("spot", 1),)
    )
    assert {bill.client: bill.offer for bill in played.outcome.bills} == {SLOW: 0, FAST: 1}


def test_nobody_is_granted_what_would_leave_two_waiting_for_each_other() -> None:
    """Given two GPUs and two applications that need both, one holding one of them, the other gets none."""
    ledger = Ledger((GPUS,))
    one, other = (Share(ledger, two_clients(1), {SLOW: 0, FAST: 0}) for _ in range(2))
    ledger.begun += [one, other]
    one.begin(SLOW, 0)
    assert not other.allow(SLOW, 0)
    assert other.refused
    assert one.allow(FAST, 0)
    one.begin(FAST, 0)
    assert not other.allow(SLOW, 0)
    one.close()
    assert other.allow(SLOW, 0)


class Napping(AlwaysOn):
    """Releases everybody after each result; in a new round the fast client comes 900 s after the slow one."""

    def decide(self, question: Question, view: RunningApplication) -> Answer:
        if question.cause is Cause.FINISHED:
            return rent_at(view, question.client, Market.SPOT, NEVER)
        if question == (Cause.ROUND, FAST):
            return rent_at(view, FAST, Market.SPOT, view.now_s + 900)
        return super().decide(question, view)


def test_two_that_each_hold_one_of_two_gpus_and_need_both_never_come_about() -> None:
    """Given two applications that rent nothing between their rounds, when both want their GPUs back.

    The second begins when the first has released both, at 800 s. At 1050 s its fast client's GPU is free, but
    each would then hold one and need two, so nobody gets it. At 1600 s the second has released both: the
    first takes one, and at 1800 s the second must not take the other. The first's fast client comes at
    1900 s, ready at 2000 s; its round of 700 s is over at 2700 s. Then the second's two come: ready at
    2800 s, 700 s. Aggregation takes 200 s.
    """
    entrants = [entrant(two_clients(2, aggregation_s=200), start_s=start_s) for start_s in (0, 50)]
    first, second = play_fleet(entrants, [Napping(Market.SPOT), Napping(Market.SPOT)], (GPUS,))
    assert (first.begun_s, first.end_s) == (0, 2900)
    assert (second.begun_s, second.end_s) == (800, 3700)
    starts = [
        (item.begun_s + bill.start_s, bill.client) for item in (first, second) for bill in item.outcome.bills
    ]
    assert sorted(starts)[4:] == [(1600, SLOW), (1900, FAST), (2700, SLOW), (2700, FAST)]


def test_a_move_counts_the_place_that_is_left() -> None:
    ledger = Ledger((instances_of("spot", 1), instances_of("on-demand", 1)))
    share = Share(ledger, two_clients(1), {SLOW: 0, FAST: 1})
    ledger.begun.append(share)
    share.begin(SLOW, 0)
    # The fast client, which is off, claims the on-demand instance: the slow one cannot take it.
    assert not share.allow(SLOW, 1)
    share.leave(FAST)
    assert share.allow(SLOW, 1)
    assert not share.allow(None, 0)
    assert share.allow(None, 1)


def test_a_claim_that_the_quotas_never_allow_is_named() -> None:
    with pytest.raises(ValueError, match="'two clients' needs 2 instances of spot at once, 1 are allowed"):
        run([entrant(two_clients(1))], (instances_of("spot", 1),))
    application = two_clients(1)
    with pytest.raises(ValueError, match="there are 1 instances of spot, at least 2 are needed"):
        cheapest_claim(application, (instances_of("spot", 1),), Market.SPOT)
    with pytest.raises(ValueError, match=r"claims offers for the tasks \[0\]: expected \[0, 1\]"):
        Entrant(application, 0, {SLOW: 0})
    with pytest.raises(ValueError, match="a fleet has no applications"):
        Fleet([])


def test_the_cheapest_claim_keeps_all_quotas_at_once() -> None:
    offers = tuple(
        Offer(name, "zone", Market.SPOT, Tariff.constant(usd)) for name, usd in (("a", 1), ("b", 2), ("c", 4))
    )
    clients = tuple(Client(f"client {k}", 10, 10, 0, (0, 1, 2)) for k in range(3))
    application = Application("three", 1, clients, offers)
    quotas = (SharedQuota("gpus", 4, {"a": 2, "b": 1, "c": 1}), instances_of("b", 1))
    # a + b + c takes 4 GPUs and costs 7; two of a and anything else takes 5.
    assert sorted(cheapest_claim(application, quotas, Market.SPOT).values()) == [0, 1, 2]


def test_quotas_of_the_same_name_are_one_and_must_agree() -> None:
    def limited(limit: float, amount: float) -> Application:
        return two_clients(1, quotas=(Quota("gpus of region r", limit, {0: amount}),))

    (quota,) = quotas_of([limited(2, 1), limited(2, 1)])
    assert (quota.limit, quota.amounts["spot"], quota.amounts["on-demand"]) == (2, 1, 0)
    with pytest.raises(ValueError, match="'two clients' has 3 gpus of region r, an application before it 2"):
        quotas_of([limited(2, 1), limited(3, 1)])
    with pytest.raises(ValueError, match="an instance of 'spot' takes 2 gpus of region r"):
        quotas_of([limited(2, 1), limited(2, 2)])


def test_prices_are_those_of_the_fleets_clock() -> None:
    """Spot costs 0.36 USD/h until 1400 s and 3.6 USD/h then: the second application pays ten times that."""
    dear = Offer("spot", "zone", Market.SPOT, Tariff([0, 1400], [0.36, 3.6]))
    first, second = (
        Application("a", 2, two_clients(2).clients, (dear, two_offers()[1])),
        Application("b", 2, two_clients(2).clients, (dear, two_offers()[1])),
    )
    played = run([entrant(first), entrant(second)], (GPUS,))
    assert [item.outcome.cost_usd for item in played] == pytest.approx([0.28, 2.8])


def test_availability_and_degradations_are_counted_from_the_beginning() -> None:
    series = StepSeries(np.array([0, 500, 900]), np.array([1.0, 0.0, 1.0]))
    offer = Offer("spot", "zone", Market.SPOT, Tariff.constant(1), availability=series)
    application = Application(
        "late",
        1,
        (Client("only", 10, 10, 0, (0,)),),
        (offer,),
        degradations=(Degradation(2, 0, 400, offer=0), Degradation(3, 100, 800, offer=0)),
    )
    later = begun_at(application, 600)
    assert [later.offers[0].available(second) for second in (0, 299, 300)] == [False, False, True]
    assert [(item.slowdown, item.from_s, item.until_s) for item in later.degradations] == [(3, 0, 200)]
    assert begun_at(application, 0) is application


def test_a_copied_fleet_has_the_same_future() -> None:
    fleet = Fleet([entrant(two_clients(2)), entrant(two_clients(2), start_s=100)], (GPUS,))
    policy = Releasing(Market.SPOT)

    def finish(fleet: Fleet) -> list[list[Bill]]:
        while (asked := fleet.advance()) is not None:
            fleet.answer(policy.decide(asked[1], fleet.world(asked[0])))
        return [item.outcome.bills for item in fleet.played(["a", "b"])]

    for _ in range(5):
        asked = fleet.advance()
        assert asked is not None
        fleet.answer(policy.decide(asked[1], fleet.world(asked[0])))
    twin = copy.deepcopy(fleet)
    assert finish(fleet) == finish(twin)
