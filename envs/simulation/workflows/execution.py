"""Carrying out one workflow: events, and the questions that they raise."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from spotweave.envs.simulation.series import Ints
from spotweave.envs.simulation.workflows.options import (
    Case,
    Files,
    Options,
    Quotes,
    Reserve,
    may_wait,
    options_of,
)

# Instances: those that are rented, and the executors of owned clusters, which are always there.

IDLE = -1


@dataclass(eq=False)
class Instance:
    """One executor of a place; two are never equal."""

    place: int  # number of the offer
    since_s: float  # when it was rented; the launch is billed
    step: int = IDLE  # that it launches for or runs; IDLE if none
    start_s: float = 0.0  # when that step begins to run
    end_s: float = 0.0  # when the step is expected to end
    done_s: float = 0.0  # when it ends, which nobody knows before


@dataclass(frozen=True)
class Attempt:
    """A step on an instance, ended or interrupted; seconds after the start."""

    step: int  # number
    place: int  # number
    start_s: float  # when it began to run, its launch and its files behind it
    end_s: float  # when it ended or was interrupted
    whole: bool  # whether it ended


def bill_usd(instance: Instance, quotes: Quotes, until_s: float, minimum_s: float, gone: bool) -> float:
    """What an instance has cost.

    Args:
        instance: rented.
        quotes: of its offer.
        until_s: now, or when it was given back or interrupted.
        minimum_s: it is billed for so long at least unless the provider took it.
        gone: whether the provider interrupted it.
    """
    end_s = until_s if gone else max(until_s, instance.since_s + minimum_s)
    return quotes.cost_usd(instance.since_s, end_s)


class Question(NamedTuple):
    """One task of which somebody must say where it goes."""

    step: int  # a step that is ready; IDLE if `instance` is asked about
    options: Options | None  # what may be answered about a step
    instance: Instance | None  # one that is rented and idle while no step wants it: keep it, or give it back


NONE = -1
"""The answer "none for now": the step waits, the instance is given back."""
Asking = Generator[Question, int, None]


class Execution:
    """One workflow from its start to the end of its last step.

    When something happens - a step ends, an offer's availability changes, `asks_again_s` has passed - the
    steps that are ready are asked about, by upward rank. Once one waits, those behind it wait too, except for
    those that must not. Then each idle instance is asked about.

    An interrupted step starts again: steps read all they need and write at their end, as those of workflow
    engines do, so that there is nothing to go on from.

    Args:
        case: the episode.

    Attributes:
        now_s: seconds after the start.
        ready: steps that may start, the highest upward rank first.
        instances: executors of owned clusters, and what is rented now.
        attempts: of steps, ended or interrupted.
        lost: (seconds, place) of each interruption of a step.
        launches: instances that were rented so far, by place.
        held: (place, since, until) of each instance that is rented no more.
    """

    def __init__(self, case: Case) -> None:
        self.case = case
        self.reserve = Reserve(case)
        self.files = Files(case)
        self.now_s = 0.0
        self.instances = [
            Instance(c, 0.0)
            for c, offer in enumerate(case.offers)
            if case.owned[c]
            for _ in range(offer.quota)
        ]
        self.attempts: list[Attempt] = []
        self.lost: list[tuple[float, int]] = []
        self.launches = np.zeros(len(case.offers), np.int64)
        self.held: list[tuple[int, float, float]] = []
        self.egress_usd = 0.0
        self._closed_usd = 0.0
        self._waits = [len(waited) for waited in case.before]
        self._left = len(case.before)
        self._order = np.argsort(np.argsort(-case.path_s, kind="stable"))
        self.ready = sorted(
            (k for k, waits in enumerate(self._waits) if not waits), key=self._order.__getitem__
        )
        self._places = np.flatnonzero(case.spot).tolist()
        self._changes = sorted({time_s for c in self._places for time_s in case.quotes[c].changes_s()})
        self._next_change = 0
        self._up = {c: case.quotes[c].available(0.0) for c in self._places}
        self._quota = np.array([offer.quota for offer in case.offers])

    @property
    def finished(self) -> bool:
        """Whether all steps have ended."""
        return self._left == 0

    @property
    def steps_left(self) -> int:
        """Steps that have not ended."""
        return self._left

    def waits_for(self, step: int) -> int:
        """How many of the steps that a step waits for have not ended."""
        return self._waits[step]

    def spent_usd(self) -> float:
        """All that has been paid for until now."""
        return (
            self._closed_usd
            + self.egress_usd
            + sum(self._bill(one) for one in self.instances if not self.case.owned[one.place])
        )

    def unused_usd(self) -> float:
        """What was paid for instances besides the time in which they ran steps to their end."""
        used = sum(
            self.case.quotes[one.place].cost_usd(one.start_s, one.end_s)
            for one in self.attempts
            if one.whole and not self.case.owned[one.place]
        )
        return self.spent_usd() - self.egress_usd - used

    def rented(self) -> list[Instance]:
        """What is rented now, without owned clusters."""
        return [one for one in self.instances if not self.case.owned[one.place]]

    def counts(self) -> tuple[Ints, Ints]:
        """([C] instances, [C] those that are idle)."""
        total, idle = np.zeros(len(self.case.offers), np.int64), np.zeros(len(self.case.offers), np.int64)
        for one in self.instances:
            total[one.place] += 1
            idle[one.place] += one.step == IDLE
        return total, idle

    def questions(self) -> Asking:
        """Ask until all steps have ended; the answer is a place, or NONE."""
        while True:
            yield from self._ask_steps()
            yield from self._ask_idle()
            self._advance()
            if self.finished:
                for one in self.rented():
                    self._close(one, gone=False)
                return

    def _ask_steps(self) -> Asking:
        waiting = False
        for step in list(self.ready):
            if waiting and may_wait(self.case, self.reserve, step, self.now_s):
                continue
            total, idle = self.counts()
            rentable = ~self.case.owned & (total < self._quota)
            for c in self._places:
                rentable[c] &= self._up[c]
            options = options_of(self.case, self.reserve, self.files, step, self.now_s, idle, rentable)
            if not options.valid.any():
                continue
            answer = yield Question(step, options, None)
            if answer == NONE:
                waiting = True
            else:
                self._start(step, answer, options)

    def _ask_idle(self) -> Asking:
        for one in self.rented():
            if one.step == IDLE and (yield Question(IDLE, None, one)) == NONE:
                self._close(one, gone=False)

    def _start(self, step: int, place: int, options: Options) -> None:
        case = self.case
        one = next((k for k in self.instances if k.place == place and k.step == IDLE), None)
        if one is None:
            one = Instance(place, self.now_s)
            self.instances.append(one)
            self.launches[place] += 1
        run_s = float(case.problem.run_s[step, place])
        self.files.move(step, int(case.region[place]), self.now_s)
        self.egress_usd += float(options.egress_usd[place])
        one.step = step
        one.start_s = self.now_s + max(float(options.launch_s[place]), float(options.files_s[place]))
        one.end_s = one.start_s + run_s
        one.done_s = one.start_s + run_s * float(case.actual[step])
        self.ready.remove(step)

    def _advance(self) -> None:
        """Go to the next moment at which something happens, and let it happen."""
        until_s = self.now_s + self.case.conditions.asks_again_s
        until_s = min([until_s, *(one.done_s for one in self.instances if one.step != IDLE)])
        if self._next_change < len(self._changes):
            until_s = min(until_s, self._changes[self._next_change])
        self.now_s = until_s
        for one in [k for k in self.instances if k.step != IDLE and k.done_s <= until_s]:
            self._end(one)
        if self._next_change < len(self._changes) and self._changes[self._next_change] <= until_s:
            self._next_change += 1
            self._change()

    def _end(self, one: Instance) -> None:
        """A step has ended, also where its offer ceases to be available at the same moment."""
        step, one.step = one.step, IDLE
        self.files.write(step, int(self.case.region[one.place]), self.now_s)
        self.attempts.append(Attempt(step, one.place, one.start_s, self.now_s, whole=True))
        self._left -= 1
        for follower in self.case.after[step]:
            self._waits[follower] -= 1
            if self._waits[follower] == 0:
                self._make_ready(follower)

    def _change(self) -> None:
        """Availability changes; where it ends, all instances of the offer do."""
        for c in self._places:
            self._up[c] = self.case.quotes[c].available(self.now_s)
            for one in [k for k in self.instances if k.place == c and not self._up[c]]:
                if one.step != IDLE:
                    start_s = min(one.start_s, self.now_s)
                    self.attempts.append(Attempt(one.step, c, start_s, self.now_s, whole=False))
                    self.lost.append((self.now_s, c))
                    self._make_ready(one.step)
                self._close(one, gone=True)

    def _make_ready(self, step: int) -> None:
        self.ready = sorted([*self.ready, step], key=self._order.__getitem__)

    def _close(self, one: Instance, gone: bool) -> None:
        self._closed_usd += self._bill(one, gone)
        self.held.append((one.place, one.since_s, self.now_s))
        self.instances.remove(one)

    def _bill(self, one: Instance, gone: bool = False) -> float:
        minimum_s = self.case.conditions.minimum_s
        return bill_usd(one, self.case.quotes[one.place], self.now_s, minimum_s, gone)
