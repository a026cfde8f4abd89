"""The world of Liu 2022, chapter 4, as a slice world."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from envs.simulation.arrivals import ArrivalConfig
from envs.simulation.slices.config import CHAPTER_4, SliceWorldConfig, ValueConfig, WorkloadConfig
from envs.simulation.world import WorldError

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
    """What can be chosen of the world of Liu 2022, chapter 4; `chapter4` says what the rest is.

    Attributes:
        pattern: arrival pattern.
        load: how many executors streaming jobs want (Table 4.3).
        n_jobs: jobs of an episode.
        window: jobs shown in an observation.
        allow_none: whether a decision may let the slice pass without deploying a job.
        strict_fifo: local queues: nothing overtakes a waiting execution that does not fit. The published
            means were matched without.
    """

    pattern: Literal["uniform", "bernoulli", "beta"] = "uniform"
    load: Literal["normal", "eased", "stressed"] = "normal"
    n_jobs: int = 500
    window: int = 16
    allow_none: bool = False
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
