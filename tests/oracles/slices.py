"""The slice world of Liu 2022 once more, for reading: dictionaries, a heap of events, no tricks.

Written from the text and the documented choices, not from the kernel. The kernel must equal it in every
observation, reward, metric and value component, bit for bit.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field

import numpy as np

from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.slices import observe
from spotweave.envs.simulation.slices.config import SliceWorldConfig
from spotweave.envs.simulation.slices.workload import Workload
from spotweave.envs.simulation.snapshot import N_CLUSTER_FIELDS, N_JOB_FIELDS, N_PAIR_FIELDS, Category


@dataclass
class OracleJob:
    """A job from its deployment on."""

    number: int
    cluster: int
    deployed_at: int
    requested_at: int = 0
    started_at: int | None = None  # of the current execution; None: it does not run
    waited: bool = False
    waited_first: bool = False
    actual_times: list[int] = field(default_factory=list)
    unqueued_misses: int = 0
    queued_misses: int = 0
    decayed_own: float = 0.0
    decayed_cluster: float = 0.0
    deployed_after: int = 0  # D_t: jobs deployed to the cluster after this one, until now
    misses_before: int = 0


@dataclass
class OracleCluster:
    """Executors and the local queue of one cluster."""

    normal: int
    elastic: bool
    extension: int = 0
    used: int = 0
    missed: int = 0
    queue: list[int] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)

    @property
    def capacity(self) -> int:
        return self.normal + self.extension


class SliceOracle:
    """One episode. `decide(position, cluster)` as long as `buffer` is not empty and not `finished`."""

    def __init__(self, config: SliceWorldConfig, workload: Workload) -> None:
        self.config = config
        self.w = workload
        # Of a miss and of the mean delay: S of section 5.4, the denominator of eq. 4.9.
        self.weights = (0.02, 100.0) if config.value.kind == "chapter4" else (1.0, 5000.0)
        self.time = 0
        self.clusters = [
            OracleCluster(capacity, elastic)
            for capacity, elastic in zip(config.capacities, config.elastic, strict=True)
        ]
        self.buffer: list[int] = []
        self.arrived = 0
        self.jobs: dict[int, OracleJob] = {}  # deployed and not ended
        self.ends: list[tuple[int, int]] = []  # (slice, job), heaps
        self.requests: list[tuple[int, int]] = []
        self.ratios: dict[int, float] = {}
        self.values: dict[int, tuple[float, float, float]] = {}
        self.unqueued = 0
        self.queued = 0
        self.finished = False
        self.run()

    # --- one slice -------------------------------------------------------------------------------------

    def run(self) -> float:
        """Until a decision is due or everything has ended: the reward."""
        reward = 0.0
        while True:
            reward += self.end_executions()
            if len(self.ratios) == self.w.n_jobs:
                self.finished = True
                return reward
            self.join_queues()
            self.control_elasticity()
            while self.arrived < self.w.n_jobs and self.w.arrival[self.arrived] <= self.time:
                self.buffer.append(self.arrived)
                self.arrived += 1
            if self.buffer:
                return reward
            self.close_slice()

    def decide(self, position: int, cluster: int | None) -> float:
        """Deploy the job at a position of the buffer (None: nobody): the reward until the next decision."""
        if cluster is not None:
            number = self.buffer.pop(position)
            for other in self.jobs.values():
                if other.cluster == cluster:
                    other.deployed_after += 1
            job = OracleJob(number, cluster, self.time, misses_before=self.unqueued + self.queued)
            self.jobs[number] = job
            self.request(job)
        self.close_slice()
        return self.run()

    def end_executions(self) -> float:
        reward = 0.0
        ended = []
        queued_misses = dict.fromkeys(range(len(self.clusters)), 0)
        while self.ends and self.ends[0][0] == self.time:
            job = self.jobs[heapq.heappop(self.ends)[1]]
            ended.append(job)
            cluster = self.clusters[job.cluster]
            cluster.used -= self.wanted(job)
            actual = self.time - job.requested_at
            job.actual_times.append(actual)
            job.started_at = None
            if self.is_late(job, actual):
                reward -= self.weights[0]
                cluster.missed += 1
                if job.waited:
                    job.queued_misses += 1
                    self.queued += 1
                    job.decayed_own += self.config.value.beta**job.deployed_after
                    queued_misses[job.cluster] += 1
                else:
                    job.unqueued_misses += 1
                    self.unqueued += 1
        for job in self.jobs.values():
            late = queued_misses[job.cluster]
            job.decayed_cluster += self.config.value.beta**job.deployed_after * late
        for job in ended:
            if len(job.actual_times) == self.w.executions[job.number]:
                reward += self.end_job(job)
            else:
                due = job.deployed_at + len(job.actual_times) * int(self.w.period[job.number])
                heapq.heappush(self.requests, (max(due, self.time), job.number))
        return reward

    def end_job(self, job: OracleJob) -> float:
        n = job.number
        del self.jobs[n]
        ratio = sum(job.actual_times) / (int(self.w.standard[n]) * int(self.w.executions[n]))
        self.ratios[n] = ratio
        self.values[n] = self.value_of(job, ratio)
        return self.weights[1] / self.w.n_jobs * (1.0 - ratio)

    def value_of(self, job: OracleJob, ratio: float) -> tuple[float, float, float]:
        value = self.config.value
        if value.kind == "chapter4":
            seen = self.unqueued + self.queued - job.misses_before
            own = job.unqueued_misses + job.queued_misses
            return (-value.lam * own, -value.gamma * seen, -value.eta * ratio)
        n, c = job.number, job.cluster
        delay = ratio - 1.0
        m, psi = 1.0, 1.0
        improper = self.is_late(job, int(self.w.execution[n, c]))
        for event in (improper, job.waited_first):
            if event:
                m *= value.p_m
                psi *= value.p_psi if delay > 0 else 1.0 / value.p_psi
        weight = self.config.hetero_factors[c] * m / int(self.w.expected_hetero[n])
        return (
            -weight * (job.unqueued_misses + job.decayed_own),
            -weight * job.decayed_cluster,
            -psi * delay,
        )

    def join_queues(self) -> None:
        # The heap gives equal times by job number, that is by arrival.
        while self.requests and self.requests[0][0] == self.time:
            self.request(self.jobs[heapq.heappop(self.requests)[1]])

    def request(self, job: OracleJob) -> None:
        job.requested_at = self.time
        job.started_at = None
        self.clusters[job.cluster].queue.append(job.number)

    def control_elasticity(self) -> None:
        for cluster in self.clusters:
            if not cluster.elastic:
                continue
            recent = cluster.ratios[-self.config.elastic_window :]
            if any(ratio >= self.config.elastic_threshold for ratio in recent):
                cluster.extension = min(cluster.extension + self.config.elastic_step, self.config.elastic_max)
            else:
                smaller = max(cluster.extension - self.config.elastic_step, 0)
                if cluster.used <= cluster.normal + smaller:
                    cluster.extension = smaller

    def close_slice(self) -> None:
        for cluster in self.clusters:
            waiting = []
            blocked = False
            for number in cluster.queue:
                job = self.jobs[number]
                if blocked or self.wanted(job) > cluster.capacity - cluster.used:
                    waiting.append(number)
                    blocked = self.config.strict_fifo
                    continue
                cluster.used += self.wanted(job)
                job.waited = self.time > job.requested_at
                job.started_at = self.time
                if not job.actual_times:
                    job.waited_first = job.waited
                heapq.heappush(self.ends, (self.time + int(self.w.execution[number, job.cluster]), number))
            cluster.queue = waiting
            cluster.ratios.append(cluster.used / cluster.capacity)
        self.time += 1

    # --- small questions -------------------------------------------------------------------------------

    def wanted(self, job: OracleJob) -> int:
        """Executors of the job's current execution (the last one while it is being ended)."""
        k = len(job.actual_times)
        table = self.w.peak_request if self.w.uses_peak[job.number, k] else self.w.request
        return int(table[job.number, job.cluster])

    def is_late(self, job: OracleJob, time: int) -> bool:
        has_deadline = self.w.category[job.number] != Category.GENERAL
        return bool(has_deadline and time > self.w.deadline[job.number, job.cluster])

    # --- what the deployed jobs will need ----------------------------------------------------------------

    def mean_request(self, number: int, cluster: int) -> float:
        request, peak = self.w.request[number, cluster], self.w.peak_request[number, cluster]
        return float(request + self.w.peak_slots[number] / 10 * (peak - request))

    def held_ahead(self, cluster: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Executors held in each of the coming slices, from this one on."""
        held = np.zeros(observe.HORIZON)
        for number, job in self.jobs.items():
            if job.cluster != cluster:
                continue
            execution, done = int(self.w.execution[number, cluster]), len(job.actual_times)
            queued = number in self.clusters[cluster].queue
            if queued or job.started_at is not None:
                began = self.time if job.started_at is None else job.started_at
                held[: began + execution - self.time] += self.wanted(job)
                done += 1
            for batch in range(done, int(self.w.executions[number])):
                due = max(job.deployed_at + batch * int(self.w.period[number]) - self.time, 0)
                held[due : due + execution] += self.mean_request(number, cluster)
        return held

    def shortage(self, number: int, cluster: int) -> float:
        """Executors that lack, on average over the slices in which the job would run."""
        wanted = self.mean_request(number, cluster)
        free = (1 - observe.RESERVE) * self.clusters[cluster].capacity - self.held_ahead(cluster)
        execution, period = int(self.w.execution[number, cluster]), int(self.w.period[number])
        runs = [
            free[batch * period : batch * period + execution]
            for batch in range(int(self.w.executions[number]))
        ]
        return float(np.clip(wanted - np.concatenate(runs), 0.0, wanted).mean())

    # --- what is seen, what came out -------------------------------------------------------------------

    def observe(self) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
        """Base columns of the observation (derived pair columns left 0)."""
        n_clusters, window = len(self.clusters), self.config.window
        clusters = np.zeros((n_clusters, N_CLUSTER_FIELDS), np.float32)
        occupation = np.zeros((n_clusters, 105), np.float32)
        jobs = np.zeros((window, N_JOB_FIELDS), np.float32)
        pairs = np.zeros((window, n_clusters, N_PAIR_FIELDS), np.float32)
        for c, cluster in enumerate(self.clusters):
            past = [float(np.float32(ratio)) for ratio in cluster.ratios]
            if past:
                latest = past[-105:]
                occupation[c, 105 - len(latest) :] = latest
            row = {
                col.SEQUENCE: c + 1,
                col.CAPACITY_NORMAL: cluster.normal,
                col.CAPACITY_MAX: cluster.normal + (self.config.elastic_max if cluster.elastic else 0),
                col.CAPACITY_NOW: cluster.capacity,
                col.HETERO_FACTOR: self.config.hetero_factors[c],
                col.USED: cluster.used,
                col.HALTED: sum(self.wanted(self.jobs[n]) for n in cluster.queue),
                col.MISSED: cluster.missed,
                col.MEAN_OCCUPATION: sum(past[-100:]) / len(past[-100:]) if past else 0.0,
                col.AVAILABLE: 1,
                col.UP_RATIO: 1,
                col.QUEUES: 1,
            }
            if self.config.forecast:
                soon = cluster.capacity - self.held_ahead(c)[: observe.SOON]
                row[col.FREE_AHEAD] = np.maximum(soon, 0.0).mean()
            for column, value in row.items():
                clusters[c, column] = value
        for k, n in enumerate(self.buffer[:window]):
            streaming = self.w.category[n] == Category.STREAMING
            has_deadline = self.w.category[n] != Category.GENERAL
            duration = self.w.executions[n] * self.w.period[n] if streaming else self.w.standard[n]
            described = {
                col.PRESENT: 1,
                col.CATEGORY: self.w.category[n],
                col.EXPECTED_HETERO: self.w.expected_hetero[n],
                col.SENSITIVITY: self.w.sensitivity[n],
                col.STANDARD_S: self.w.standard[n],
                col.EXECUTIONS: self.w.executions[n],
                col.PERIOD_S: self.w.period[n],
                col.DURATION_S: duration,
                col.PEAK_SLOTS: self.w.peak_slots[n],
                col.WAITED_S: self.time - self.w.arrival[n],
                col.AGE_S: self.time - self.w.arrival[n],
                col.SLACK_S: min(self.w.deadline[n]) if has_deadline else 0,
                col.HAS_DEADLINE: has_deadline,
            }
            for job_column, value in described.items():
                jobs[k, job_column] = value
            pairs[k, :, col.REQUEST] = self.w.request[n]
            pairs[k, :, col.PEAK_REQUEST] = self.w.peak_request[n]
            pairs[k, :, col.EXECUTION_S] = self.w.execution[n]
            pairs[k, :, col.DEADLINE_S] = self.w.deadline[n]
            if self.config.forecast:
                pairs[k, :, col.SHORTAGE] = [self.shortage(n, c) for c in range(n_clusters)]
        return {"clusters": clusters, "occupation": occupation, "jobs": jobs, "pairs": pairs}

    def metrics(self) -> dict[str, float]:
        """The metrics of `spec.metrics`."""
        n = self.w.n_jobs
        ratios = [self.ratios[k] for k in range(n)]
        tmdl = self.unqueued + self.queued
        ajer = 100.0 * (math.fsum(ratios) / n)
        s = -tmdl + 50.0 * (100.0 - ajer)
        size = math.log10(max(abs(s), 1.0))
        cost = 0.02 * tmdl + (ajer - 100.0)
        judged: dict[str, float] = {"s": s, "ajer": ajer, "s_log": size if s > 0 else -size}
        if self.config.value.kind == "chapter4":
            judged = {"weighted_cost": cost}
        return {
            **judged,
            "tmdl": tmdl,
            "ajdr": ajer - 100.0,
            "eval_app": 1.0 / (cost if cost < 0.0 or cost > 0.02 else 0.02),
            "job_ratio_p95": float(np.percentile(ratios, 95)),
            "job_ratio_p99": float(np.percentile(ratios, 99)),
            "misses_unqueued": self.unqueued,
            "misses_queued": self.queued,
            "makespan": self.time,
        }
