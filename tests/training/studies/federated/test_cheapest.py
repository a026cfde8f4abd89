"""The cheapest schedule: by hand, by trying requests in every second, and carried out in the simulation."""

from __future__ import annotations

import math
from itertools import combinations, product

import numpy as np
import pytest

from agents.federated.rules.fed_cost_aware import FedCostAware
from envs.simulation.federations.rounds.application import Application, Client, Interruption, Market, Offer
from envs.simulation.federations.rounds.decisions import NEVER, Answer, Cause, Placement, Question
from envs.simulation.federations.rounds.draws import Draws
from envs.simulation.federations.rounds.running import RunningApplication
from envs.simulation.federations.rounds.tariff import Tariff
from envs.simulation.federations.rounds.world import play
from envs.simulation.streams import episode_sequence
from training.studies.federated.cheapest import Schedule, cheapest_schedule, least_cost_usd
from training.studies.federated.table_one import data_sets, when_ready

USD_A_SECOND = (Offer("spot", "zone", Market.SPOT, Tariff.constant(3600.0)),)


def application(
    clients: list[tuple[float, float, float]],
    rounds: int,
    cv: float = 0.0,
    aggregation_s: int = 0,
    offers: tuple[Offer, ...] = USD_A_SECOND,
) -> Application:
    """Clients of (warm, cold, spin-up) seconds; a second costs a dollar."""
    return Application(
        "small",
        rounds,
        tuple(Client(f"c{k}", *times, tuple(range(len(offers)))) for k, times in enumerate(clients)),
        offers,
        aggregation_s=aggregation_s,
        start_together=False,
        epoch_cv=cv,
        spin_up_cv=cv,
        billing_minimum_s=0,
    )


class Script:
    """Carries out a schedule."""

    name = "script"

    def __init__(self, schedule: Schedule, offer: int = 0) -> None:
        self._instances = schedule.instances
        self._offer = offer

    def start(self, view: RunningApplication) -> None:
        """Nothing is remembered."""

    def decide(self, question: Question, view: RunningApplication) -> Answer:
        """Keep an instance to its last round, request the next one at its second."""
        client = view.clients[question.client]
        mine = [item for item in self._instances if item.client == question.client]
        if client.running:
            now = next(item for item in mine if item.launch_s == client.launched_s)
            if question.cause is not Cause.FINISHED or view.round_index < now.last_round:
                return Placement(self._offer)
            mine = [item for item in mine if item.launch_s > now.launch_s]
        following = next((item for item in mine if item.launch_s >= view.now_s), None)
        if following is None:
            return Placement(self._offer, NEVER)
        if following.launch_s == view.now_s and view.round_index < following.requested:
            return Placement(self._offer, NEVER)  # asked again when the next round begins in this second
        return Placement(self._offer, following.launch_s)


def test_by_hand_two_epochs_share_a_start() -> None:
    """The slow client pays 30 + 110 + 100 + 100, the fast one 30 + 20 + 10 for two and 30 + 20 for one."""
    small = application([(100, 110, 30), (10, 20, 30)], 3)
    schedule = cheapest_schedule(small, 0)
    assert schedule.time_s == 340
    assert schedule.cost_usd == pytest.approx(340 + 60 + 50)
    assert least_cost_usd(small, 0) == pytest.approx(450)
    outcome = play(small, Script(schedule), 0)
    assert outcome.time_s == 340
    assert outcome.cost_usd == pytest.approx(450)


def test_by_hand_a_cold_epoch_that_fits_no_round_keeps_its_client_on() -> None:
    """Cold 90 is longer than the second round of 60, so both stay on; the first round takes 50 + 110."""
    small = application([(60, 110, 50), (30, 90, 50)], 2)
    schedule = cheapest_schedule(small, 0)
    assert schedule.time_s == 220
    # The other one starts 20 s late in round 1 and delivers round 2 30 s early.
    assert schedule.cost_usd == pytest.approx(220 + 220 - 20 - 30)
    assert least_cost_usd(small, 0) == pytest.approx(220 + 50 + 90 + 30)


