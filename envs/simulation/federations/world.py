"""Federated applications as a `QuestionWorld`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Protocol

import numpy as np

from spotweave.envs.simulation.federations.observation import Observed
from spotweave.envs.simulation.federations.rounds.application import (
    SERVER,
    Application,
    Client,
    Market,
    Server,
)
from spotweave.envs.simulation.federations.rounds.decisions import Outcome, Question
from spotweave.envs.simulation.federations.rounds.draws import Draws
from spotweave.envs.simulation.federations.rounds.world import RoundsWorld
from spotweave.envs.simulation.questions import QuestionLane, QuestionWorld
from spotweave.envs.simulation.series import StepSeries
from spotweave.envs.simulation.snapshot import Category
from spotweave.envs.simulation.streams import episode_sequence
from spotweave.envs.simulation.world import EpisodeKey, Segment, Timeline, constant, used

# Where the episodes of a federated world come from.


class ApplicationSource(Protocol):
    """Gives each episode its application; a pure function of the key."""

    @property
    def n_offers(self) -> int:
        """The most offers an application has."""

    @property
    def offer_names(self) -> tuple[str, ...]:
        """(n_offers,) what pictures and tables call them."""

    def application(self, key: EpisodeKey) -> Application:
        """The application of an episode."""


@dataclass(frozen=True)
class OneApplication:
    """The same application in every episode; what is random in it still follows the key."""

    given: Application  # the application

    @property
    def n_offers(self) -> int:
        """Offers of the application."""
        return len(self.given.offers)

    @property
    def offer_names(self) -> tuple[str, ...]:
        """Names of the offers."""
        return tuple(offer.name for offer in self.given.offers)

    def application(self, key: EpisodeKey) -> Application:
        """The application, whatever the key."""
        return self.given


# An application as a timeline for pictures: who had an instance where, and at what price.


def timeline_of(world: RoundsWorld, offer_names: tuple[str, ...]) -> Timeline:
    """What happened so far. Jobs are the clients, then the server; clusters are the offers."""
    members = [*world.clients] if world.server is None else [*world.clients, world.server]
    segments, interruptions = [], []
    for job, member in enumerate(members):
        held = [(bill.offer, bill.start_s, bill.end_s) for bill in member.bills]
        if member.running and member.offer is not None and member.launched_s is not None:
            held.append((member.offer, member.launched_s, world.now_s))
        segments += [
            Segment(job, offer, float(start_s), float(end_s), 1, int(Category.FEDERATED), False)
            for offer, start_s, end_s in held
            if end_s > start_s
        ]
        interruptions += [(float(bill.end_s), bill.offer) for bill in member.bills if bill.by_provider]
    end = max(1, world.now_s)
    return Timeline(
        cluster_names=offer_names,
        time_unit="s",
        end=float(end),
        segments=tuple(sorted(segments, key=lambda segment: segment.start)),
        capacity=(constant(len(members)),) * len(offer_names),
        used=used(segments, len(offer_names)),
        price_usd_hour=tuple(_price(world, offer, end) for offer in range(len(offer_names))),
        interruptions=tuple(sorted(interruptions)),
    )


def _price(world: RoundsWorld, offer: int, end_s: int) -> StepSeries:
    """The price, looked at 200 times; 0 where the application has no such offer."""
    if offer >= len(world.offers):
        return constant(0.0)
    times = np.unique(np.linspace(0, end_s, 200).astype(np.int64))
    return StepSeries(times, np.array([world.offers[offer].tariff.usd_hour(int(time)) for time in times]))


# What an application would take without waiting: the measure of its cost and time in per cent.


@dataclass(frozen=True)
class Reference:
    """All tasks on on-demand offers (spot where there are none) from the beginning to the end."""

    # the slowest spin-up, then the slowest epoch of each round on each client's fastest offer: mean times,
    # cold in the first round; messages and checkpoints excluded
    time_s: float
    # every task on its cheapest on-demand offer (the dearest spot one where there is none) for that time, at
    # the prices of the beginning
    cost_usd: float


def reference_of(application: Application) -> Reference:
    """The reference of an application."""
    clients = application.clients
    tasks: list[Client | Server] = [*clients]
    aggregation_s = float(application.aggregation_s)
    if application.server is not None:
        tasks.append(application.server)
        aggregation_s = min(application.server_aggregation_s(offer) for offer in application.server.offers)
    spin_up_s = max(min(application.spin_up_s(task, offer) for offer in task.offers) for task in tasks)
    warm_s, cold_s = (
        max(min(client.times(offer)[kind] for offer in client.offers) for client in clients)
        for kind in (0, 1)
    )
    time_s = spin_up_s + cold_s + (application.rounds - 1) * warm_s + application.rounds * aggregation_s
    usd_hour = application.server_usd_hour + sum(_usd_hour(application, task) for task in tasks)
    return Reference(time_s, max(1e-9, usd_hour * time_s / 3600))


def _usd_hour(application: Application, task: Client | Server) -> float:
    offers = [application.offers[offer] for offer in task.offers]
    listed = [offer.tariff.usd_hour(0) for offer in offers if offer.market is Market.ON_DEMAND]
    return min(listed) if listed else max(offer.tariff.usd_hour(0) for offer in offers)


MAX_DECISIONS = 20_000
DAY_S = 86_400
PRICED_DAYS = 14
"""Days of an offer's prices that identify an episode."""

