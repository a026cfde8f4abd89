"""The simulation: from event to event, in whole seconds, stopping wherever somebody must decide.

    world = RoundsWorld(application, seed)
    while (question := world.advance()) is not None:
        world.answer(policy.decide(question, world))
    outcome = world.outcome("name")

A copy (`copy.deepcopy`) goes on with the same future, so choices can be tried out.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import numpy as np

from spotweave.envs.simulation.federations.rounds.application import SERVER, Application
from spotweave.envs.simulation.federations.rounds.decisions import (
    NEVER,
    Answer,
    Cause,
    Epoch,
    Event,
    Events,
    Exclusion,
    InvalidAnswerError,
    Leave,
    Outcome,
    Pace,
    Question,
    RoundScheduler,
    State,
)
from spotweave.envs.simulation.federations.rounds.draws import Draws
from spotweave.envs.simulation.federations.rounds.member import Member, Weights
from spotweave.envs.simulation.federations.rounds.running import Instances, RunningApplication

MAX_POSTPONEMENTS = 100_000
"""A client whose planned start is put off so often in one round is not meant to train."""
MAX_SERVER_LOSSES = 10_000
"""A server that is revoked so often never ends its application."""


class RoundsWorld(RunningApplication):
    """One application from its beginning to its end.

    Args:
        application: what is simulated.
        root: seed, or seed sequence of an episode.
        pace: makes it asynchronous; None: everybody trains in every round.

    Raises:
        ValueError: for an asynchronous application with a server that is rented, or with budgets.
    """

    def __init__(
        self, application: Application, root: int | np.random.SeedSequence, pace: Pace | None = None
    ) -> None:
        draws = Draws(application, root)
        super().__init__(application, draws, pace)
        if pace is not None and (
            application.server is not None or any(c.budget_usd is not None for c in application.clients)
        ):
            raise ValueError(
                f"{application.name!r} is asynchronous: expected no rented server and no budgets"
            )
        self._weights = Weights(application.checkpoints, self.clients)
        self._events = Events()
        self._instances = Instances(self, draws, self._durations, self._rented, self._events)
        self._questions: deque[Question] = deque()
        self._owed = 0
        """Results of the current round that are still to come."""
        self._delivered = 0
        """Results of the current round that have come."""
        self._aggregating = False
        """Whether a round is over and its results are being aggregated."""
        self._opening = True
        """Whether a round is being prepared."""
        self._postponed = 0
        self._closing = False
        """Whether the last round is aggregated and nothing is decided any more."""
        self._ended = False
        self._record = Outcome(application, policy="")
        if self.server is not None:
            self._questions.append(Question(Cause.START, SERVER))
        self._questions.extend(Question(Cause.START, k) for k in range(len(self.clients)))

    def advance(self) -> Question | None:
        """Go on until somebody must decide. None: it is over.

        Raises:
            InvalidAnswerError: if the round cannot go on, because a client that it needs is never started.
        """
        assert self._asked is None, "the last question has not been answered"
        while not self._ended:
            while self._questions:
                question = self._questions.popleft()
                if self._still_asked(question):
                    self._asked = question
                    self._record.questions += 1
                    return question
            if self._opening and self._may_begin():
                self._begin_round()
                continue
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
            self._instances.release(member)
            if not self._instances.launch(member, offer):
                self._leave(member)
        else:
            self._asked = None
            if question.cause is Cause.START:
                self._postponed += 1
                if self._postponed > MAX_POSTPONEMENTS:
                    raise InvalidAnswerError(f"the start of client {member.name} is put off again and again")
            self._instances.release(member)
            member.offer = offer
            member.generation += 1
            member.planned_start_s = start_s
            if start_s < NEVER:
                whole_s = max(int(start_s), self.now_s + 1)
                member.planned_start_s = whole_s
                self._push(whole_s, Event.START, member)

    def outcome(self, policy: str) -> Outcome:
        """What happened, once `advance` has returned None."""
        assert self._ended, "the application is not over"
        bills = [bill for member in self._members() for bill in member.bills]
        return replace(
            self._record,
            policy=policy,
            time_s=self.now_s,
            bills=sorted(bills, key=lambda bill: (bill.end_s, bill.client)),
            spans=[member.spans for member in self.clients],
            server_spans=[] if self.server is None else self.server.spans,
            server_losses=self._weights.losses,
        )

    @property
    def rounds_done(self) -> int:
        """Rounds that are completed."""
        return len(self._record.rounds)

    @property
    def interrupted(self) -> int:
        """Instances that the provider has taken."""
        return len(self._record.interruptions)

    @property
    def messages_usd(self) -> float:
        """What the messages of all results that were delivered cost."""
        return sum(epoch.message_usd for epoch in self._record.epochs) if self.application.links else 0.0

    @property
    def left(self) -> int:
        """Clients that have left."""
        return len(self._record.exclusions)

    def _members(self) -> list[Member]:
        """The server, where it is a task, and all clients."""
        return self.clients if self.server is None else [self.server, *self.clients]

    # Events.

    def _push(self, time_s: int, event: Event, member: Member) -> None:
        self._events.push(time_s, event, member.index, member.generation)

    def _step(self) -> None:
        time_s, event, client, generation = self._events.pop()
        if event >= Event.NEXT_ROUND:
            if generation == len(self._weights.losses) and not self._weights.waiting:
                self.now_s = time_s
                if event == Event.NEXT_ROUND:
                    self._prepare_round()
                else:
                    self._end()
            return
        member = self.member(client)
        if event == Event.DONE:
            if member.state is State.TRAINING and member.trainings == generation:
                self.now_s = time_s
                self._finish(member)
            return
        if member.generation != generation:
            return
        self.now_s = time_s
        if event == Event.READY:
            self._ready(member)
        elif event == Event.INTERRUPTED:
            self._interrupt(member)
        elif event == Event.BROKE:
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
        for member in self._invited():
            if member.here:
                member.has_task = True
                member.saved = 0.0
                self._owed += 1
        for member in self.clients:
            if member.state is State.IDLE and member.has_task:
                self._instances.train(member)

    def _invited(self) -> list[Member]:
        """Clients that get a task when a round begins."""
        if self._pace is None:
            return self.clients
        return [
            self.clients[k]
            for k in self._pace.begin([member.index for member in self.clients if not member.has_task])
        ]

    def _prepare_round(self) -> None:
        """The last round is aggregated: end, or ask everybody about the next one."""
        self._aggregating = False
        self._weights.keep(self.round_index + 1, self.now_s)
        if self.round_index + 1 == self.rounds or (self._pace is not None and self._pace.ended):
            self._close()
            return
        self.round_index += 1
        self.round_begun_s = None
        self._opening = True
        if self.server is not None:
            self._questions.append(Question(Cause.ROUND, SERVER))
        self._questions.extend(
            Question(Cause.ROUND, member.index)
            for member in self.clients
            if member.here and not member.has_task
        )

    def _result_or_loss(self, made: bool = False) -> None:
        """One result less is owed. The last one ends the round, or (asynchronous) one that `made` a model."""
        self._owed -= 1
        over = made if self._pace is not None else self._owed == 0 and self._delivered > 0
        if over and not self._aggregating:
            assert self.round_begun_s is not None
            self._aggregating = True
            self._record.rounds.append((self.round_begun_s, self.now_s))
            seconds = self._durations.aggregation_s(self.round_index, self.now_s)
            self._push_phase(seconds, Event.NEXT_ROUND)

    def _push_phase(self, after_s: int, event: Event) -> None:
        """Something that happens to the whole application, unless the server is lost before."""
        self._events.push(self.now_s + after_s, event, SERVER, len(self._weights.losses))

    def _close(self) -> None:
        """The last round is aggregated: fetch the results, end all instances."""
        if not self.application.closing_s:
            self._end()
            return
        self._closing = True
        self._questions.clear()
        self._push_phase(self.application.closing_s, Event.CLOSED)

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
        self._aggregating = False
        self.round_begun_s = None
        self._opening = True
        self._questions.extend(Question(Cause.ROUND, member.index) for member in self.clients if member.here)

    def _restore(self) -> None:
        """The server is back: go on after the newest of its own and its clients' checkpoints."""
        if self._weights.waiting:
            self.round_index = self._weights.restore(self.round_index, self.now_s)
            del self._record.rounds[self.round_index :]

    # One client.

    def _ready(self, member: Member) -> None:
        member.ready_s = self.now_s
        member.enter(State.IDLE, self.now_s, self.round_index)
        if member is self.server:
            self.aggregation_s = self._durations.expected_aggregation_s()
            if not self._closing:
                self._restore()
        elif member.has_task:
            self._instances.train(member)

    def _finish(self, member: Member) -> None:
        member.finished_s = self.now_s
        member.epochs_here += 1
        member.has_task = False
        member.saved = 0.0
        member.enter(State.IDLE, self.now_s, self.round_index)
        assert member.offer is not None
        usd = self.message_usd(member.index, member.offer)
        self._record.epochs.append(Epoch(member.index, self.round_index, self.now_s, usd))
        self._delivered += 1
        made = self._pace is not None and self._pace.end(member.index, self.now_s)
        self._result_or_loss(made)
        if self._pace is not None and not self._aggregating and self._pace.begin([member.index]):
            member.has_task = True
            self._owed += 1
            self._instances.train(member)
            return
        self._questions.append(Question(Cause.FINISHED, member.index))

    def _interrupt(self, member: Member) -> None:
        self._record.interruptions.append((member.index, self.now_s))
        member.interruptions += 1
        self._instances.end(member, by_provider=True)
        if member.state is State.TRAINING:
            self._instances.keep_checkpoint(member)
        was_serving = member is self.server and member.state is State.IDLE
        self._instances.switch_off(member)
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

    def _leave(self, member: Member) -> None:
        """A client leaves for good: its policy says so, or its budget is spent."""
        self._record.exclusions.append(Exclusion(member.index, self.now_s, self.round_index, member.has_task))
        if member.running:
            self._instances.end(member, by_provider=False)
        member.generation += 1
        member.planned_start_s = NEVER
        member.enter(State.GONE, self.now_s, self.round_index)
        if member.has_task:
            member.has_task = False
            self._result_or_loss()
        if not self._ended and not any(other.here for other in self.clients):
            self._end()


def play(
    application: Application,
    policy: RoundScheduler,
    root: int | np.random.SeedSequence,
    pace: Pace | None = None,
) -> Outcome:
    """Simulate one application to its end.

    Args:
        application: what is simulated.
        policy: takes every decision.
        root: seed, or seed sequence of an episode; every policy meets the same epoch times, spin-up times and
            interruptions with the same root.
        pace: makes the application asynchronous.

    Raises:
        InvalidAnswerError: if the policy answers what cannot be done.
    """
    world = RoundsWorld(application, root, pace=pace)
    policy.start(world)
    while (question := world.advance()) is not None:
        world.answer(policy.decide(question, world))
    return world.outcome(policy.name)