def brute_force(small: Application, root: int) -> tuple[float, int]:
    """(USD, seconds): every set of rounds with a new instance, every second of every request."""
    draws = Draws(small, root)
    clients, rounds = range(len(small.clients)), range(small.rounds)
    ends: list[int] = []
    begins = [0]
    for r in rounds:
        lasting = max(
            draws.spin_up_s(k, 0, 0) + draws.cold_s[k][0] if r == 0 else draws.warm_s[k][r] for k in clients
        )
        ends.append(begins[-1] + lasting)
        begins.append(ends[-1] + small.aggregation_s)
    total = 0.0
    for k in clients:
        best = math.inf
        for n in range(small.rounds):
            for more in combinations(rounds[1:], n):
                starts = (0, *more)
                for launches in product(range(begins[-1] + 1), repeat=len(starts)):
                    best = min(best, paid(draws, k, starts, launches, begins, ends))
        total += best
    return total, begins[-1]


def paid(
    draws: Draws,
    k: int,
    starts: tuple[int, ...],
    launches: tuple[int, ...],
    begins: list[int],
    ends: list[int],
) -> float:
    """Seconds paid; inf where a round is late or an instance requested while its predecessor runs."""
    rounds = len(ends)
    # At the second that ends one round and begins the next, a request belongs to either.
    during = [
        [r for r in range(first + 1) if begins[r] <= launch_s <= begins[r + 1]]
        for first, launch_s in zip(starts, launches, strict=True)
    ]
    best = math.inf
    for places in product(*during):
        total, free_s = 0.0, -1
        for at, (first, launch_s) in enumerate(zip(starts, launches, strict=True)):
            last = (starts[at + 1] if at + 1 < len(starts) else rounds) - 1
            attempt = places[:at].count(places[at])
            ready_s = launch_s + draws.spin_up_s(k, places[at], attempt)
            late = launch_s <= free_s
            for r in range(first, last + 1):
                ready_s = max(begins[r], ready_s) + (draws.cold_s if r == first else draws.warm_s)[k][r]
                late |= ready_s > ends[r]
            if late:
                total = math.inf
                break
            free_s = ready_s
            total += ready_s - launch_s
        best = min(best, total)
    return best


@pytest.mark.real
@pytest.mark.parametrize("seed", range(24))
def test_no_request_in_any_second_is_cheaper(seed: int) -> None:
    random = np.random.default_rng([5, seed])
    clients = []
    for _ in range(int(random.integers(1, 4))):
        warm_s = float(random.integers(1, 7))
        clients.append((warm_s, warm_s + float(random.integers(0, 4)), float(random.integers(0, 5))))
    small = application(clients, 3, cv=0.3, aggregation_s=int(random.integers(0, 2)))
    schedule = cheapest_schedule(small, seed)
    usd, seconds = brute_force(small, seed)
    assert schedule.time_s == seconds
    assert schedule.cost_usd == pytest.approx(usd)
    assert least_cost_usd(small, seed) <= usd + 1e-9


@pytest.mark.parametrize("name", list(data_sets()))
@pytest.mark.parametrize("episode", range(2))
def test_the_schedule_can_be_carried_out_and_nobody_who_must_guess_is_cheaper(
    name: str, episode: int
) -> None:
    given = when_ready(data_sets()[name][0])
    root = episode_sequence(3003, "test", episode)
    schedule = cheapest_schedule(given, root)
    outcome = play(given, Script(schedule), root)
    assert outcome.time_s == schedule.time_s
    assert outcome.cost_usd == pytest.approx(schedule.cost_usd)
    assert least_cost_usd(given, root) <= schedule.cost_usd
    assert play(given, FedCostAware(), root).cost_usd > schedule.cost_usd


@pytest.mark.parametrize(
    ("offers", "interruptions"),
    [
        ((Offer("spot", "zone", Market.SPOT, Tariff([0, 50], [1.0, 2.0])),), ()),
        ((Offer("spot", "zone", Market.SPOT, Tariff.constant(1.0), 3600.0),), ()),
        (USD_A_SECOND, (Interruption(0, 5),)),
    ],
)
def test_what_it_does_not_hold_for_is_refused(
    offers: tuple[Offer, ...], interruptions: tuple[Interruption, ...]
) -> None:
    small = Application("odd", 2, (Client("c", 5, 6, 1, (0,)),), offers, interruptions=interruptions)
    with pytest.raises(ValueError, match="'odd' has no schedule that this can compute"):
        cheapest_schedule(small, 0)
