"""The jobs of one episode, all drawn before it starts, from the named streams "arrivals" and "job_sizes"."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, fields

import numpy as np

from spotweave.envs.simulation.arrivals import draw_arrivals
from spotweave.envs.simulation.series import Bools, Floats, Ints
from spotweave.envs.simulation.slices.config import SliceWorldConfig, WorkloadConfig
from spotweave.envs.simulation.snapshot import Category
from spotweave.envs.simulation.streams import Streams, episode_sequence
from spotweave.envs.simulation.world import EpisodeKey, WorldError

REQUEST_SLOTS = 10
"""Entries of a discrete resource request distribution (Liu 2022, Table 5.1)."""


@dataclass(frozen=True)
class Workload:
    """n jobs by arrival, on C clusters. Times in slices, requests in executors."""

    arrival: Ints  # (n,) slice in which the job enters the global buffer
    category: Ints  # (n,) `Category`
    standard: Ints  # (n,) standard execution time
    executions: Ints  # (n,) batches; 1 if not streaming
    period: Ints  # (n,) batch period; 0 if not streaming
    peak_slots: Ints  # (n,) how many of the ten request slots hold the peak request
    sensitivity: Ints  # (n,)
    expected_hetero: Ints  # (n,)
    request: Ints  # (n, C) the mode of the request distribution there
    peak_request: Ints  # (n, C)
    execution: Ints  # (n, C) execution time there
    deadline: Ints  # (n, C) time allowed for an execution there; 0 for general jobs
    uses_peak: Bools  # (n, E) whether execution k asks for the peak request; E bounds the executions

    @property
    def n_jobs(self) -> int:
        """Number of jobs."""
        return len(self.arrival)

    def fingerprint(self) -> str:
        """SHA-256 of every array (name, shape, content)."""
        digest = hashlib.sha256()
        for item in fields(self):
            array = np.ascontiguousarray(getattr(self, item.name))
            digest.update(f"{item.name}{array.shape}".encode())
            digest.update(array.tobytes())
        return digest.hexdigest()

    def validate(self, config: SliceWorldConfig) -> None:
        """Check a workload that was built by hand or from a trace.

        Raises:
            WorldError: if it has no jobs, does not match the world, or an execution could never start.
        """
        if not self.n_jobs:
            raise WorldError("the workload is empty: it needs at least one job")
        if self.n_jobs != config.n_jobs or self.request.shape[1] != len(config.capacities):
            raise WorldError(
                f"the workload has {self.n_jobs} jobs for {self.request.shape[1]} clusters, "
                f"the world expects {config.n_jobs} for {len(config.capacities)}"
            )
        if (np.diff(self.arrival) < 0).any() or self.arrival[0] < 0:
            raise WorldError("the workload's arrival times must be sorted and >= 0")
        if min(self.standard.min(), self.executions.min(), self.execution.min(), self.request.min()) < 1:
            raise WorldError("every job of a workload needs standard, executions, execution and request >= 1")
        if self.executions.max() > config.workload.executions[1]:
            raise WorldError(
                f"a job has {self.executions.max()} executions, more than workload.executions allows "
                f"({config.workload.executions[1]})"
            )
        longest = max(int(self.execution.max()), int(self.period.max()))
        if longest > longest_delay(config):
            raise WorldError(
                f"an execution or period lasts {longest} slices, more than the configured workload allows "
                f"({longest_delay(config)}): raise workload.standard or streaming_standard"
            )
        too_large = np.maximum(self.request, self.peak_request) > np.asarray(config.capacities)
        if too_large.any():
            job, cluster = (int(k) for k in np.argwhere(too_large)[0])
            most = max(int(self.request[job, cluster]), int(self.peak_request[job, cluster]))
            raise WorldError(
                f"job {job} asks for {most} executors on cluster {cluster + 1}, "
                f"which has {config.capacities[cluster]}: it could never start"
            )


def _integers(rng: np.random.Generator, bounds: list[int], n: int) -> Ints:
    return rng.integers(bounds[0], bounds[1], size=n, endpoint=True)


def _reals(rng: np.random.Generator, bounds: list[float], shape: int | tuple[int, int]) -> Floats:
    return rng.uniform(bounds[0], bounds[1], size=shape)


def _rounded(values: Floats) -> Ints:
    return np.maximum(np.rint(values), 1).astype(np.int64)


def draw_workload(config: SliceWorldConfig, key: EpisodeKey) -> Workload:
    """The jobs of one episode. Nothing here depends on a policy.

    Every quantity is drawn for every job, whatever its category, so that no draw shifts another. The peak
    request uses one factor per job (all its peak slots hold the same request) and is rounded per cluster.
    """
    streams = Streams(episode_sequence(key.seed, key.split, key.index))
    arrival = draw_arrivals(config.workload.arrivals, config.n_jobs, streams.generator("arrivals"))
    return draw_jobs(config, arrival, streams.generator("job_sizes"))


def draw_jobs(config: SliceWorldConfig, arrival: Ints, rng: np.random.Generator) -> Workload:
    """Jobs for given arrival times.

    Execution time on cluster c (Liu 2022, section 5.3): ceil(standard * h / clip(factor_c, h - sen * zeta,
    h + sen * zeta)), h the job's expected hetero factor.

    Args:
        config: a validated configuration.
        arrival: (n,) sorted arrival slices.
        rng: the stream "job_sizes".
    """
    w: WorkloadConfig = config.workload
    factors = np.asarray(config.hetero_factors, np.float64)
    n, clusters = len(arrival), len(factors)

    draw = rng.random(n)
    category = np.where(
        draw < w.general,
        int(Category.GENERAL),
        np.where(draw < w.general + w.time_critical, int(Category.TIME_CRITICAL), int(Category.STREAMING)),
    ).astype(np.int64)
    streaming = category == int(Category.STREAMING)

    base = np.where(streaming, _integers(rng, w.streaming_request, n), _integers(rng, w.request, n))
    request = _rounded(base[:, None] * _reals(rng, w.request_spread, (n, clusters)))
    standard = _rounded(np.where(streaming, _reals(rng, w.streaming_standard, n), _reals(rng, w.standard, n)))
    executions = np.where(streaming, _integers(rng, w.executions, n), 1)
    period = np.where(streaming, _rounded(standard * _reals(rng, w.period_factor, n)), 0)

    peaks = np.minimum(rng.binomial(REQUEST_SLOTS, w.peak_probability, size=n), w.max_peaks)
    peak_slots = np.where(streaming, peaks, 0).astype(np.int64)
    peak_factor = _reals(rng, w.peak_factor, n)
    has_peak = (peak_slots > 0)[:, None]
    peak_request = np.where(has_peak, _rounded(request * peak_factor[:, None]), request)
    slot = rng.integers(0, REQUEST_SLOTS, size=(n, w.executions[1]), dtype=np.int8)

    hetero = _integers(rng, w.expected_hetero, n)
    sensitivity = _integers(rng, w.sensitivity, n)
    reach = sensitivity * w.zeta
    effective = np.clip(factors[None, :], (hetero - reach)[:, None], (hetero + reach)[:, None])
    execution = np.ceil((standard * hetero)[:, None] / effective).astype(np.int64)

    slack = _reals(rng, w.slack, n)
    overhead = rng.random((n, clusters)) * w.overhead
    allowed = np.floor(standard[:, None] * (1.0 + slack)[:, None] - standard[:, None] * overhead)
    general = (category == int(Category.GENERAL))[:, None]
    deadline = np.where(general, 0, np.maximum(allowed, 1)).astype(np.int64)

    return Workload(
        arrival=arrival,
        category=category,
        standard=standard,
        executions=executions.astype(np.int64),
        period=period.astype(np.int64),
        peak_slots=peak_slots,
        sensitivity=sensitivity,
        expected_hetero=hetero,
        request=request,
        peak_request=peak_request,
        execution=execution,
        deadline=deadline,
        uses_peak=slot < peak_slots[:, None],
    )


def longest_delay(config: SliceWorldConfig) -> int:
    """Upper bound, in slices, of an execution or a batch period: what the time wheel must span."""
    w = config.workload
    slowdown = max(1.0, w.expected_hetero[1] / min(config.hetero_factors))
    execution = math.ceil(round(max(w.standard[1], w.streaming_standard[1])) * slowdown)
    period = round(round(w.streaming_standard[1]) * w.period_factor[1])
    return max(execution, period) + 1
