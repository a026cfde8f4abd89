"""Distributions fitted to recordings: spells of spot capacity, jobs, streaming batches, launches."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from envs.simulation.availability import LognormalComponent, LognormalMixture, OnOff, SpellParameters
from envs.traces.storage import TraceError

FITTED_PATH = Path(__file__).parent / "data" / "fitted.json"


@dataclass(frozen=True)
class FittedWorkload:
    """Jobs, streaming batches and launches, as `spotweave traces fit` found them.

    Attributes:
        gang_sizes: GPUs that a job needs at once.
        gang_probabilities: of each size; they sum to 1.
        duration_mixture: job duration in seconds, before it is cut to the bounds below.
        duration_min_s: shorter jobs were dropped before fitting.
        duration_max_s: longer jobs were dropped before fitting.
        batch_log_mean: mean of the logarithm of a streaming batch's execution seconds.
        batch_log_sigma: its standard deviation.
        hourly_weights: (24,) share of a day's streaming load that falls in each hour; they sum to 1.
        launch_failure: probability that a launch fails although the latest probe, one tick ago, said that
            capacity was there. This is what a world applies to a launch while availability is 1.
        launch_failure_2020: failed creations over all creations in the 2020 logs. Those retry every ten
            minutes while capacity is out, so the figure counts outages too: do not apply it on top of
            recorded availability.
    """

    gang_sizes: tuple[int, ...]
    gang_probabilities: tuple[float, ...]
    duration_mixture: tuple[LognormalComponent, ...]
    duration_min_s: float
    duration_max_s: float
    batch_log_mean: float
    batch_log_sigma: float
    hourly_weights: tuple[float, ...]
    launch_failure: float
    launch_failure_2020: float


@dataclass(frozen=True)
class Fitted:
    """Everything in fitted.json.

    Attributes:
        workload: jobs, batches and launches.
        availability: spell parameters by name: "pooled" over the nine V100 zones, and one set per AWS region,
            e.g. "us-west-2" for a market with plenty and "us-east-1" for a scarce one. Train days only.
    """

    workload: FittedWorkload
    availability: dict[str, SpellParameters]


@cache
def load_fitted(path: Path = FITTED_PATH) -> Fitted:
    """Read the fitted parameters once per process.

    Raises:
        TraceError: for a file that cannot be read or lacks an entry.
    """
    try:
        raw: dict[str, Any] = json.loads(path.read_text())
        jobs, batches, launches = (raw[name] for name in ("jobs", "batches", "launches"))
        workload = FittedWorkload(
            gang_sizes=tuple(jobs["gang_sizes"]),
            gang_probabilities=tuple(jobs["gang_probabilities"]),
            duration_mixture=_components(jobs["duration_mixture"]),
            duration_min_s=jobs["duration_min_s"],
            duration_max_s=jobs["duration_max_s"],
            batch_log_mean=batches["log_mean"],
            batch_log_sigma=batches["log_sigma"],
            hourly_weights=tuple(batches["hourly_weights"]),
            launch_failure=launches["launch_failure"],
            launch_failure_2020=launches["launch_failure_2020"],
        )
        availability = {
            name: SpellParameters(*(_on_off(found[part]) for part in ("own", "regional", "common")))
            for name, found in raw["availability"].items()
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TraceError(
            f"{path} holds no fitted parameters ({error}): refit with `spotweave traces fit`"
        ) from error
    return Fitted(workload, availability)


def _components(raw: list[dict[str, float]]) -> tuple[LognormalComponent, ...]:
    return tuple(LognormalComponent(c["weight"], c["log_mean"], c["log_sigma"]) for c in raw)


def _on_off(raw: dict[str, list[dict[str, float]]]) -> OnOff:
    return OnOff(*(LognormalMixture(_components(raw[side])) for side in ("up", "down")))
