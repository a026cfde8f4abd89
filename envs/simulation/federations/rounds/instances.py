"""What members do with instances: request, train on and end them."""

from __future__ import annotations

import math

from envs.simulation.federations.rounds.decisions import NEVER, Event, Events, State
from envs.simulation.federations.rounds.draws import Draws, Durations
from envs.simulation.federations.rounds.member import Member
from envs.simulation.federations.rounds.running import Rented, RunningApplication


class Instances:
    """The instances of one application's members.

    Args:
        app: the application.
        draws: its random times.
        durations: how long epochs take where.
        rented: keeps the quotas.
        events: what will happen to the instances.
    """

    def __init__(
        self, app: RunningApplication, draws: Draws, durations: Durations, rented: Rented, events: Events
    ) -> None:
        self._app = app
        self._draws = draws
        self._durations = durations
        self._rented = rented
        self._events = events

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
