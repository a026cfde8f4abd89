"""Everything about a slice world that can be chosen, with the values of Liu 2022 as defaults."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Literal

from spotweave.envs.simulation.arrivals import ArrivalConfig
from spotweave.envs.simulation.world import WorldError, at_least, bounds, require, shares

CHAPTER_5 = "chapter5"
CHAPTER_4 = "chapter4"


@dataclass(frozen=True)
class Objective:
    """What an episode is judged by: misses and the mean over jobs of (mean AR / SR - 1), added up."""

    metric: str  # its name among the metrics
    higher_is_better: bool  # whether the metric is minus that sum (up to a constant), or the sum itself
    miss: float  # weight of a missed deadline
    delay: float  # weight of the mean over jobs


OBJECTIVES = {
    # S = -TMDL + 50 (100 - AJER) = -TMDL - 5000 (mean ratio - 1), section 5.4.
    CHAPTER_5: Objective("s", True, 1.0, 5000.0),
    # 0.02 TMDL + AJDR, the denominator of Eval_app (eq. 4.9). Its reciprocal has no use as an objective of
    # single episodes: it explodes where an episode has hardly a miss or a delay.
    CHAPTER_4: Objective("weighted_cost", False, 0.02, 100.0),
}
"""By `ValueConfig.kind`."""


@dataclass
class WorkloadConfig:
    """How jobs are drawn. [a, b] are inclusive bounds of a uniform draw, independent per job.

    The text gives no distributions; these were found by calibration: with them the rule MAF has the means
    that Liu 2022 publishes in Tables 5.3 to 5.5 (within the noise of 50 episodes).
    """

    arrivals: ArrivalConfig = field(default_factory=ArrivalConfig)  # arrival pattern
    general: float = 0.5  # probability of category GENERAL
    time_critical: float = 0.25  # probability of category TIME_CRITICAL
    streaming: float = 0.25  # probability of category STREAMING
    # executors of general and time-critical jobs
    request: list[int] = field(default_factory=lambda: [30, 165])
    streaming_request: list[int] = field(default_factory=lambda: [30, 140])  # executors of streaming jobs
    # factor per job and cluster on the executors, then rounded
    request_spread: list[float] = field(default_factory=lambda: [0.9, 1.1])
    # standard execution time of general and time-critical jobs, slices (real, then rounded)
    standard: list[float] = field(default_factory=lambda: [35.0, 140.0])
    # the same for one batch of a streaming job
    streaming_standard: list[float] = field(default_factory=lambda: [20.0, 65.0])
    executions: list[int] = field(default_factory=lambda: [10, 34])  # batches of a streaming job
    # batch period / standard time of a streaming job, then rounded
    period_factor: list[float] = field(default_factory=lambda: [1.5, 2.0])
    # chance of each of the ten request slots to hold the peak request (streaming)
    peak_probability: float = 0.2
    max_peaks: int = 4  # most slots that hold the peak request
    # peak request / request, one factor per job
    peak_factor: list[float] = field(default_factory=lambda: [1.2, 2.0])
    # hetero factor that the standard time refers to
    expected_hetero: list[int] = field(default_factory=lambda: [61, 93])
    # heterogeneity sensitivity `sen` of Liu 2022, section 5.3
    sensitivity: list[int] = field(default_factory=lambda: [1, 5])
    zeta: float = 10.0  # the range of that sensitivity is expected_hetero +- sensitivity * zeta
    # share of the standard time that a deadline allows on top, per job
    slack: list[float] = field(default_factory=lambda: [0.10, 0.42])
    # largest share of the standard time that transfer takes off a deadline, per job and cluster
    overhead: float = 0.01

    def validate(self) -> None:
        """Check every parameter. Raises WorldError naming it, its value and what is expected."""
        self.arrivals.validate()
        probabilities = (self.general, self.time_critical, self.streaming)
        if min(probabilities) < 0 or not math.isclose(sum(probabilities), 1.0, abs_tol=1e-9):
            raise WorldError(
                "workload.general, time_critical and streaming are probabilities that sum to 1, got "
                f"{self.general}, {self.time_critical}, {self.streaming}"
            )
        bounds(self, "workload", 1, "request", "streaming_request", "standard", "streaming_standard")
        bounds(self, "workload", 1, "executions", "peak_factor", "expected_hetero")
        bounds(self, "workload", 0, "request_spread", "period_factor", "sensitivity", "slack")
        shares(self, "workload", "peak_probability")
        require(
            0 <= self.max_peaks <= 4,
            f"workload.max_peaks is {self.max_peaks}",
            "0 to 4 (of 10 slots, so that the peak is not the mode)",
        )
        require(
            0.0 <= self.overhead <= 1.0 + self.slack[0],
            f"workload.overhead is {self.overhead}",
            "0 to 1 + the lowest slack",
        )
        at_least(self, "workload", 0, "zeta")

    def largest_request(self) -> int:
        """Upper bound of the executors one execution can ask for."""
        spread = self.request_spread[1]
        one_shot = max(1, round(self.request[1] * spread))
        streaming = math.ceil(max(1, round(self.streaming_request[1] * spread)) * self.peak_factor[1])
        return max(one_shot if self.streaming < 1.0 else 1, streaming if self.streaming > 0.0 else 1)


@dataclass
class ValueConfig:
    """How the value of a decision is computed when its job ends."""

    # "chapter5" (section 5.3, components v1, v2, v3) or "chapter4" (eq. 4.1, 4.2). It also chooses the
    # objective (`OBJECTIVES`), that is the rewards and the first metric
    kind: str = CHAPTER_5
    beta: float = 0.95  # decay per job deployed to the cluster later (chapter 5)
    p_m: float = 1.5  # penalty factor of the misses for an event IH or IC (eq. 5.1)
    p_psi: float = 1.5  # penalty factor of the delay for an event IH or IC (eq. 5.1)
    lam: float = 1.0  # lambda of eq. 4.1, per own miss
    gamma: float = 0.02  # of eq. 4.1, per miss anywhere while the job lives
    eta: float = 0.1  # of eq. 4.1, per unit of the mean running time ratio

    def validate(self) -> None:
        """Check every parameter. Raises WorldError naming it, its value and what is expected."""
        if self.kind not in (CHAPTER_5, CHAPTER_4):
            raise WorldError(f"unknown value.kind {self.kind!r}: expected {CHAPTER_5} or {CHAPTER_4}")
        shares(self, "value", "beta")
        at_least(self, "value", 1, "p_m", "p_psi")


@dataclass
class SliceWorldConfig:
    """Clusters, workload and value of a slice world. The defaults are chapter 5 of Liu 2022."""

    # executors of each cluster without extension
    capacities: list[int] = field(default_factory=lambda: [800, 1200, 1500, 1800, 2300])
    # relative speed of each cluster's executors
    hetero_factors: list[float] = field(default_factory=lambda: [70.0, 60.0, 100.0, 80.0, 90.0])
    # which clusters can be extended
    elastic: list[bool] = field(default_factory=lambda: [False, False, True, False, True])
    elastic_step: int = 100  # executors added or given back at once
    elastic_max: int = 200  # most executors added
    elastic_window: int = 100  # slices looked back by the elasticity controller
    elastic_threshold: float = 0.95  # occupation ratio that calls for extension
    n_jobs: int = 1000  # jobs of an episode
    window: int = 16  # jobs shown in an observation
    allow_none: bool = False  # whether a decision may let the slice pass without deploying a job
    strict_fifo: bool = False  # local queues: nothing overtakes a waiting execution that does not fit
    # observations hold what the deployed jobs will need (`slices.forecast`), which takes time
    forecast: bool = False
    # several worlds to train one policy in, each with another longest interval b of uniform arrivals and an
    # equal share of the episodes; None: one world, with workload.arrivals
    loads: list[int] | None = None
    workload: WorkloadConfig = field(default_factory=WorkloadConfig)  # how jobs are drawn
    value: ValueConfig = field(default_factory=ValueConfig)  # how decisions are valued

    def validate(self) -> None:
        """Check every parameter, and that every execution fits on every cluster.

        Raises:
            WorldError: one line naming the parameter, its value and what is expected.
        """
        if self.loads is not None:
            raise WorldError(
                f"loads {list(self.loads)} stand for several worlds to train one policy in: leave loads out "
                "to play in one, whose load is workload.arrivals.b"
            )
        n = len(self.capacities)
        if n < 1 or len(self.hetero_factors) != n or len(self.elastic) != n:
            raise WorldError(
                "capacities, hetero_factors and elastic need one entry per cluster, at least one: got "
                f"{n}, {len(self.hetero_factors)} and {len(self.elastic)}"
            )
        if min(self.capacities) < 1 or not all(0 < factor < math.inf for factor in self.hetero_factors):
            raise WorldError(
                "capacities must be >= 1 and hetero_factors > 0, got "
                f"{list(self.capacities)} and {list(self.hetero_factors)}"
            )
        at_least(self, "env", 1, "elastic_step", "elastic_window", "window")
        if self.n_jobs < 1:
            raise WorldError(f"the workload is empty: n_jobs must be >= 1, got {self.n_jobs}")
        at_least(self, "env", 0, "elastic_max")
        require(
            self.elastic_threshold > 0, f"env.elastic_threshold is {self.elastic_threshold}", "a number > 0"
        )
        self.workload.validate()
        self.value.validate()
        if self.workload.largest_request() > min(self.capacities):
            raise WorldError(
                f"an execution may ask for {self.workload.largest_request()} executors and never fit on a "
                f"cluster of {min(self.capacities)}: lower the requests or raise the capacity"
            )

    def members_of(self, split: Literal["train", "validation"]) -> list[SliceWorldConfig]:
        """The worlds of `loads`, in their order, to train on and to validate on; without it this one alone.

        Args:
            split: makes no difference: its episodes are other ones, the loads are the same.

        Raises:
            WorldError: for no loads at all, one that comes twice or is below workload.arrivals.a, or arrivals
                that are not uniform.
        """
        if self.loads is None:
            return [self]
        arrivals = self.workload.arrivals
        if arrivals.pattern != "uniform":
            raise WorldError(f"loads need uniform arrivals, got {arrivals.pattern!r}")
        if not self.loads or len(set(self.loads)) < len(self.loads) or min(self.loads) < arrivals.a:
            raise WorldError(
                f"loads must name at least one b >= {arrivals.a} (workload.arrivals.a), each once, got "
                f"{list(self.loads)}"
            )
        return [
            replace(self, loads=None, workload=replace(self.workload, arrivals=replace(arrivals, b=load)))
            for load in self.loads
        ]


# The world of Liu 2022, chapter 4, as a slice world.

_ARRIVALS = {
    "uniform": ArrivalConfig("uniform", a=1, b=39),
    "bernoulli": ArrivalConfig("bernoulli", p=0.08),
    "beta": ArrivalConfig("beta", alpha=4.0, beta=2.0, maximum=30),
}
_STREAMING_REQUESTS = {"normal": [35, 133], "eased": [30, 113], "stressed": [43, 162]}
"""Executors of streaming jobs by load, the "computing capability requirement" of Table 4.3."""


def chapter4(pattern: str = "uniform", load: str = "normal") -> SliceWorldConfig:
    """The world of Liu 2022, chapter 4: equal executors, nothing elastic, 500 jobs.

    With one hetero factor everywhere a job takes its standard time on every cluster, and as in Table 4.1 its
    executors and its deadline are the same on all of them. The text gives no distributions of job parameters:
    these were found by search (docs/environments.md). With them the rule SF-E has, within the noise of
    50 episodes, the means of TMDL and AJDR that Tables 4.2 and 4.3 publish for it.

    Args:
        pattern: arrivals: "uniform" ([1, 39]), "bernoulli" (0.08) or "beta" (4, 2, M = 30).
        load: "normal", or the workloads of Table 4.3, "eased" and "stressed", whose streaming jobs want fewer
            or more executors. (With one factor on the executors of all jobs TMDL and AJDR cannot both have
            the published means: AJDR would change more than TMDL.)

    Raises:
        WorldError: for an unknown pattern or load.
    """
    for name, given, known in (
        ("arrival pattern", pattern, _ARRIVALS),
        ("load", load, _STREAMING_REQUESTS),
    ):
        if given not in known:
            raise WorldError(f"unknown {name} {given!r} of chapter 4: expected one of {', '.join(known)}")
    capacities = [500, 800, 1200, 1300, 1900]
    return SliceWorldConfig(
        capacities=capacities,
        hetero_factors=[100.0] * len(capacities),
        elastic=[False] * len(capacities),
        n_jobs=500,
        forecast=True,
        workload=WorkloadConfig(
            arrivals=replace(_ARRIVALS[pattern]),
            request=[30, 205],
            streaming_request=list(_STREAMING_REQUESTS[load]),
            request_spread=[1.0, 1.0],
            standard=[25.0, 100.0],
            streaming_standard=[20.0, 55.0],
            executions=[14, 47],
            period_factor=[1.4, 1.9],
            peak_probability=0.2,
            peak_factor=[1.2, 1.8],
            expected_hetero=[100, 100],
            slack=[0.10, 0.45],
            overhead=0.0,
        ),
        value=ValueConfig(kind=CHAPTER_4),
    )


@dataclass
class Chapter4Config:
    """What can be chosen of the world of Liu 2022, chapter 4; `chapter4` says what the rest is."""

    pattern: Literal["uniform", "bernoulli", "beta"] = "uniform"  # arrival pattern
    # how many executors streaming jobs want (Table 4.3)
    load: Literal["normal", "eased", "stressed"] = "normal"
    n_jobs: int = 500  # jobs of an episode
    window: int = 16  # jobs shown in an observation
    allow_none: bool = False  # whether a decision may let the slice pass without deploying a job
    # local queues: nothing overtakes a waiting execution that does not fit. The published means were matched
    # without
    strict_fifo: bool = False

    def world(self) -> SliceWorldConfig:
        """The whole configuration, not yet validated (as everywhere, the world does that)."""
        return replace(
            chapter4(self.pattern, self.load),
            n_jobs=self.n_jobs,
            window=self.window,
            allow_none=self.allow_none,
            strict_fifo=self.strict_fifo,
        )
