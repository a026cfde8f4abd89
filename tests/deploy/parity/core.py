"""One episode of the simulated market, driven from outside: what was asked of it happens, and time goes on.

The core is the one that `spotweave/MultiCloud-v5` steps. There it stops at each decision and is told one
action; here it stops wherever something can be seen (a job arrived, is due, started, ended, was interrupted
or is late, or the price of something rented changed), and a scheduler asks for what it wants. A job that is
due and is given nothing was told "none for now".
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from spotweave.agents.rules.policy import from_python
from spotweave.deploy.providers.base import CapacityError, QuotaError, RefusedError
from spotweave.envs.simulation.market import columns as at
from spotweave.envs.simulation.market.clock import (
    catch,
    fill_window,
    live_instant,
    look_at,
    next_instant,
    sample_occupation,
)
from spotweave.envs.simulation.market.episodes import sync_availability, sync_price
from spotweave.envs.simulation.market.ledger import may_move, share_after, work_done_s
from spotweave.envs.simulation.market.members import is_client
from spotweave.envs.simulation.market.placement import apply_decision
from spotweave.envs.simulation.market.state import NEVER, clear_lane
from spotweave.envs.simulation.market.world import MarketWorld
from spotweave.envs.simulation.series import Ints
from spotweave.envs.simulation.world import EpisodeKey
from tests.deploy.parity.workload import is_server, serve_at_once, server_place

ORIGIN_S = 1_700_000_100
"""Epoch second at which episodes begin; a whole number of the steps at which occupancy is sampled."""
_LANE = 0
# Phases in which all that a scheduler sees is that a job runs.
_SEEN = np.arange(at.DONE + 1)
_SEEN[[at.IDLE, at.MOVING]] = at.WORKING


@dataclass
class Stay:
    """A job on an offer, from the request for its instances to their end; times in episode seconds."""

    job: int
    offer: int
    asked_s: int
    ran_s: int | None = None  # since when its instances run; None: they do not yet, or never did
    ended_s: int | None = None
    by_provider: bool = False  # whether their provider ended them, or never started them
    moved: bool = False  # whether the job left for another offer
    names: list[str] = field(default_factory=list)  # of its instances, as far as they were asked for


class SimulationCore:
    """An episode of a market world of one lane, without hibernation, of which live has a way of its own.

    Servers of federated applications run on the owned cluster: live they run with the scheduler, and are no
    tasks. `stays` are all that began, in order.
    """

    def __init__(self, world: MarketWorld, key: EpisodeKey) -> None:
        if world.n_lanes != 1 or world.config.market.hibernate:
            raise ValueError("the core needs a world of one lane with market.hibernate=false")
        self.world = world
        world.reset([key])
        slot = int(world.lanes.episode_of_lane[_LANE])
        # Back to the very start: a reset goes on to the first decision.
        clear_lane(world.lanes, _LANE, slot, int(world.episodes.n_jobs[slot]))
        self.lanes, self.rules, self.offers = world.lanes, world.rules, world.offers
        self.episodes, self.slot = world.episodes, slot
        self.job = world.episodes.job[slot]
        self.stays: list[Stay] = []
        self._open: dict[int, Stay] = {}
        self._left: dict[int, Stay] = {}
        """By job that moves: where it still saves its work."""
        self._asked = False
        self.epochs_s: dict[int, int] = {}
        """By client: how long its latest epoch took."""

    @property
    def now(self) -> int:
        """Seconds since the episode's start."""
        return int(self.lanes.lane[_LANE, at.NOW_S])

    @property
    def arrived(self) -> int:
        return int(self.lanes.lane[_LANE, at.ARRIVED])

    @property
    def over(self) -> bool:
        """Whether all jobs have ended, or the episode was cut off."""
        state = self.lanes.lane[_LANE]
        return bool(state[at.CLOSED] == state[at.LIMIT] or state[at.STATUS] != at.RUNNING)

    def metrics(self) -> dict[str, float]:
        self._go()
        return dict(self.world.metrics(_LANE))

    def phase(self, job: int) -> int:
        return int(self.lanes.job[_LANE, job, at.PHASE])

    def saved(self, job: int) -> float:
        """Share of a job's execution that is safe, or, where no provider takes it away, can be made so."""
        if self.phase(job) != at.WORKING:
            return float(self.lanes.job_real[_LANE, job, at.SAVED])
        work_s = from_python(work_done_s)(self.lanes, self.episodes, _LANE, job, self.now, self._on_spot(job))
        return float(from_python(share_after)(self.lanes, _LANE, job, work_s))

    def put(self, job: int, offer: int) -> Stay:
        """Ask for all instances of a job on an offer; further requests for the same stay change nothing.

        A job that has a place moves, as it does in the world: where the safety net takes it off spot capacity
        at once, else once its work is saved. The world launches the new instances only then.
        """
        there = self._open.get(job)
        if there is not None and there.offer == offer and there.asked_s == self.now:
            return there
        name = self.world.spec.cluster_names[offer]
        moves = there is not None and self._can_move(job, offer)
        if self.phase(job) != at.BUFFERED and not moves:
            raise RefusedError(f"job {job} is not in the buffer: it cannot go to {name}")
        if not from_python(sync_availability)(self.lanes, self.episodes, _LANE, offer, self.now):
            raise CapacityError(f"no capacity on {name}")
        quota, queues = self.offers.fixed[offer, [at.QUOTA, at.QUEUES]]
        taken = 0 if queues else self.lanes.offer[_LANE, offer, at.USED]
        if taken + self.job[job, at.EXECUTORS] > quota:
            raise QuotaError(
                f"{taken} of {quota} instances run on {name}, {self.job[job, at.EXECUTORS]} more do not fit"
            )
        if there is not None and self.lanes.when[_LANE, job, at.DUE_S] > self.now:
            from_python(catch)(self.lanes, self.episodes, self.offers, self.rules, _LANE, job, offer)
        else:
            self._decide(job, offer)
        if there is not None:
            there.moved = True
            self._left[job] = self._open.pop(job)
        # Until a launch, or a queue, ends nothing more can be seen of it.
        self._asked |= self.phase(job) not in (at.QUEUED, at.LAUNCHING)
        stay = Stay(job, offer, self.now)
        self._open[job] = stay
        self.stays.append(stay)
        self._look()
        return stay

    def _on_spot(self, job: int) -> bool:
        return bool(self.offers.fixed[self.lanes.job[_LANE, job, at.OFFER], at.SPOT])

    def _can_move(self, job: int, offer: int) -> bool:
        """Whether the world moves a job there now: caught on spot capacity, or asked about elsewhere."""
        phase = self.phase(job)
        if self.lanes.when[_LANE, job, at.DUE_S] <= self.now:
            return bool(from_python(may_move)(self.lanes, self.episodes, _LANE, job))
        caught = phase in (at.LAUNCHING, at.SETTING_UP, at.WORKING) and self._on_spot(job)
        return caught and not self.offers.fixed[offer, at.SPOT]

    def _late(self) -> bool:
        """Whether the safety net has to act now; if not, it is noted when it has to look again."""
        whole = (self.lanes, self.episodes, self.offers, self.rules, _LANE)
        jobs = np.flatnonzero(self.lanes.when[_LANE, : self.arrived, at.NET_S] <= self.now)
        places = [from_python(look_at)(*whole, int(job)) for job in jobs]
        return max(places, default=-1) >= 0

    def release(self, stay: Stay) -> None:
        """End the instance of a federated client that is idle. Raises RefusedError for others."""
        job = stay.job
        if from_python(is_client)(self.episodes, self.slot, job) and self.phase(job) == at.IDLE:
            self._decide(job, self.world.spec.n_clusters)
        elif not self._given_back(job):
            raise RefusedError(f"job {job} runs, and the core knows no way to end it: jobs end by themselves")
        stay.ended_s = self.now
        del self._open[job]
        self._asked = True

    def _given_back(self, job: int) -> bool:
        """Whether a client has delivered its last round: then the world ends its instance, as live does."""
        done = self.lanes.job[_LANE, job, at.EXECUTED] == self.job[job, at.EXECUTIONS]
        return bool(
            from_python(is_client)(self.episodes, self.slot, job) and done and self.phase(job) == at.BUFFERED
        )

    def _settle_due(self) -> None:
        """What is due now and was given nothing was told "none for now"; a client that is idle stays.

        When clients are asked again is the live side's own affair.
        """
        due = self.lanes.when[_LANE, : self.arrived, at.DUE_S] <= self.now
        for job in map(int, np.flatnonzero(due)):
            if from_python(is_client)(self.episodes, self.slot, job):
                self.lanes.when[_LANE, job, at.DUE_S] = NEVER
            else:
                self._decide(job, self.world.spec.n_clusters)

    def go_on(self, wake_s: float = math.inf) -> None:
        """Let time pass until something can be seen, or `wake_s` (episode seconds).

        None passes when what was asked for is there at once.
        """
        self._settle_due()
        if self._asked:
            self._asked = False
            return
        while not self.over:
            before, phases = self._visible(), self.lanes.job[_LANE, :, at.PHASE].copy()
            moment = from_python(next_instant)(self.lanes, self.episodes, self.offers, _LANE)
            price_s = min(self._next_price_s(), wake_s)
            if min(moment, price_s) > self.rules.max_s:
                self._go()  # which cuts the episode off
                self._look()
                return
            from_python(sample_occupation)(
                self.lanes, self.offers, self.rules, _LANE, int(min(moment, price_s))
            )
            self.lanes.lane[_LANE, at.NOW_S] = int(min(moment, price_s))
            if price_s < moment:
                return
            done = self.lanes.job[_LANE, :, at.EXECUTED].copy()
            from_python(live_instant)(self.lanes, self.episodes, self.offers, self.rules, _LANE)
            self._time_epochs(phases, done)
            self._serve()
            self._look()
            late = self._late()
            seen = late or from_python(fill_window)(self.lanes, _LANE) or self._visible() != before
            if seen or price_s == moment:
                return

    def _time_epochs(self, phases: Ints, done: Ints) -> None:
        """Note how long the epochs took that ended at this moment."""
        state = self.lanes.job[_LANE]
        for job in map(int, np.flatnonzero((phases == at.WORKING) & (state[:, at.EXECUTED] > done))):
            self.epochs_s[job] = self.now - int(state[job, at.WORK_START_S])

    def _serve(self) -> None:
        for job in range(self.arrived):
            if is_server(self.episodes, self.slot, job) and self.phase(job) == at.BUFFERED:
                self._decide(job, server_place(self.world))
                serve_at_once(self.world, job)

    def _decide(self, job: int, offer: int) -> None:
        self.lanes.lane[_LANE, at.DECISIONS] += 1
        from_python(apply_decision)(self.lanes, self.episodes, self.offers, self.rules, _LANE, job, offer)

    def _go(self) -> None:
        self.world.go_on(_LANE)

    def _look(self) -> None:
        """Note which stays began to run, and which ended, at this moment."""
        for job in [job for job in self._left if self.phase(job) != at.MOVING]:
            self._left.pop(job).ended_s = self.now
        for job, stay in list(self._open.items()):
            phase = self.phase(job)
            if self._given_back(job):
                continue
            if phase in (at.BUFFERED, at.DONE):
                stay.ended_s, stay.by_provider = self.now, phase == at.BUFFERED
                del self._open[job]
            elif phase not in (at.QUEUED, at.LAUNCHING, at.MOVING) and stay.ran_s is None:
                stay.ran_s = self.now

    def _visible(self) -> tuple[int, bytes]:
        jobs = self.lanes.job[_LANE]
        federated = self.job[:, at.CLIENTS] > 0
        phases = np.where(federated, jobs[:, at.PHASE], _SEEN[jobs[:, at.PHASE]])
        seen = np.stack([phases, jobs[:, at.MISSES], jobs[:, at.EXECUTED]])
        return self.arrived, seen.tobytes()

    def _next_price_s(self) -> float:
        """When the price of something that runs changes next."""
        found = math.inf
        for offer in {stay.offer for stay in self._open.values() if stay.ran_s is not None}:
            row = from_python(sync_price)(self.lanes, self.episodes, _LANE, offer)
            found = min(found, self.episodes.price[self.slot, offer, row, at.UNTIL])
        return found
