"""The simulation: from event to event, in whole seconds, stopping wherever somebody must decide.

    world = RoundsWorld(application, seed)
    while (question := world.advance()) is not None:
        world.answer(policy.decide(question, world))
    outcome = world.outcome("name")

A copy (`copy.deepcopy`) goes on with the same future, so choices can be tried out.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Sequence
from enum import IntEnum

import numpy as np

from envs.simulation.federations.rounds.application import Application, Offer
from envs.simulation.federations.rounds.decisions import (
    NEVER,
    Answer,
    Cause,
    InvalidAnswerError,
    Leave,
    Question,
    RoundScheduler,
    State,
)
from envs.simulation.federations.rounds.draws import Draws
from envs.simulation.federations.rounds.durations import Durations
from envs.simulation.federations.rounds.history import Epoch, Exclusion, Outcome
from envs.simulation.federations.rounds.member import Member
from envs.simulation.federations.rounds.rented import Rented
from envs.simulation.federations.rounds.server import SERVER
from envs.simulation.federations.rounds.weights import Weights

MAX_POSTPONEMENTS = 100_000
"""A client whose planned start is put off so often in one round is not meant to train."""
MAX_SERVER_LOSSES = 10_000
"""A server that is revoked so often never ends its application."""


class _Event(IntEnum):
    """What happens; at the same second in this order: a result that is ready is not lost."""

    DONE = 0
    READY = 1
    INTERRUPTED = 2
    BROKE = 3
    START = 4
    NEXT_ROUND = 5
    CLOSED = 6


class RoundsWorld:
    """One application. Fulfils `decisions.View`.

    Args:
        application: what is simulated.
        root: seed, or seed sequence of an episode.
        rented: keeps the quotas; None: the application's own quotas, shared with nobody.
    """

    def __init__(
        self, application: Application, root: int | np.random.SeedSequence, rented: Rented | None = None
    ) -> None:
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
        self._draws = Draws(application, root)
        self._durations = Durations(application, self._draws, self.server)
        self._weights = Weights(application.checkpoints, self.clients)
        self._rented = Rented(application.quotas) if rented is None else rented
        self._events: list[tuple[int, int, int, int]] = []
        self._questions: deque[Question] = deque()
        self._asked: Question | None = None
        self._owed = 0
        """Results of the current round that are still to come."""
        self._delivered = 0
        """Results of the current round that have come."""
        self._opening = True
        """Whether a round is being prepared."""
        self._postponed = 0
        self._closing = False
        """Whether the last round is aggregated and nothing is decided any more."""
        self._ended = False
        self._n_questions = 0
        self._completed: list[tuple[int, int]] = []
        self._epochs: list[Epoch] = []
        self._interruptions: list[tuple[int, int]] = []
        self._exclusions: list[Exclusion] = []
        if self.server is not None:
            self._questions.append(Question(Cause.START, SERVER))
        self._questions.extend(Question(Cause.START, k) for k in range(len(self.clients)))

    # What a policy may look at (decisions.View).

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

    # The two steps.

    @property
    def ended(self) -> bool:
        """Whether the application is over."""
        return self._ended

    @property
    def next_s(self) -> float:
        """When something happens next, or could: nothing does before. `math.inf` where nothing will."""
        if self._ended:
            return NEVER
        if self._questions or (self._opening and self._may_begin()):
            return self.now_s
        return self._events[0][0] if self._events else NEVER

    def ask_again(self, client: int, time_s: int) -> None:
        """A client (or SERVER) that is off is asked about at `time_s` (not before now), planned or not."""
        self._push(time_s, _Event.START, self.member(client))

    def advance(self, until_s: float = NEVER) -> Question | None:
        """Go on until somebody must decide. None: it is over, or nothing happens up to `until_s`.

        Raises:
            InvalidAnswerError: if the round cannot go on, because a client that it needs is never started.
        """
        assert self._asked is None, "the last question has not been answered"
        while not self._ended:
            while self._questions:
                question = self._questions.popleft()
                if self._still_asked(question):
                    self._asked = question
                    self._n_questions += 1
                    return question
            if self._opening and self._may_begin():
                self._begin_round()
                continue
            if until_s < NEVER and self.next_s > until_s:
                return None
            if not self._events:
                waiting = [m.name for m in self._members() if m.state is State.OFF]
                raise InvalidAnswerError(
                    f"round {self.round_index + 1} waits for {', '.join(waiting)}, which are never started"
                )
            self._step()
        return None

    def answer(self, answer: Answer) -> None:
        """Do what the policy decided about the client (or the server) that was asked about.

        Raises:
            InvalidAnswerError: for an offer that the client may not rent or that is not available, and for a
                server that leaves.
        """
        question = self._asked
        assert question is not None, "no question has been asked"
        member = self.member(question.client)
        if isinstance(answer, Leave):
            if member is self.server:
                raise InvalidAnswerError("the server cannot leave: place it, or wait")
            self._asked = None
            self._leave(member)
            return
        offer, start_s = answer
        if offer not in member.allowed:
            raise InvalidAnswerError(
                f"client {member.name} may not rent offer {offer}: expected {member.allowed}"
            )
        if start_s <= self.now_s:
            if member.running and member.offer == offer:
                self._asked = None
                return
            if not self.available(offer):
                raise InvalidAnswerError(
                    f"{self.offers[offer].name} is not available at {self.now_s} s: choose another or wait"
                )
            self._asked = None
            self._release(member)
            self._launch(member, offer)
        else:
            self._asked = None
            if question.cause is Cause.START:
                self._postponed += 1
                if self._postponed > MAX_POSTPONEMENTS:
                    raise InvalidAnswerError(f"the start of client {member.name} is put off again and again")
            self._release(member)
            member.offer = offer
            member.generation += 1
            member.planned_start_s = start_s
            if start_s < NEVER:
                whole_s = max(int(start_s), self.now_s + 1)
                member.planned_start_s = whole_s
                self._push(whole_s, _Event.START, member)

    def outcome(self, policy: str) -> Outcome:
        """What happened, once `advance` has returned None."""
        assert self._ended, "the application is not over"
        return Outcome(
            application=self.application,
            policy=policy,
            time_s=self.now_s,
            rounds=self._completed,
            bills=sorted(
                (bill for member in self._members() for bill in member.bills),
                key=lambda bill: (bill.end_s, bill.client),
            ),
            spans=[member.spans for member in self.clients],
            epochs=self._epochs,
            interruptions=self._interruptions,
            exclusions=self._exclusions,
            questions=self._n_questions,
            server_spans=[] if self.server is None else self.server.spans,
            server_losses=self._weights.losses,
        )

    @property
    def rounds_done(self) -> int:
        """Rounds that are completed."""
        return len(self._completed)

    @property
    def interrupted(self) -> int:
        """Instances that the provider has taken."""
        return len(self._interruptions)

    @property
    def messages_usd(self) -> float:
        """What the messages of all results that were delivered cost."""
        return sum(epoch.message_usd for epoch in self._epochs) if self.application.links else 0.0

    @property
    def left(self) -> int:
        """Clients that have left."""
        return len(self._exclusions)

    def _members(self) -> list[Member]:
        """The server, where it is a task, and all clients."""
        return self.clients if self.server is None else [self.server, *self.clients]

    # Events.

    def _push(self, time_s: int, event: _Event, member: Member) -> None:
        heapq.heappush(self._events, (time_s, int(event), member.index, member.generation))

    def _step(self) -> None:
        time_s, event, client, generation = heapq.heappop(self._events)
        if event >= _Event.NEXT_ROUND:
            if generation == len(self._weights.losses) and not self._weights.waiting:
                self.now_s = time_s
                if event == _Event.NEXT_ROUND:
                    self._prepare_round()
                else:
                    self._end()
            return
        member = self.member(client)
        if event == _Event.DONE:
            if member.state is State.TRAINING and member.trainings == generation:
                self.now_s = time_s
                self._finish(member)
            return
        if member.generation != generation:
            return
        self.now_s = time_s
        if event == _Event.READY:
            self._ready(member)
        elif event == _Event.INTERRUPTED:
            self._interrupt(member)
        elif event == _Event.BROKE:
            self._leave(member)
        elif not self._closing:
            member.planned_start_s = NEVER
            self._questions.append(Question(Cause.START, client))

    def _still_asked(self, question: Question) -> bool:
        """Whether a question still makes sense after the answers that came before it."""
        member = self.member(question.client)
        if question.cause is Cause.REPLAN:
            return member.state is State.OFF and member.planned_start_s > self.now_s
        if question.cause in (Cause.START, Cause.INTERRUPTED):
            return member.state is State.OFF
        return member.here

    # Rounds.

    def _may_begin(self) -> bool:
        if self.server is not None and self.server.state is not State.IDLE:
            return False
        if not self.application.start_together:
            return True
        return all(member.state in (State.IDLE, State.GONE) for member in self.clients)

    def _begin_round(self) -> None:
        self._opening = False
        self.round_begun_s = self.now_s
        self._postponed = self._delivered = 0
        for member in self.clients:
            if member.here:
                member.has_task = True
                member.saved = 0.0
                self._owed += 1
        for member in self.clients:
            if member.state is State.IDLE:
                self._train(member)

    def _prepare_round(self) -> None:
        """The last round is aggregated: end, or ask everybody about the next one."""
        self._weights.keep(self.round_index + 1, self.now_s)
        if self.round_index + 1 == self.rounds:
            self._close()
            return
        self.round_index += 1
        self.round_begun_s = None
        self._opening = True
        if self.server is not None:
            self._questions.append(Question(Cause.ROUND, SERVER))
        self._questions.extend(Question(Cause.ROUND, member.index) for member in self.clients if member.here)

    def _result_or_loss(self) -> None:
        """One result less is owed; the last one ends the round."""
        self._owed -= 1
        if self._owed == 0 and self._delivered:
            assert self.round_begun_s is not None
            self._completed.append((self.round_begun_s, self.now_s))
            seconds = self._durations.aggregation_s(self.round_index, self.now_s)
            self._push_phase(seconds, _Event.NEXT_ROUND)

    def _push_phase(self, after_s: int, event: _Event) -> None:
        """Something that happens to the whole application, unless the server is lost before."""
        heapq.heappush(self._events, (self.now_s + after_s, int(event), SERVER, len(self._weights.losses)))

    def _close(self) -> None:
        """The last round is aggregated: fetch the results, end all instances."""
        if not self.application.closing_s:
            self._end()
            return
        self._closing = True
        self._questions.clear()
        self._push_phase(self.application.closing_s, _Event.CLOSED)

    def _end(self) -> None:
        self._ended = True
        for member in self._members():
            if member.running:
                member.close_bill(self.now_s, by_provider=False)
            member.enter(State.GONE, self.now_s, self.round_index)

    # The server.

    def _lose_server(self) -> None:
        """The server was revoked: the round's work is lost, the clients wait on their instances."""
        if len(self._weights.losses) >= MAX_SERVER_LOSSES:
            raise InvalidAnswerError("the server is revoked again and again: it never gets through a round")
        self._weights.lose_server(self.now_s)
        for member in self.clients:
            member.has_task = False
            member.saved = 0.0
            if member.state is State.TRAINING:
                member.enter(State.IDLE, self.now_s, self.round_index)
        self._owed = self._delivered = 0
        self.round_begun_s = None
        self._opening = True
        self._questions.extend(Question(Cause.ROUND, member.index) for member in self.clients if member.here)

    def _restore(self) -> None:
        """The server is back: go on after the newest of its own and its clients' checkpoints."""
        if self._weights.waiting:
            self.round_index = self._weights.restore(self.round_index, self.now_s)
            del self._completed[self.round_index :]

    # One client.

    def _ready(self, member: Member) -> None:
        member.ready_s = self.now_s
        member.enter(State.IDLE, self.now_s, self.round_index)
        if member is self.server:
            self.aggregation_s = self._durations.expected_aggregation_s()
            if not self._closing:
                self._restore()
        elif member.has_task:
            self._train(member)

    def _launch(self, member: Member, offer: int) -> None:
        member.offer = offer
        member.generation += 1
        member.planned_start_s = NEVER
        member.launched_s = self.now_s
        member.ready_s = None
        member.epochs_here = 0
        affordable_s = member.last_affordable_s()
        if affordable_s is not None and affordable_s < self.now_s:
            self._leave(member)
            return
        member.enter(State.SPIN_UP, self.now_s, self.round_index)
        if member.attempt_round != self.round_index:
            member.attempt_round, member.attempt = self.round_index, 0
        spin_up_s = self._draws.spin_up_s(member.index, self.round_index, member.attempt, offer)
        member.attempt += 1
        self._rented.begin(member.index, offer)
        self._push(self.now_s + spin_up_s, _Event.READY, member)
        exposed_s = self.now_s if self.application.spin_up_interrupted else self.now_s + spin_up_s
        interruption_s = self._draws.next_interruption_s(member.index, offer, exposed_s)
        most = self.application.interruptions_per_task
        if interruption_s is not None and (most is None or member.interruptions < most):
            self._push(interruption_s, _Event.INTERRUPTED, member)
        if affordable_s is not None:
            self._push(affordable_s, _Event.BROKE, member)

    def _release(self, member: Member) -> None:
        """End a client's instance, if it has one. No question comes while it trains, so no work is lost."""
        if not member.running:
            return
        assert member.state is not State.TRAINING
        self._end_instance(member, by_provider=False)
        self._switch_off(member)

    def _end_instance(self, member: Member, by_provider: bool) -> None:
        member.close_bill(self.now_s, by_provider)
        self._rented.end(member.index)

    def _switch_off(self, member: Member) -> None:
        member.generation += 1
        member.planned_start_s = NEVER
        member.epochs_here = 0
        member.kept_rounds = 0
        member.enter(State.OFF, self.now_s, self.round_index)

    def _train(self, member: Member) -> None:
        warm_s, cold_s = self._durations.epoch_s(member, self.round_index, self.now_s)
        if member.saved == 0:
            member.work_left_s = warm_s
        elif warm_s != member.whole_s:
            member.work_left_s = max(1, math.ceil(warm_s * (1 - member.saved)))
        member.whole_s = warm_s
        member.overhead_s = cold_s - warm_s if member.epochs_here == 0 else 0
        member.resumed = member.saved > 0
        member.started_s = self.now_s
        member.trainings += 1
        member.enter(State.TRAINING, self.now_s, self.round_index)
        done_s = self.now_s + member.overhead_s + member.work_left_s
        heapq.heappush(self._events, (done_s, int(_Event.DONE), member.index, member.trainings))

    def _finish(self, member: Member) -> None:
        member.finished_s = self.now_s
        member.epochs_here += 1
        member.has_task = False
        member.saved = 0.0
        member.enter(State.IDLE, self.now_s, self.round_index)
        assert member.offer is not None
        usd = self.message_usd(member.index, member.offer)
        self._epochs.append(Epoch(member.index, self.round_index, self.now_s, usd))
        self._delivered += 1
        self._result_or_loss()
        self._questions.append(Question(Cause.FINISHED, member.index))

    def _interrupt(self, member: Member) -> None:
        self._interruptions.append((member.index, self.now_s))
        member.interruptions += 1
        self._end_instance(member, by_provider=True)
        if member.state is State.TRAINING:
            self._keep_checkpoint(member)
        was_serving = member is self.server and member.state is State.IDLE
        self._switch_off(member)
        if self._closing:
            return
        self._questions.append(Question(Cause.INTERRUPTED, member.index))
        if was_serving:
            self._lose_server()
            return
        self._questions.extend(
            Question(Cause.REPLAN, other.index)
            for other in self.clients
            if other is not member and other.state is State.OFF
        )

    def _keep_checkpoint(self, member: Member) -> None:
        """What was trained up to the latest checkpoint need not be trained again."""
        every_s = self.application.checkpoint_s
        if every_s is None:
            return
        assert member.started_s is not None
        whole_s = member.whole_s
        trained_s = max(0, self.now_s - member.started_s - member.overhead_s)
        done_s = whole_s - member.work_left_s + trained_s
        kept_s = max(whole_s - member.work_left_s, done_s // every_s * every_s)
        member.work_left_s = whole_s - kept_s
        member.saved = kept_s / whole_s

    def _leave(self, member: Member) -> None:
        """A client leaves for good: its policy says so, or its budget is spent."""
        self._exclusions.append(Exclusion(member.index, self.now_s, self.round_index, member.has_task))
        if member.running:
            self._end_instance(member, by_provider=False)
        self._rented.leave(member.index)
        member.generation += 1
        member.planned_start_s = NEVER
        member.enter(State.GONE, self.now_s, self.round_index)
        if member.has_task:
            member.has_task = False
            self._result_or_loss()
        if not self._ended and not any(other.here for other in self.clients):
            self._end()


def play(application: Application, policy: RoundScheduler, root: int | np.random.SeedSequence) -> Outcome:
    """Simulate one application to its end.

    Args:
        application: what is simulated.
        policy: takes every decision.
        root: seed, or seed sequence of an episode; every policy meets the same epoch times, spin-up times and
            interruptions with the same root.

    Raises:
        InvalidAnswerError: if the policy answers what cannot be done.
    """
    world = RoundsWorld(application, root)
    policy.start(world)
    while (question := world.advance()) is not None:
        world.answer(policy.decide(question, world))
    return world.outcome(policy.name)
