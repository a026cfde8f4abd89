"""The cheapest schedule of an application whose times are all known beforehand, and that never waits.

Rounds end as early as they can: with every client on from the beginning, a round lasts as long as its
slowest warm epoch. A schedule that takes no longer in all must end every round then (a round that is late
cannot be made up for), so the clients no longer depend on each other. Each of them rents instances that
follow one another; an instance trains one epoch or several in a row, the first of them cold. Only its
request can be timed: an epoch begins as soon as its round has begun, the instance is ready and its
predecessor is gone.

Dynamic programming over the rounds keeps, after each one, all pairs of (seconds paid, second of release) of
which none is better in both. It is exact: a spin-up is drawn again for each round of its request, and for a
second request in the same round. No client needs a third one: its last two instances would train one epoch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from spotweave.envs.simulation.federations.rounds.application import Application, Market
from spotweave.envs.simulation.federations.rounds.draws import Draws


class Instance(NamedTuple):
    """One instance of a client: the round of its request, the rounds that it trains, from when to when."""

    client: int
    requested: int
    first_round: int
    last_round: int
    launch_s: int
    end_s: int


@dataclass(frozen=True)
class Schedule:
    """A schedule: what it costs, how long it takes, and its instances by client and time."""

    cost_usd: float
    time_s: int
    instances: tuple[Instance, ...]


class _Label(NamedTuple):
    """Paid seconds and release after the rounds so far, the round of the last request, and all instances."""

    paid_s: int
    end_s: int
    requested: int
    instances: tuple[Instance, ...]


def cheapest_schedule(application: Application, root: int | np.random.SeedSequence) -> Schedule:
    """The least that the shortest possible schedule can cost, with the times drawn for `root`.

    A lower bound for every policy that takes no longer; it plays with each client beginning when it is ready.

    Args:
        application: one instance type, a constant price, nothing interrupted, no budgets, no rented server.
        root: seed, or seed sequence of an episode.

    Raises:
        ValueError: for another application.
    """
    offer = _cheapest_offer(application)
    draws = Draws(application, root)
    clients, rounds = range(len(application.clients)), range(application.rounds)
    spin_up_s = [_spin_ups(draws, client, application.rounds, offer) for client in clients]
    ends = [max(spin_up_s[client][0][0] + draws.cold_s[client][0] for client in clients)]
    for r in rounds[1:]:
        ends.append(ends[-1] + application.aggregation_s + max(draws.warm_s[client][r] for client in clients))
    begins = [0, *(end + application.aggregation_s for end in ends)]
    price = application.offers[offer].tariff.usd_hour(0) / 3600
    best = [
        _cheapest_client(
            client,
            _Times(begins, ends, draws.warm_s[client], draws.cold_s[client], spin_up_s[client]),
            application.billing_minimum_s,
        )
        for client in clients
    ]
    time_s = begins[-1]
    cost = sum(label.paid_s for label in best) * price + application.server_usd_hour * time_s / 3600
    return Schedule(cost, time_s, tuple(item for label in best for item in label.instances))


def least_cost_usd(application: Application, root: int | np.random.SeedSequence) -> float:
    """What no schedule can go below, however long it takes, with the times drawn for `root`.

    An instance that trains the epochs a to b costs its spin-up, its cold epoch, the warm epoch b, and every
    round in between, which lasts at least as long as the slowest client's warm epoch. That a cold epoch may
    not fit into a round, or an instance not be released in time, is left out, so a schedule of this cost
    need not exist.

    Raises:
        ValueError: as `cheapest_schedule`.
    """
    offer = _cheapest_offer(application)
    draws = Draws(application, root)
    clients, rounds = range(len(application.clients)), application.rounds
    round_s = [
        application.aggregation_s + max(draws.warm_s[client][r] for client in clients) for r in range(rounds)
    ]
    before = [0, *accumulate(round_s)]
    paid_s = 0
    for client in clients:
        warm_s, cold_s = draws.warm_s[client], draws.cold_s[client]
        spin_up_s = [min(both) for both in _spin_ups(draws, client, rounds, offer)]
        least = [0, *[math.inf] * rounds]
        for first in range(rounds):
            # Requested in round `at`, it also waits for all rounds between that one and its first.
            start_s = min(
                spin_up_s[at] + before[first] - before[min(at + 1, first)] for at in range(first + 1)
            )
            alone_s = least[first] + start_s + cold_s[first]
            least[first + 1] = min(least[first + 1], alone_s)
            for last in range(first + 1, rounds):
                between_s = before[last] - before[first + 1] + application.aggregation_s
                least[last + 1] = min(least[last + 1], alone_s + between_s + warm_s[last])
        paid_s += int(least[rounds])
    price = application.offers[offer].tariff.usd_hour(0)
    time_s = int(before[-1])
    return (paid_s * price + application.server_usd_hour * time_s) / 3600


def _spin_ups(draws: Draws, client: int, rounds: int, offer: int) -> list[tuple[int, int]]:
    return [
        (draws.spin_up_s(client, r, 0, offer), draws.spin_up_s(client, r, 1, offer)) for r in range(rounds)
    ]


def _cheapest_offer(application: Application) -> int:
    """The offer that everybody rents. Raises ValueError where the schedule cannot be computed."""
    simple = (
        application.plain
        and not application.interruptions
        and all(client.budget_usd is None for client in application.clients)
        and all(set(client.offers) == set(range(len(application.offers))) for client in application.clients)
    )
    spot = [offer for offer in application.offers if offer.market is Market.SPOT]
    steady = all(offer.mean_time_to_interruption_s is None and offer.availability is None for offer in spot)
    constant = all(
        abs(offer.tariff.cost_usd(0, 10**8) - offer.tariff.usd_hour(0) * 10**8 / 3600) < 1e-6
        for offer in application.offers
    )
    if not (simple and steady and constant):
        raise ValueError(
            f"{application.name!r} has no schedule that this can compute: expected one instance type, "
            "constant prices, nothing interrupted and no budgets"
        )
    offers = application.offers
    return min(range(len(offers)), key=lambda k: offers[k].tariff.usd_hour(0))


class _Times(NamedTuple):
    """Times of one client: begins of rounds and of what follows the last, their ends, its own times."""

    begins: list[int]
    ends: list[int]
    warm_s: list[int]
    cold_s: list[int]
    spin_up_s: list[tuple[int, int]]


def _cheapest_client(client: int, times: _Times, least_s: int) -> _Label:
    rounds = len(times.ends)
    labels: list[list[_Label]] = [[] for _ in range(rounds + 1)]
    labels[0] = [_Label(0, -1, -1, ())]
    for first in range(rounds):
        for label in _undominated(labels[first]):
            for at in range(first + 1):
                single = _single(first, at, label, times)
                if single is not None:
                    labels[first + 1].append(
                        _with(label, at, Instance(client, at, first, first, *single), least_s)
                    )
                latest_s = _latest_launch_s(first, at, label, times)
                if latest_s is None:
                    continue
                for last in range(first + 1, rounds):
                    end_s = times.begins[last] + times.warm_s[last]
                    instance = Instance(client, at, first, last, latest_s, end_s)
                    labels[last + 1].append(_with(label, at, instance, least_s))
    return min(labels[rounds])


def _with(label: _Label, at: int, instance: Instance, least_s: int) -> _Label:
    paid_s = label.paid_s + max(least_s, instance.end_s - instance.launch_s)
    return _Label(paid_s, instance.end_s, at, (*label.instances, instance))


def _undominated(labels: list[_Label]) -> list[_Label]:
    """Pareto-optimal labels among those with one round of the last request."""
    kept: dict[int, list[_Label]] = {}
    for label in sorted(labels):
        others = kept.setdefault(label.requested, [])
        if not others or label.end_s < others[-1].end_s:
            others.append(label)
    return [label for others in kept.values() for label in others]


def _single(round_index: int, at: int, label: _Label, times: _Times) -> tuple[int, int] | None:
    """(request, release) of an instance that is requested in round `at` and trains this round alone.

    Of those that pay no idleness the earliest; where none can be requested so late, the one that idles least.
    """
    begin_s, end_s = times.begins[round_index], times.ends[round_index]
    spin_up_s, cold_s = times.spin_up_s[at][at == label.requested], times.cold_s[round_index]
    earliest_s = max(times.begins[at], label.end_s + 1)
    launch_s = min(max(earliest_s, begin_s - spin_up_s), times.begins[at + 1])
    finish_s = max(begin_s, launch_s + spin_up_s) + cold_s
    return (launch_s, finish_s) if launch_s >= earliest_s and finish_s <= end_s else None


def _latest_launch_s(round_index: int, at: int, label: _Label, times: _Times) -> int | None:
    """The latest request in round `at` of an instance that delivers this round in time and stays."""
    begin_s, end_s = times.begins[round_index], times.ends[round_index]
    spin_up_s, cold_s = times.spin_up_s[at][at == label.requested], times.cold_s[round_index]
    launch_s = min(end_s - cold_s - spin_up_s, times.begins[at + 1])
    fits = launch_s >= max(times.begins[at], label.end_s + 1) and begin_s + cold_s <= end_s
    return launch_s if fits else None
