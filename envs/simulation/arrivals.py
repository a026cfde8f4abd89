"""When jobs arrive: the arrival patterns of Liu 2022 (sections 4.3 and 5.4), Poisson, and a given list.

Jobs come in groups. A pattern draws the intervals between groups, a rounded normal variable the size of each
group. Times are whole units of whatever clock the world uses (slices, seconds).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from spotweave.envs.simulation.series import Ints
from spotweave.envs.simulation.world import WorldError

PATTERNS = ("uniform", "bernoulli", "beta", "poisson", "trace")
_BERNOULLI_JOBS_MEAN = 1.5
_JOBS_MEAN = 3.0


@dataclass
class ArrivalConfig:
    """One arrival pattern and its parameters; those of the other patterns are ignored."""

    pattern: str = "uniform"  # "uniform", "bernoulli", "beta", "poisson" or "trace"
    a: int = 1  # uniform: shortest interval
    b: int = 33  # uniform: longest interval (Liu 2022: 39 in chapter 4; 33, 36, 40 in chapter 5)
    p: float = 0.08  # bernoulli: probability of a group per time unit; the interval is geometric
    alpha: float = 4.0  # beta: first shape parameter
    beta: float = 2.0  # beta: second shape parameter
    maximum: int = 30  # beta: M of Liu 2022 eq. 4.5; the interval is ceil(M * Beta(alpha, beta))
    rate: float = 0.06  # poisson: groups per time unit; arrival times are rounded up to whole units
    # trace: arrival time of every job, sorted; the first `n_jobs` are used
    times: list[int] = field(default_factory=list)
    # mu of the group size max(round(N(mu, sigma)), 1); None: 1.5 for bernoulli, else 3
    jobs_mean: float | None = None
    jobs_std: float = 1.0  # sigma of the group size. A trace names single jobs and has no groups

    def validate(self) -> None:
        """Check the parameters of the chosen pattern. Raises WorldError naming a wrong one."""
        if self.pattern not in PATTERNS:
            raise WorldError(
                f"unknown arrival pattern {self.pattern!r}: expected one of {', '.join(PATTERNS)}"
            )
        if self.pattern == "uniform" and not 1 <= self.a <= self.b:
            raise WorldError(f"uniform arrivals need 1 <= a <= b, got a={self.a}, b={self.b}")
        if self.pattern == "bernoulli" and not 0.0 < self.p <= 1.0:
            raise WorldError(f"bernoulli arrivals need 0 < p <= 1, got p={self.p}")
        if self.pattern == "beta" and not (self.alpha > 0 and self.beta > 0 and self.maximum >= 1):
            raise WorldError(
                "beta arrivals need alpha > 0, beta > 0 and maximum >= 1, got "
                f"alpha={self.alpha}, beta={self.beta}, maximum={self.maximum}"
            )
        if self.pattern == "poisson" and not self.rate > 0.0:
            raise WorldError(f"poisson arrivals need rate > 0, got rate={self.rate}")
        if self.pattern == "trace":
            self._validate_times()
        if not self.jobs_std >= 0.0:
            raise WorldError(f"the size of arriving groups needs jobs_std >= 0, got {self.jobs_std}")

    def _validate_times(self) -> None:
        if not self.times:
            raise WorldError("trace arrivals need times, one per job: the list is empty")
        if self.times[0] < 0:
            raise WorldError(f"trace arrivals need times >= 0, got {self.times[0]} first")
        for row in range(1, len(self.times)):
            if self.times[row] < self.times[row - 1]:
                raise WorldError(
                    f"trace arrivals need sorted times: entry {row + 1} is {self.times[row]}, "
                    f"the one before is {self.times[row - 1]}"
                )


def draw_intervals(config: ArrivalConfig, n: int, generator: np.random.Generator) -> Ints:
    """(n,) intervals between arriving groups, the first counted from time 0 (not for "trace").

    Sources: Liu 2022, section 4.3 "Job Arriving Patterns" (eq. 4.4, 4.5).
    """
    if config.pattern == "uniform":
        return generator.integers(config.a, config.b, size=n, endpoint=True)
    if config.pattern == "bernoulli":
        return generator.geometric(config.p, size=n).astype(np.int64)
    if config.pattern == "beta":
        fractions = generator.beta(config.alpha, config.beta, size=n)
        return np.maximum(np.ceil(config.maximum * fractions), 1).astype(np.int64)
    if config.pattern == "poisson":
        times = np.ceil(np.cumsum(generator.exponential(1.0 / config.rate, size=n)))
        return np.diff(times, prepend=0.0).astype(np.int64)
    raise WorldError(f"arrival pattern {config.pattern!r} has no intervals to draw")


def draw_arrivals(config: ArrivalConfig, n_jobs: int, generator: np.random.Generator) -> Ints:
    """(n_jobs,) arrival times, not decreasing. The number of draws depends on `n_jobs` only.

    Args:
        config: a validated pattern.
        n_jobs: jobs of the episode; the last group is cut to fit.
        generator: the stream "arrivals".

    Raises:
        WorldError: if a trace names fewer jobs than `n_jobs`, or `n_jobs` < 1.
    """
    if n_jobs < 1:
        raise WorldError(f"an episode needs at least one job, got n_jobs={n_jobs}")
    if config.pattern == "trace":
        if len(config.times) < n_jobs:
            raise WorldError(
                f"the arrival trace names {len(config.times)} jobs, the episode needs {n_jobs}: "
                "give more times or lower n_jobs"
            )
        return np.asarray(config.times[:n_jobs], np.int64)
    mean = config.jobs_mean
    if mean is None:
        mean = _BERNOULLI_JOBS_MEAN if config.pattern == "bernoulli" else _JOBS_MEAN
    # A group holds at least one job, so n_jobs groups always suffice.
    times = np.cumsum(draw_intervals(config, n_jobs, generator))
    sizes = np.maximum(np.rint(generator.normal(mean, config.jobs_std, size=n_jobs)), 1).astype(np.int64)
    return np.repeat(times, np.minimum(sizes, n_jobs))[:n_jobs]