METRICS = (
    "cost_index",
    "cost_percent",
    "delay_percent",
    "cost_usd",
    "time_min",
    "interruptions",
    "left",
    "rounds_lost",
)
COMPONENTS = ("delay", "cost")


@dataclass(kw_only=True)
class _Lane(QuestionLane):
    """One episode."""

    application: Application
    world: RoundsWorld
    observed: Observed
    reference: Reference
    question: Question | None = None
    truncated: bool = False


class FederatedWorld(QuestionWorld[_Lane]):
    """N copies of federated applications; each question of `RoundsWorld` is one decision.

    Args:
        source: gives every episode its application.
        n_lanes: copies.
        time_weight: per cent of cost that one per cent of delay weighs as much as.
        measured: whether the tasks' mean times are known beforehand (pre-scheduling).
    """

    def __init__(
        self, source: ApplicationSource, n_lanes: int, time_weight: float = 2.5, measured: bool = False
    ) -> None:
        self.source, self.time_weight, self.measured = source, time_weight, measured
        super().__init__(
            n_lanes,
            source.offer_names,
            (time_weight, 1.0),
            name="federated",
            components=COMPONENTS,
            scales=(10.0, 10.0),
            metrics=METRICS,
            federated=True,
        )

    def truncated(self, lane: int) -> bool:
        """Whether the finished episode was cut short by the limit of decisions."""
        return self._lane(lane).truncated

    def metrics(self, lane: int) -> Mapping[str, float]:
        """Metrics of the finished episode; cost and time in per cent of on-demand without waiting."""
        state = self._lane(lane)
        delay, cost = self._components(state)
        world = state.world
        return {
            "cost_index": cost + self.time_weight * delay,
            "cost_percent": cost,
            "delay_percent": delay,
            "cost_usd": self._spent_usd(state),
            "time_min": world.now_s / 60,
            "interruptions": float(world.interrupted),
            "left": float(world.left),
            "rounds_lost": float(world.rounds - world.rounds_done),
        }

    def timeline(self, lane: int = 0) -> Timeline:
        """What happened in a lane so far."""
        return timeline_of(self._lane(lane).world, self.spec.cluster_names)

    def outcome(self, lane: int, policy: str) -> Outcome:
        """What happened in a finished episode: bills, states, rounds."""
        return self._lane(lane).world.outcome(policy)

    def fingerprint(self, key: EpisodeKey) -> str:
        """SHA-256 of the application and of everything drawn for it."""
        application = self.source.application(key)
        draws = Draws(application, episode_sequence(key.seed, key.split, key.index))
        given = [
            (field.name, getattr(application, field.name))
            for field in fields(application)
            if field.name != "offers"
        ]
        digest = hashlib.sha256(repr(given).encode())
        for k, client in enumerate(application.clients):
            for offer in client.offers:
                drawn = (
                    [draws.epoch_s(k, offer, number) for number in range(application.rounds)],
                    [draws.spin_up_s(k, number, 0, offer) for number in range(application.rounds)],
                    draws.next_interruption_s(k, offer, 0),
                )
                digest.update(repr(drawn).encode())
        for place in application.offers:
            if place.availability is not None:
                digest.update(place.availability.times_s.tobytes() + place.availability.values.tobytes())
            prices = [place.tariff.usd_hour(0)]
            prices += [place.tariff.cost_usd(0, days * DAY_S) for days in range(1, PRICED_DAYS + 1)]
            rest = (place.name, place.zone, place.market, place.mean_time_to_interruption_s, place.spin_up_s)
            digest.update(repr((rest, prices)).encode())
        return digest.hexdigest()

    def _begin(self, key: EpisodeKey, number: int) -> _Lane:
        application = self.source.application(key)
        world = RoundsWorld(application, episode_sequence(key.seed, key.split, key.index))
        return _Lane(
            key=key,
            application=application,
            world=world,
            observed=Observed(world, self.observation, number, self.measured),
            reference=reference_of(application),
        )

    def _advance(self, lane: _Lane, number: int, action: int | None) -> int | None:
        """Go on to the next question that needs a choice."""
        if action is not None:
            assert lane.question is not None
            lane.world.answer(lane.observed.answer(lane.question, action))
        while True:
            lane.question = lane.world.advance()
            if lane.question is not None and len(lane.actions) >= MAX_DECISIONS:
                lane.truncated = True
                lane.question = None
            if lane.question is None:
                return None
            leave = lane.observed.show(lane.question)
            if leave is None:
                return lane.question.client
            lane.world.answer(leave)

    def reward_of_usd(self, lane: int) -> float:
        """See `QuestionWorld`."""
        return 100.0 / self._lane(lane).reference.cost_usd

    def _spent_usd(self, lane: _Lane) -> float:
        world = lane.world
        tasks = range(len(world.clients)) if world.server is None else range(SERVER, len(world.clients))
        fixed_usd = lane.application.server_usd_hour * world.now_s / 3600
        return sum(map(world.spent_usd, tasks)) + world.messages_usd + fixed_usd

    def _components(self, lane: _Lane) -> tuple[float, float]:
        delay = 100 * (lane.world.now_s / lane.reference.time_s - 1)
        return delay, 100 * self._spent_usd(lane) / lane.reference.cost_usd

    def _objective(self, lane: _Lane) -> float:
        delay, cost = self._components(lane)
        return cost + self.time_weight * delay
