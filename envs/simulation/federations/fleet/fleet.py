"""Applications on one clock: always the one that has the next event goes on.

    fleet = Fleet(entrants, quotas)
    while (asked := fleet.advance()) is not None:
        number, question = asked
        fleet.answer(policies[number].decide(question, fleet.world(number)))
    played = fleet.played(names)

An application begins when its time has come and its whole claim (`Entrant.claim`) can be rented at once. A
client that could not be placed because of others is asked about again (START) as soon as something is given
back. All draws of an application are functions of its own seed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from envs.simulation.federations.fleet.calendar import begun_at
from envs.simulation.federations.fleet.ledger import Ledger, Share
from envs.simulation.federations.fleet.quotas import SharedQuota
from envs.simulation.federations.rounds.application import Application
from envs.simulation.federations.rounds.decisions import Answer, Question, RoundScheduler, State
from envs.simulation.federations.rounds.history import Outcome
from envs.simulation.federations.rounds.server import SERVER
from envs.simulation.federations.rounds.world import RoundsWorld


@dataclass(frozen=True)
class Entrant:
    """An application that wants to run.

    Attributes:
        application: what runs. Its times count from its beginning; prices, availability and degradations
            are those of the fleet's clock.
        root: its seed, or the seed sequence of an episode.
        claim: by task (a client's index, or SERVER), an offer on which it can run while all others run on
            theirs, and that its policy would take if no other were left.
        start_s: when it may begin, in whole seconds of the fleet's clock.
        reserve: whether it keeps the places of its tasks to its end, also while it has released them;
            otherwise others may rent there in the meantime.
    """

    application: Application
    root: int | np.random.SeedSequence
    claim: Mapping[int, int]
    start_s: int = 0
    reserve: bool = False

    def __post_init__(self) -> None:
        tasks = dict(enumerate(client.offers for client in self.application.clients))
        if self.application.server is not None:
            tasks[SERVER] = self.application.server.offers
        if set(self.claim) != set(tasks):
            raise ValueError(
                f"{self.application.name!r} claims offers for the tasks {sorted(self.claim)}: "
                f"expected {sorted(tasks)}"
            )
        for task, offer in self.claim.items():
            if offer not in tasks[task]:
                raise ValueError(
                    f"task {task} of {self.application.name!r} claims offer {offer}: not its own"
                )
        if self.start_s < 0:
            raise ValueError(f"{self.application.name!r} starts at {self.start_s} s: expected seconds >= 0")


@dataclass(frozen=True)
class Played:
    """What became of an entrant.

    Attributes:
        start_s: when it might have begun.
        begun_s: when it began; `outcome` counts its seconds from here.
        outcome: what happened then.
    """

    start_s: int
    begun_s: int
    outcome: Outcome

    @property
    def waited_s(self) -> int:
        """How long it waited for its beginning."""
        return self.begun_s - self.start_s

    @property
    def end_s(self) -> int:
        """When it was over."""
        return self.begun_s + self.outcome.time_s


class Fleet:
    """Several applications that share quotas.

    Args:
        entrants: where two could act at the same second, the one with the earlier `start_s` goes first;
            of those that start together, the earlier one in this list.
        quotas: what all together may rent at once; each application's own quotas hold as well.

    Raises:
        ValueError: without entrants, or for a claim that the quotas never allow.
    """

    def __init__(self, entrants: Sequence[Entrant], quotas: Sequence[SharedQuota] = ()) -> None:
        if not entrants:
            raise ValueError("a fleet has no applications: give at least one")
        self.now_s = 0
        self._entrants = tuple(entrants)
        self._ledger = Ledger(quotas)
        self._shares = [
            Share(self._ledger, entrant.application, entrant.claim, entrant.reserve) for entrant in entrants
        ]
        self._worlds: list[RoundsWorld | None] = [None] * len(entrants)
        self._begun_s: list[int] = [0] * len(entrants)
        self._due_s: list[float] = [entrant.start_s for entrant in entrants]
        """When each that has not begun tries to; infinite while it waits for others."""
        self._waiting: set[tuple[int, int]] = set()
        """(entrant, client) that could not be placed because of others."""
        self._asked: tuple[int, Question] | None = None
        self._order = sorted(range(len(entrants)), key=lambda k: (entrants[k].start_s, k))

    def world(self, number: int) -> RoundsWorld:
        """An entrant's world, once it has begun."""
        world = self._worlds[number]
        assert world is not None, "the application has not begun"
        return world

    def advance(self) -> tuple[int, Question] | None:
        """Go on until somebody must decide: (number of the entrant, question). None: all are over.

        Raises:
            InvalidAnswerError: if an application cannot go on: a client that it needs is never started.
        """
        assert self._asked is None, "the last question has not been answered"
        while True:
            self._tell_freed()
            time_s, begins, number = min(map(self._next, self._order), key=lambda item: item[:2])
            if time_s == math.inf:
                if not self._ledger.begun:
                    return None
                number = next(k for k, world in enumerate(self._worlds) if world and not world.ended)
            else:
                self.now_s = int(time_s)
            if begins:
                self._begin(number)
                continue
            world = self.world(number)
            question = world.advance(time_s - self._begun_s[number])
            if question is not None:
                self._waiting.discard((number, question.client))
                self._shares[number].refused = False
                self._asked = (number, question)
                return self._asked
            if world.ended:
                self._shares[number].close()

    def answer(self, answer: Answer) -> None:
        """Do what was decided about the client that was asked about. Raises as `RoundsWorld.answer`."""
        assert self._asked is not None, "no question has been asked"
        number, question = self._asked
        self._asked = None
        world = self.world(number)
        world.answer(answer)
        if self._shares[number].refused and world.member(question.client).state is State.OFF:
            self._waiting.add((number, question.client))

    def played(self, policies: Sequence[str]) -> list[Played]:
        """What happened to each entrant, once `advance` has returned None.

        Args:
            policies: names, one for each entrant.
        """
        return [
            Played(entrant.start_s, self._begun_s[k], self.world(k).outcome(policies[k]))
            for k, entrant in enumerate(self._entrants)
        ]

    def _next(self, number: int) -> tuple[float, bool, int]:
        """When an entrant goes on, and whether by beginning: those that run go before those that begin."""
        world = self._worlds[number]
        if world is None:
            return self._due_s[number], True, number
        # A world that is over has still to be closed.
        if world.ended and self._shares[number] in self._ledger.begun:
            return self._begun_s[number] + world.now_s, False, number
        return self._begun_s[number] + world.next_s, False, number

    def _begin(self, number: int) -> None:
        entrant, share = self._entrants[number], self._shares[number]
        self._due_s[number] = math.inf
        if not share.fits():
            return
        self._ledger.begun.append(share)
        self._begun_s[number] = self.now_s
        self._worlds[number] = RoundsWorld(begun_at(entrant.application, self.now_s), entrant.root, share)

    def _tell_freed(self) -> None:
        """Ask all that wait for others once more, if something was given back."""
        if not self._ledger.freed:
            return
        self._ledger.freed = False
        for number, client in sorted(self._waiting):
            self.world(number).ask_again(client, self.now_s - self._begun_s[number])
        self._waiting.clear()
        for number, world in enumerate(self._worlds):
            if world is None and self._entrants[number].start_s <= self.now_s:
                self._due_s[number] = self.now_s


def play_fleet(
    entrants: Sequence[Entrant], policies: Sequence[RoundScheduler], quotas: Sequence[SharedQuota] = ()
) -> list[Played]:
    """Simulate several applications to their ends.

    Args:
        entrants: the applications.
        policies: one for each, not shared; each takes every decision of its application.
        quotas: what all together may rent at once.

    Raises:
        ValueError: as `Fleet`.
        InvalidAnswerError: if a policy answers what cannot be done.
    """
    fleet = Fleet(entrants, quotas)
    begun: set[int] = set()
    while (asked := fleet.advance()) is not None:
        number, question = asked
        world, policy = fleet.world(number), policies[number]
        if number not in begun:
            begun.add(number)
            policy.start(world)
        fleet.answer(policy.decide(question, world))
    return fleet.played([policy.name for policy in policies])
