"""The market world once more, for reading: one object per job, series looked up afresh, no tricks.

Written from the world's description, not from the kernels. The kernels must equal it in every observation,
reward, metric and value component, bit for bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation import snapshot
from spotweave.envs.simulation.market.config import PROVIDERS, MarketWorldConfig, OfferConfig
from spotweave.envs.simulation.market.episodes import EpisodeData
from spotweave.envs.simulation.market.source import MarketData
from spotweave.envs.simulation.series import StepSeries

PER_USD = 3_600_000_000
MASK = 2**64 - 1
DAY = 86_400
LATENCY, FAILURE, NOTICE = 0, 1, 2


def draw(key: int, job: int, attempt: int, purpose: int) -> float:
    """splitmix64 of the counters, as a number in [0, 1)."""
    x = key + (job + 1) * 0x9E3779B97F4A7C15 + attempt * 0xC2B2AE3D27D4EB4F
    x = (x + (purpose + 1) * 0x165667B19E3779F9) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    x ^= x >> 31
    return (x >> 11) / 2**53


@dataclass
class Job:
    """A job and where it is: buffered, hibernated, queued, launching, setup, working, idle, moving, done."""

    number: int
    category: snapshot.Category
    executors: int
    arrival_s: int
    standard_s: int
    expected_hetero: int
    sensitivity: int
    executions: int
    period_s: int
    allowance_s: int
    data_gb: float
    checkpoint_gb: float
    interval_s: int
    dump_s: int
    home: int
    execution_s: list[int]

    state: str = "buffered"
    offer: int | None = None
    until: int | None = None  # when the state ends
    due: int | None = None  # next decision
    movable: int | None = None  # of a stream: at the end of a batch it is asked from then on
    entered: int = 0
    target: int = -1
    reserved: bool = False  # of a moving job: whether its target's pool counts it
    attempt: int = 0
    failing: bool = False
    finished: int = 0  # executions
    saved: float = 0.0
    base: float = 0.0
    work: int = 0
    work_from: int = 0
    work_to: int = 0
    left_queue: int = 0
    waited: bool = False
    billed_from: int = 0
    frozen_at: int = 0
    frozen_left: int = 0
    frozen_state: str = ""
    checkpoint: int | None = None  # region
    deployment: int = 0
    interruptions: int = 0
    judged: int = 0  # executions whose deadline has passed or that are finished
    misses: int = 0
    mutual: float = 0.0
    delay: float = 0.0
    charge: int = 0
    owned_s: int = 0

    @property
    def streaming(self) -> bool:
        return self.category == snapshot.Category.STREAMING

    @property
    def running(self) -> bool:
        """Whether it works, or is a stream that waits for its next batch."""
        return self.state == "working" or (self.state == "idle" and self.streaming)

    @property
    def deadline(self) -> int | None:
        """The next moment at which a deadline of it may pass."""
        if (
            self.state == "done"
            or self.category == snapshot.Category.GENERAL
            or self.judged >= self.executions
        ):
            return None
        return self.arrival_s + (self.judged + 1) * self.period_s + self.allowance_s

    def due_of_batch(self, batch: int) -> int:
        return self.arrival_s + (batch + 1) * self.period_s


@dataclass
class Totals:
    """Counters of the episode."""

    interruptions: int = 0
    launch_failures: int = 0
    miss_tc: int = 0
    miss_batches: int = 0
    egress: int = 0
    on_demand: int = 0
    spot: int = 0
    disk: int = 0
    owned_s: int = 0
    lost_s: int = 0
    delay: float = 0.0


@dataclass
class Pool:
    """Executors of one offer."""

    number: int
    offer: OfferConfig
    region: int
    used: int = 0
    halted: int = 0
    missed: int = 0
    deployments: int = 0
    samples: list[int] = field(default_factory=list)
    added: int = 0  # executors of an elastic cluster beyond its own
    full_at: int | None = None

    @property
    def capacity(self) -> int:
        return self.offer.quota + self.added

    @property
    def most(self) -> int:
        return self.offer.quota + self.offer.elastic

    @property
    def owned(self) -> bool:
        return self.offer.market == "owned"


class MarketOracle:
    """One episode. `decide(position, offer)` while `window` is not empty and not `over`."""

    def __init__(self, config: MarketWorldConfig, data: MarketData, episode: EpisodeData) -> None:
        self.market = config.market
        self.data = data
        self.episode = episode
        self.pools = [Pool(c, offer, data.regions.index(offer.region)) for c, offer in enumerate(data.offers)]
        drawn = {name: column.tolist() for name, column in vars(episode.jobs).items() if column is not None}
        self.jobs = [
            Job(j, **dict(zip(drawn, row, strict=True)))
            for j, row in enumerate(zip(*drawn.values(), strict=True))
        ]
        self.present: list[Job] = []  # arrived, by number
        self.queue: list[Job] = []
        self.decay = self.market.beta ** np.arange(1000.0)
        self.now = 0
        self.sampled = 0
        self.decisions = 0
        self.totals = Totals()
        self.over = False
        self.truncated = False
        self.decided: Job | None = None
        self.mark: list[float] = [0.0] * 4
        self._advance()
        self.last_objective = self.objective()

    def pool_of(self, job: Job) -> Pool:
        """Where it is."""
        assert job.offer is not None
        return self.pools[job.offer]

    # -- decisions ---------------------------------------------------------------------------------------

    @property
    def window(self) -> list[Job]:
        if self.over:
            return []
        return [job for job in self.present if job.due is not None and job.due <= self.now][
            : self.market.window
        ]

    def decide(self, position: int, offer: int) -> float:
        job = self.window[position]
        self.decided = job
        self.mark = self.felt(job)
        self.decisions += 1
        if offer == len(self.pools):
            if job.running:
                self._ask_later(job)
            else:
                job.due = self.now + self.market.decision_interval_s
        elif job.running:
            job.due = None
            job.saved = self.progress(job)
            job.checkpoint = self.pool_of(job).region
            job.state, job.target, job.until = "moving", offer, self.now + job.dump_s
            job.reserved = not self.pools[offer].owned or self._has_room(job, offer)
            if job.reserved:
                self.pools[offer].used += job.executors
        else:
            job.due = None
            if job.state == "hibernated":
                self._pay_disk(job)
                if job.frozen_state == "moving":
                    self._cancel_move(job)
                if job.frozen_state == "working":
                    self._lose(job, job.frozen_at - job.work_from)
            if not self.pools[offer].owned:
                self.pools[offer].used += job.executors
            self._come(job, offer)
        self._advance()
        before, self.last_objective = self.last_objective, self.objective()
        return before - self.last_objective

    # -- time --------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        while True:
            if all(job.state == "done" for job in self.jobs):
                self.over = True
                return
            if self.decisions >= self.market.max_decisions:
                self._truncate()
                return
            if self.window:
                return
            moments = [job.arrival_s for job in self.jobs[len(self.present) :]][:1]
            for job in self.present:
                moments += [m for m in (job.until, job.due, job.deadline) if m is not None]
                if job.state == "hibernated" or (job.offer is not None and self._spot(job.offer)):
                    series = self.episode.availability[self.pool_of(job).number]
                    moments += [int(t) for t in _flips(series) if t > self.now][:1]
            moments += [self.sampled * 300 for pool in self.pools if pool.offer.elastic and pool.halted]
            t = min(moments)
            self._sample(min(t, self.market.max_s))
            self.now = min(t, self.market.max_s)
            if t > self.market.max_s:
                self._truncate()
                return
            self._live()

    def _sample(self, t: int) -> None:
        while self.sampled * 300 <= t:
            for pool in self.pools:
                pool.samples.append(pool.used)
                if pool.offer.elastic:
                    self._extend(pool, self.sampled * 300)
            self.sampled += 1

    def _extend(self, pool: Pool, t: int) -> None:
        if pool.halted or pool.used >= 0.95 * pool.capacity:
            pool.full_at = t
        step = self.market.elastic_step
        if pool.full_at is not None and t - pool.full_at <= self.market.elastic_window_s:
            pool.added = min(pool.added + step, pool.offer.elastic)
        elif pool.used <= pool.offer.quota + max(pool.added - step, 0):
            pool.added = max(pool.added - step, 0)

    def _live(self) -> None:
        for job in self.present:
            if job.until == self.now:
                self._state_ends(job)
        for c in range(len(self.pools)):
            if self._spot(c) and self.now in _flips(self.episode.availability[c]):
                up = self._available(c)
                for job in self.present:
                    if job.offer == c:
                        self._availability_changes(job, up)
        self._serve()
        for job in self.present:
            if job.deadline is not None and job.deadline <= self.now:
                self._miss(job)
        while len(self.present) < len(self.jobs) and self.jobs[len(self.present)].arrival_s <= self.now:
            job = self.jobs[len(self.present)]
            self.present.append(job)
            job.due = job.entered = self.now

    def _state_ends(self, job: Job) -> None:
        if job.state == "launching":
            if job.failing:
                self._launch_failed(job)
            else:
                self._set_up(job)
        elif job.state == "setup":
            self._work(job)
            market = self.pool_of(job).offer.market
            job.movable = None
            asked = market == "on_demand" or (market == "spot" and job.streaming)
            if asked and self.market.reconsider_interval_s > 0:
                self._ask_later(job)
        elif job.state == "idle":
            self._work(job)
        elif job.state == "working":
            self._execution_ends(job)
        elif job.state == "moving":
            self._pay(job, by_provider=False)
            self._leave(job)
            self._come(job, job.target, counted=job.reserved)

    def _ask_later(self, job: Job) -> None:
        again = self.now + self.market.reconsider_interval_s
        job.due, job.movable = (None, again) if job.streaming else (again, None)

    def _truncate(self) -> None:
        for job in self.jobs:
            if job.state == "done":
                continue
            if job.category != snapshot.Category.GENERAL:
                left = job.executions - job.judged
                job.misses += left
                if job.streaming:
                    self.totals.miss_batches += left
                else:
                    self.totals.miss_tc += left
            if job in self.present:
                job.delay = self.delay_of(job)
            if job.state == "hibernated":
                self._pay_disk(job)
            elif job.state in ("setup", "working", "idle", "moving"):
                self._pay(job, by_provider=False)
            job.state, job.offer, job.due, job.until = "done", None, None, None
            self.totals.delay += job.delay
        self.over = self.truncated = True

    # -- a job's way -------------------------------------------------------------------------------------

    def _buffer(self, job: Job) -> None:
        job.state, job.offer, job.until = "buffered", None, None
        job.due = job.entered = self.now

    def _leave(self, job: Job) -> None:
        self.pool_of(job).used -= job.executors

    def _has_room(self, job: Job, c: int) -> bool:
        if self.market.strict_fifo and any(other.offer == c for other in self.queue):
            return False
        return self.pools[c].used + job.executors <= self.pools[c].capacity

    def _cancel_move(self, job: Job) -> None:
        if job.reserved:
            self.pools[job.target].used -= job.executors

    def _come(self, job: Job, c: int, *, counted: bool = False) -> None:
        pool = self.pools[c]
        pool.deployments += 1
        job.offer, job.deployment, job.waited = c, pool.deployments, False
        if pool.owned and counted:
            job.entered = job.left_queue = self.now
            self._set_up(job)
            return
        if pool.owned:
            job.state, job.until, job.entered = "queued", None, self.now
            pool.halted += job.executors
            self.queue.append(job)
            self._serve()
            return
        job.attempt += 1
        chance = draw(self.episode.launch_key, job.number, job.attempt, FAILURE)
        job.failing = not self._available(c) or chance < pool.offer.launch_failure
        latency = pool.offer.launch_s * (
            0.5 + draw(self.episode.launch_key, job.number, job.attempt, LATENCY)
        )
        job.state = "launching"
        job.until = self.now + (self.market.failure_s if job.failing else math.ceil(latency))

    def _launch_failed(self, job: Job) -> None:
        self.totals.launch_failures += 1
        self._leave(job)
        self._buffer(job)

    def _serve(self) -> None:
        waiting: list[Job] = []
        for job in self.queue:
            pool = self.pool_of(job)
            blocked = self.market.strict_fifo and any(other.offer == job.offer for other in waiting)
            if blocked or pool.used + job.executors > pool.capacity:
                waiting.append(job)
                continue
            pool.halted -= job.executors
            pool.used += job.executors
            job.waited = self.now > job.entered
            job.left_queue = self.now
            self._set_up(job)
        self.queue = waiting

    def _set_up(self, job: Job) -> None:
        region = self.pool_of(job).region
        egress = self.egress(job, region, job.checkpoint)
        job.charge += egress
        self.totals.egress += egress
        job.billed_from = self.now
        job.state, job.until = "setup", self.now + self.set_up_s(job, region, job.checkpoint)

    def _work(self, job: Job) -> None:
        if job.streaming and self.now < job.due_of_batch(job.finished):
            job.state, job.until = "idle", job.due_of_batch(job.finished)
            return
        job.base = job.saved
        job.work = left_s(job.execution_s[self.pool_of(job).number], job.saved)
        job.work_from = self.now
        job.state, job.until = "working", self.now + wall_s(job.work, job.interval_s, job.dump_s)

    def _execution_ends(self, job: Job) -> None:
        if job.streaming:
            late = self.now - job.due_of_batch(job.finished) - job.standard_s
            job.delay += late / (3600.0 * job.executions)
        job.finished += 1
        job.saved = 0.0
        job.judged = max(job.judged, job.finished)
        if job.finished < job.executions:
            job.checkpoint = self.pool_of(job).region
            self._work(job)
            if job.movable is not None and job.movable <= self.now:
                job.due = self.now
            return
        if not job.streaming:
            job.delay = (self.now - job.arrival_s - job.standard_s) / 3600.0
        self._pay(job, by_provider=False)
        self._leave(job)
        job.state, job.offer, job.until, job.due = "done", None, None, None
        self.totals.delay += job.delay

    # -- interruptions -----------------------------------------------------------------------------------

    def _availability_changes(self, job: Job, up: bool) -> None:
        if up:
            if job.state == "hibernated":
                self._resume(job)
        elif job.state == "launching":
            self._launch_failed(job)
        elif job.state != "hibernated":
            self._interrupt(job)

    def _interrupt(self, job: Job) -> None:
        pool = self.pool_of(job)
        hibernates = pool.offer.interruption == "hibernate"
        job.interruptions += 1
        self.totals.interruptions += 1
        self._pay(job, by_provider=True)
        if job.state == "working":
            luck = draw(self.episode.revocation_key, job.number, job.attempt, NOTICE)
            noticed = luck >= pool.offer.notice_missed and job.dump_s <= pool.offer.notice_s
            if noticed and not hibernates:
                job.saved = self.progress(job)
                job.checkpoint = pool.region
            else:
                elapsed = self.now - job.work_from
                kept = checkpointed_s(elapsed, job)
                if kept > 0:
                    job.saved = job.base + (1.0 - job.base) * kept / job.work
                    job.checkpoint = pool.region
                if not hibernates:
                    self._lose(job, elapsed)
        self._leave(job)
        if not hibernates:
            if job.state == "moving":
                self._cancel_move(job)
            self._buffer(job)
            return
        assert job.until is not None
        job.frozen_at, job.frozen_left, job.frozen_state = self.now, job.until - self.now, job.state
        job.state, job.until = "hibernated", None
        job.due = job.entered = self.now

    def _resume(self, job: Job) -> None:
        self._pay_disk(job)
        self.pool_of(job).used += job.executors
        pause = self.now - job.frozen_at
        job.work_from += pause
        job.state, job.due, job.billed_from = job.frozen_state, None, self.now
        job.until = self.now + job.frozen_left
        if job.state == "idle":
            job.until = max(self.now, job.due_of_batch(job.finished))

    def _lose(self, job: Job, elapsed: int) -> None:
        self.totals.lost_s += job.executors * (worked_s(elapsed, job) - checkpointed_s(elapsed, job))

    def _miss(self, job: Job) -> None:
        deadline = job.deadline
        assert deadline is not None
        job.misses += 1
        if job.streaming:
            self.totals.miss_batches += 1
        else:
            self.totals.miss_tc += 1
        if job.offer is not None:
            pool = self.pools[job.offer]
            pool.missed += 1
            waited = job.state == "queued" or job.waited
            if job.streaming and job.state != "queued":
                waited = waited and deadline - job.allowance_s < job.left_queue
            if pool.owned and waited:
                for other in self.present:
                    if other is not job and other.offer == job.offer:
                        later = pool.deployments - other.deployment
                        other.mutual += self.weight(job) * float(self.decay[later])
        job.judged += 1

    # -- money -------------------------------------------------------------------------------------------

    def integral(self, c: int, start: int, end: int) -> int:
        """Micro-dollars per hour, summed over the seconds of [start, end)."""
        series = self.episode.price_usd_hour[c]
        edges = [start, *(int(t) for t in series.times_s if start < t < end), end]
        return sum((b - a) * round(series.at(a) * 1e6) for a, b in pairwise(edges))

    def _pay(self, job: Job, by_provider: bool) -> None:
        pool = self.pool_of(job)
        offer, uptime = pool.offer, self.now - job.billed_from
        if offer.market == "owned":
            self.totals.owned_s += job.executors * uptime
            job.owned_s += job.executors * uptime
            return
        if by_provider and uptime < offer.free_first_s:
            return
        end = job.billed_from + max(uptime, 60)
        charge = job.executors * self.integral(pool.number, job.billed_from, end)
        job.charge += charge
        if offer.market == "spot":
            self.totals.spot += charge
        else:
            self.totals.on_demand += charge

    def _disk(self, job: Job) -> int:
        rate = round(self.market.disk_gb * self.market.disk_usd_gb_hour * 1e6)
        return job.executors * rate * (self.now - job.frozen_at)

    def _pay_disk(self, job: Job) -> None:
        job.charge += self._disk(job)
        self.totals.disk += self._disk(job)

    def egress(self, job: Job, region: int, checkpoint: int | None) -> int:
        charges = self.data.egress_usd_gb * float(PER_USD)
        amount = job.data_gb * charges[job.home, region]
        if checkpoint is not None:
            amount += job.checkpoint_gb * charges[checkpoint, region]
        return int(amount + 0.5)

    def owed(self, job: Job) -> int:
        if job.state == "hibernated":
            return self._disk(job)
        if job.state in ("setup", "working", "idle", "moving"):
            pool = self.pool_of(job)
            if not pool.owned:
                return job.executors * self.integral(pool.number, job.billed_from, self.now)
        return 0

    def owned_s(self, job: Job) -> int:
        """Executor-seconds on the owned cluster so far."""
        if job.state in ("setup", "working", "idle", "moving") and self.pool_of(job).owned:
            return job.owned_s + job.executors * (self.now - job.billed_from)
        return job.owned_s

    # -- totals ------------------------------------------------------------------------------------------

    def weight(self, job: Job) -> float:
        return self.market.batch_miss_usd / self.market.miss_usd if job.streaming else 1.0

    def progress(self, job: Job) -> float:
        if job.state != "working":
            return job.saved
        work = worked_s(self.now - job.work_from, job)
        return job.base + (1.0 - job.base) * work / job.work

    def delay_of(self, job: Job) -> float:
        if job.state == "done":
            return job.delay
        if not job.streaming:
            return (self.now - job.arrival_s - job.standard_s * self.progress(job)) / 3600.0
        waits = [self.now - job.due_of_batch(b) for b in range(job.finished, job.executions)]
        waits = [wait for wait in waits if wait >= 0]
        if not waits:
            return job.delay
        work = job.standard_s * self.progress(job)
        return job.delay + (sum(waits) - work) / (3600.0 * job.executions)

    def objective(self) -> float:
        totals = self.totals
        charge = totals.egress + totals.on_demand + totals.spot + totals.disk
        delay = totals.delay
        for job in self.present:
            if job.state != "done":
                charge += self.owed(job)
                delay += self.delay_of(job)
        misses = self.market.miss_usd * totals.miss_tc + self.market.batch_miss_usd * totals.miss_batches
        return charge / PER_USD + misses + self.market.delay_usd_hour * delay

    def felt(self, job: Job) -> list[float]:
        """The components of its value so far."""
        return [
            job.misses * self.weight(job),
            job.mutual,
            self.delay_of(job),
            (job.charge + self.owed(job)) / PER_USD,
            self.owned_s(job) / 3600.0,
        ]

    def values(self, job: Job, mark: list[float]) -> list[float]:
        return [m - f for m, f in zip(mark, self.felt(job), strict=True)]

    # -- what a policy sees ------------------------------------------------------------------------------

    def _spot(self, c: int) -> bool:
        return self.data.offers[c].market == "spot"

    def _available(self, c: int) -> bool:
        return self.episode.availability[c].at(self.now) > 0.5

    def set_up_s(self, job: Job, region: int, checkpoint: int | None) -> int:
        def slowness(a: int, b: int) -> float:
            inside, across = self.market.bandwidth_inside_gb_s, self.market.bandwidth_across_gb_s
            return 1.0 / inside if a == b else 1.0 / across

        seconds = job.data_gb * slowness(job.home, region)
        if checkpoint is not None:
            seconds += job.checkpoint_gb * slowness(checkpoint, region)
        return self.market.restart_s + math.ceil(seconds)

    def observation(self) -> snapshot.Observation:
        window = self.window
        n, c = len(window), len(self.pools)
        clusters = np.zeros((c, snapshot.N_CLUSTER_FIELDS), np.float32)
        occupation = np.zeros((c, snapshot.HISTORY_STEPS), np.float32)
        jobs = np.zeros((n, snapshot.N_JOB_FIELDS), np.float32)
        pairs = np.zeros((n, c, snapshot.N_PAIR_FIELDS), np.float32)
        for k, pool in enumerate(self.pools):
            self._show_pool(k, pool, clusters[k])
            latest = pool.samples[-snapshot.HISTORY_STEPS :]
            if latest:
                occupation[k, -len(latest) :] = np.array(latest, np.float32) / np.float32(pool.most)
        for k, job in enumerate(window):
            self._show_job(job, jobs[k])
            for o in range(c):
                self._show_pair(job, o, pairs[k, o])
        return snapshot.encode(snapshot.Snapshot(clusters, occupation, jobs, pairs, True), self.market.window)

    def _show_pool(self, c: int, pool: Pool, row: np.ndarray) -> None:
        offer = pool.offer
        spells = _spells(self.episode.availability[c], self.episode.history_s, self.now)
        up = self._available(c)
        day = max(self.episode.history_s, self.now - DAY)
        week = max(self.episode.history_s, self.now - 7 * DAY)
        in_day = sum(max(0, b - max(a, day)) for a, b, state in spells if state)
        last = len(spells) - 1
        in_week = [
            b - max(a, week) for k, (a, b, state) in enumerate(spells) if state and (b > week or k == last)
        ]
        recent = pool.samples[-100:]
        row[col.SEQUENCE] = c + 1
        row[col.CAPACITY_NORMAL] = offer.quota if pool.owned else 0
        row[col.CAPACITY_MAX] = pool.most
        row[col.CAPACITY_NOW] = pool.capacity if up else 0
        row[col.HETERO_FACTOR] = offer.hetero_factor
        row[col.USED] = pool.used
        row[col.HALTED] = pool.halted
        row[col.MISSED] = pool.missed
        row[col.MEAN_OCCUPATION] = sum(recent) / (len(recent) * pool.most) if recent else 0.0
        row[col.PRICE_USD_HOUR] = round(self.episode.price_usd_hour[c].at(self.now) * 1e6) / 1e6
        row[col.ON_DEMAND_USD_HOUR] = self.episode.on_demand_usd_hour[c]
        row[col.IS_SPOT] = self._spot(c)
        row[col.AVAILABLE] = up
        row[col.UP_RATIO] = in_day / (self.now - day) if self.now > day else float(up)
        row[col.SPELL_S] = self.now - spells[-1][0]
        if self._spot(c) and in_week:
            row[col.MEAN_UP_S] = sum(in_week) / len(in_week)
        row[col.LAUNCH_S] = 0 if pool.owned else offer.launch_s
        row[col.NOTICE_S] = offer.notice_s if self._spot(c) else 0
        row[col.PROVIDER] = PROVIDERS.index(offer.provider)
        row[col.REGION] = pool.region
        row[col.QUEUES] = pool.owned

    def _show_job(self, job: Job, row: np.ndarray) -> None:
        left = job.executions - job.finished
        running = job.running
        row[col.PRESENT] = 1
        row[col.CATEGORY] = job.category
        row[col.EXPECTED_HETERO] = job.expected_hetero
        row[col.SENSITIVITY] = job.sensitivity
        row[col.STANDARD_S] = job.standard_s
        row[col.EXECUTIONS] = left
        row[col.PERIOD_S] = job.period_s
        row[col.DURATION_S] = (
            left * job.period_s if job.streaming else job.standard_s * (1.0 - self.progress(job))
        )
        row[col.WAITED_S] = 0 if running else self.now - job.entered
        row[col.AGE_S] = self.now - job.arrival_s
        if job.category != snapshot.Category.GENERAL:
            row[col.SLACK_S] = self.slack(job)
            row[col.HAS_DEADLINE] = 1
        row[col.PROGRESS] = job.finished / job.executions if job.streaming else self.progress(job)
        row[col.RESTART_S] = self.market.restart_s
        row[col.CHECKPOINT_INTERVAL_S] = job.period_s if job.streaming else job.interval_s
        row[col.DATA_GB] = job.data_gb
        row[col.CHECKPOINT_GB] = job.checkpoint_gb
        row[col.INTERRUPTIONS] = job.interruptions
        row[col.RUNNING] = running
        row[col.MISSES] = job.misses
        if job.streaming:
            dues = [b for b in range(job.executions) if job.due_of_batch(b) <= self.now]
            row[col.BACKLOG] = len(dues) - job.finished

    def slack(self, job: Job) -> int:
        """Seconds to the deadline of the execution that is next to finish."""
        return job.arrival_s + (job.finished + 1) * job.period_s + job.allowance_s - self.now

    def _show_pair(self, job: Job, c: int, row: np.ndarray) -> None:
        running = job.running
        here = job.offer == c and (running or job.state == "hibernated")
        checkpoint = self.pool_of(job).region if running else job.checkpoint
        region = self.pools[c].region
        work = wall_s(left_s(job.execution_s[c], self.progress(job)), job.interval_s, job.dump_s)
        if here:
            if job.state == "working":
                assert job.until is not None
                work = job.until - self.now
            elif job.state == "hibernated" and job.frozen_state == "working":
                work = job.frozen_left
            elif job.state == "hibernated" and job.frozen_state == "setup":
                work += job.frozen_left
        row[col.REQUEST] = row[col.PEAK_REQUEST] = job.executors
        row[col.EXECUTION_S] = work
        row[col.DEADLINE_S] = self.slack(job) if job.category != snapshot.Category.GENERAL else 0
        row[col.EGRESS_USD] = self.egress(job, region, checkpoint) / PER_USD
        row[col.TRANSFER_S] = self.set_up_s(job, region, checkpoint) + (job.dump_s if running else 0)
        row[col.HERE] = here


def left_s(execution: int, share: float) -> int:
    """Work left of an execution of which a share is done."""
    return max(1, math.ceil((1.0 - share) * execution))


def wall_s(work: int, interval: int, dump: int) -> int:
    """Work with a checkpoint after every full interval but the last."""
    if interval == 0:
        return work
    return work + dump * (math.ceil(work / interval) - 1)


def worked_s(elapsed: int, job: Job) -> int:
    """Seconds of `elapsed` that were work, not checkpoints: second by second would give the same."""
    if job.interval_s == 0:
        return elapsed
    cycles, rest = divmod(elapsed, job.interval_s + job.dump_s)
    return cycles * job.interval_s + min(rest, job.interval_s)


def checkpointed_s(elapsed: int, job: Job) -> int:
    """Work that complete checkpoints hold."""
    return 0 if job.interval_s == 0 else elapsed // (job.interval_s + job.dump_s) * job.interval_s


def _flips(series: StepSeries) -> list[int]:
    """When availability changes."""
    values = series.values > 0.5
    return [int(t) for k, t in enumerate(series.times_s) if k > 0 and values[k] != values[k - 1]]


def _spells(series: StepSeries, start: int, now: int) -> list[tuple[int, int, bool]]:
    """(from, to, up) of every spell up to now, the current one last."""
    edges = [start, *(t for t in _flips(series) if t <= now)]
    ends = [*edges[1:], now]
    return [(a, b, series.at(a) > 0.5) for a, b in zip(edges, ends, strict=True)]
