"""An application while it runs: what policies may look at, and the instances of its members."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from spotweave.envs.simulation.federations.rounds.application import SERVER, Application, Offer, Quota
from spotweave.envs.simulation.federations.rounds.decisions import (
    NEVER,
    Awaited,
    Event,
    Events,
    Pace,
    Question,
    State,
)
from spotweave.envs.simulation.federations.rounds.draws import Draws, Durations
from spotweave.envs.simulation.federations.rounds.member import Member

# Which tasks have instances on which offers, so that quotas are kept.


@dataclass
class Rented:
    """The instances of one application's tasks: its clients by their index, its server by SERVER."""

    _quotas: tuple[Quota, ...]  # what may be rented at once
    _offers: dict[int, int] = field(default_factory=dict)  # by task

    def begin(self, task: int, offer: int) -> None:
        """An instance is requested."""
        self._offers[task] = offer

    def end(self, task: int) -> None:
        """An instance ends."""
        del self._offers[task]

    def allow(self, task: int | None, offer: int) -> bool:
        """Whether an instance on an offer keeps all quotas: the task's, in place of what it has now.

        None asks for one more instance, besides all that there are.
        """
        for quota in self._quotas:
            amount = quota.amounts.get(offer, 0)
            if not amount:
                continue
            used = sum(quota.amounts.get(there, 0) for other, there in self._offers.items() if other != task)
            if used + amount > quota.limit:
                return False
        return True


class RunningApplication:
    """What is known of it when a question is asked; a scheduler must not change it.

    Prices and availability are read by `usd_hour` and `available`, never from the offers ahead of time.

    Attributes:
        rounds: how many there are.
        round_index: the current round, from 0; while a round is about to begin: that one.
        round_begun_s: when the current round began; None before it has.
        aggregation_s: from a round's last result until the next round can begin.
        clients: every client, also those that left.
        server: the server where it is a task of its own, as a client that never trains; None where it is not.

    Args:
        application: what runs.
        draws: its random times.
        pace: of an asynchronous application.
    """

    def __init__(self, application: Application, draws: Draws, pace: Pace | None = None) -> None:
        self.application = application
        self.rounds = application.rounds
        self.aggregation_s = application.aggregation_s
        self.offers: Sequence[Offer] = application.offers
        self.clients = [
            Member(application, k, client.name, client.offers, client.budget_usd)
            for k, client in enumerate(application.clients)
        ]
        server = application.server
        self.server = None if server is None else Member(application, SERVER, "server", server.offers)
        self.now_s = 0
        self.round_index = 0
        self.round_begun_s: int | None = None
        self._durations = Durations(application, draws, self.server)
        self._rented = Rented(application.quotas)
        self._pace = pace
        self._asked: Question | None = None

    def awaited(self) -> Sequence[Awaited]:
        """Clients whose results the current round waits for."""
        if self._pace is not None:
            return self._pace.awaited()
        owing = [member.index for member in self.clients if member.has_task]
        return [Awaited(owing, len(owing))]

    def round_needs(self) -> Sequence[Awaited]:
        """Clients whose results a whole round waits for."""
        if self._pace is not None:
            return self._pace.round_needs()
        here = [member.index for member in self.clients if member.here]
        return [Awaited(here, len(here))]

    def member(self, client: int) -> Member:
        """A client, or the server for SERVER."""
        if client == SERVER:
            assert self.server is not None, "this application rents no server"
            return self.server
        return self.clients[client]

    def spent_usd(self, client: int) -> float:
        """What the instances of a client (or of SERVER) cost until now, the running one included."""
        member = self.member(client)
        return member.spent_usd + (member.instance_usd(self.now_s) if member.running else 0.0)

    def usd_hour(self, offer: int) -> float:
        """The price of an offer now."""
        return self.offers[offer].tariff.usd_hour(self.now_s)

    def available(self, offer: int) -> bool:
        """Whether an instance could start on an offer now, within the quotas.

        While a question is open, what its client has rented does not count: a move gives it back.
        """
        if not self.offers[offer].available(self.now_s):
            return False
        return self._rented.allow(None if self._asked is None else self._asked.client, offer)

    def expected_epoch_s(self, client: int, offer: int, cold: bool) -> float:
        """Mean seconds of a client's epoch on an offer, messages with the server's present place included.

        For SERVER, of an aggregation there. Degradations are not known beforehand, so they are not in it.
        """
        if client == SERVER:
            return self.application.server_aggregation_s(offer)
        return self._durations.expected_epoch_s(client, offer, cold)

    def expected_spin_up_s(self, client: int, offer: int) -> float:
        """Mean seconds from the request of an instance there until it can work; `client` may be SERVER."""
        task = self.application.server if client == SERVER else self.application.clients[client]
        assert task is not None, "this application rents no server"
        return self.application.spin_up_s(task, offer)

    def message_usd(self, client: int, offer: int) -> float:
        """USD per round of a client's messages there, with the server's present place; 0 before that."""
        if client == SERVER or self.server is None or self.server.offer is None:
            return 0.0
        return self.application.message_usd(offer, self.server.offer)


@dataclass(frozen=True)
class Instances:
    """The instances of one application's members."""

    _app: RunningApplication
    _draws: Draws
    _durations: Durations  # how long epochs take where
    _rented: Rented  # keeps the quotas
    _events: Events  # what will happen to the instances

    def launch(self, member: Member, offer: int) -> bool:
        """Request an instance. Returns False if the member's budget cannot pay for it."""
        member.offer = offer
        member.generation += 1
        member.planned_start_s = NEVER
        member.launched_s = self._app.now_s
        member.ready_s = None
        member.epochs_here = 0
        affordable_s = member.last_affordable_s()
        if affordable_s is not None and affordable_s < self._app.now_s:
            return False
        member.enter(State.SPIN_UP, self._app.now_s, self._app.round_index)
        if member.attempt_round != self._app.round_index:
            member.attempt_round, member.attempt = self._app.round_index, 0
        spin_up_s = self._draws.spin_up_s(member.index, self._app.round_index, member.attempt, offer)
        member.attempt += 1
        self._rented.begin(member.index, offer)
        self._events.push(self._app.now_s + spin_up_s, Event.READY, member.index, member.generation)
        exposed_s = (
            self._app.now_s if self._app.application.spin_up_interrupted else self._app.now_s + spin_up_s
        )
        interruption_s = self._draws.next_interruption_s(member.index, offer, exposed_s)
        most = self._app.application.interruptions_per_task
        if interruption_s is not None and (most is None or member.interruptions < most):
            self._events.push(interruption_s, Event.INTERRUPTED, member.index, member.generation)
        if affordable_s is not None:
            self._events.push(affordable_s, Event.BROKE, member.index, member.generation)
        return True

    def release(self, member: Member) -> None:
        """End a client's instance, if it has one. No question comes while it trains, so no work is lost."""
        if not member.running:
            return
        assert member.state is not State.TRAINING
        self.end(member, by_provider=False)
        self.switch_off(member)

    def end(self, member: Member, by_provider: bool) -> None:
        """An instance ends: its bill is closed and its place in the quotas is free."""
        member.close_bill(self._app.now_s, by_provider)
        self._rented.end(member.index)

    def switch_off(self, member: Member) -> None:
        """A member whose instance has ended is off; what was planned for that instance is void."""
        member.generation += 1
        member.planned_start_s = NEVER
        member.epochs_here = 0
        member.kept_rounds = 0
        member.enter(State.OFF, self._app.now_s, self._app.round_index)

    def train(self, member: Member) -> None:
        """A client begins, or goes on with, its epoch of the round."""
        warm_s, cold_s = self._durations.epoch_s(member, self._app.round_index, self._app.now_s)
        if member.saved == 0:
            member.work_left_s = warm_s
        elif warm_s != member.whole_s:
            member.work_left_s = max(1, math.ceil(warm_s * (1 - member.saved)))
        member.whole_s = warm_s
        member.overhead_s = cold_s - warm_s if member.epochs_here == 0 else 0
        member.resumed = member.saved > 0
        member.started_s = self._app.now_s
        member.trainings += 1
        member.enter(State.TRAINING, self._app.now_s, self._app.round_index)
        done_s = self._app.now_s + member.overhead_s + member.work_left_s
        self._events.push(done_s, Event.DONE, member.index, member.trainings)

    def keep_checkpoint(self, member: Member) -> None:
        """What was trained up to the latest checkpoint need not be trained again."""
        every_s = self._app.application.checkpoint_s
        if every_s is None:
            return
        assert member.started_s is not None
        whole_s = member.whole_s
        trained_s = max(0, self._app.now_s - member.started_s - member.overhead_s)
        done_s = whole_s - member.work_left_s + trained_s
        kept_s = max(whole_s - member.work_left_s, done_s // every_s * every_s)
        member.work_left_s = whole_s - kept_s
        member.saved = kept_s / whole_s
