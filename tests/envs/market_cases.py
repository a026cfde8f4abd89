"""Small market worlds for tests: random ones, and hand-made ones with a single story."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from spotweave.envs.simulation.arrivals import ArrivalConfig
from spotweave.envs.simulation.availability import LognormalComponent, LognormalMixture
from spotweave.envs.simulation.guards import GuardsConfig
from spotweave.envs.simulation.market.config import (
    ApplicationsConfig,
    MarketConfig,
    MarketWorldConfig,
    OfferConfig,
    WorkloadConfig,
)
from spotweave.envs.simulation.market.episodes import EpisodeData, Jobs, Steps, Tasks
from spotweave.envs.simulation.market.source import MarketData
from spotweave.envs.simulation.market.workload import JobLaw
from spotweave.envs.simulation.market.world import MarketWorld
from spotweave.envs.simulation.series import StepSeries
from spotweave.envs.simulation.snapshot import Category

HOUR = 3600
UNGUARDED = GuardsConfig(safety_net=False, gain_test=False)
"""The oracle knows no guards: each choice of a policy is followed."""
LAW = JobLaw(
    gang_sizes=(1, 2, 3),
    gang_weights=(0.6, 0.3, 0.1),
    durations=LognormalMixture((LognormalComponent(1.0, 7.5, 0.8),)),
    hourly_weights=tuple(np.linspace(1.0, 2.0, 24) / 36.0),
)


def series(*rows: tuple[int, float]) -> StepSeries:
    return StepSeries(np.array([t for t, _ in rows], np.int64), np.array([v for _, v in rows], np.float64))


OWNED = OfferConfig("owned", "home", "", "", "owned", 70, 3)
SPOT = OfferConfig(
    "aws",
    "east",
    "east-a",
    "p3",
    "spot",
    70,
    4,
    launch_s=100,
    launch_failure=0.0,
    notice_s=120,
    free_first_s=3600,
)
ON_DEMAND = OfferConfig("aws", "east", "", "p3", "on_demand", 70, 6, launch_s=100, launch_failure=0.0)


def flapping(rng: np.random.Generator, start: int, end: int, mean_s: float) -> StepSeries:
    """Availability that changes often, on a grid of 60 s so that coincidences happen."""
    times, t = [start], start
    while t < end:
        t += 60 * max(1, int(rng.exponential(mean_s) / 60))
        times.append(t)
    up = (np.arange(len(times)) + int(rng.integers(2))) % 2
    return StepSeries(np.array(times, np.int64), up.astype(np.float64))


def wandering(rng: np.random.Generator, end: int) -> StepSeries:
    times = np.unique(np.concatenate([[0], rng.integers(1, end, 30)]))
    return StepSeries(times.astype(np.int64), np.round(rng.uniform(0.2, 3.0, len(times)), 4))


def random_market(seed: int) -> MarketData:
    """Two owned clusters, on demand, and spot of every habit; availability flaps."""
    rng = np.random.default_rng(seed)
    end = 6 * 86_400
    offers = (
        OWNED,
        replace(OWNED, region="west", hetero_factor=85, quota=3),
        SPOT,
        replace(SPOT, zone="east-b", interruption="hibernate", launch_failure=0.2, quota=3),
        replace(
            SPOT,
            provider="gcp",
            region="west",
            zone="w",
            free_first_s=0,
            notice_s=30,
            launch_s=60,
            notice_missed=0.5,
        ),
        replace(
            SPOT, provider="gcp", region="west", zone="x", hetero_factor=100, notice_s=0, launch_failure=0.1
        ),
        ON_DEMAND,
        replace(ON_DEMAND, provider="gcp", region="west", hetero_factor=55, quota=4, launch_failure=0.1),
    )
    always = series((0, 1.0))
    availability = [
        flapping(rng, 0, end, rng.choice([600.0, 4000.0, 20_000.0])) if offer.market == "spot" else always
        for offer in offers
    ]
    prices = [series((0, 0.0)) if offer.market == "owned" else wandering(rng, end) for offer in offers]
    egress = rng.uniform(0.01, 0.1, (3, 3))
    np.fill_diagonal(egress, 0.0)
    return MarketData(
        offers=offers,
        price_usd_hour=tuple(prices),
        availability=tuple(availability),
        on_demand_usd_hour=tuple(series((0, 3.06)) for _ in offers),
        regions=("home", "east", "west"),
        egress_usd_gb=egress,
        splits={"train": (0, 4 * 86_400), "validation": (4 * 86_400, 5 * 86_400), "test": (5 * 86_400, end)},
        law=LAW,
    )


def small_config(
    workload: Mapping[str, Any] | None = None, market: Mapping[str, Any] | None = None
) -> MarketWorldConfig:
    """A dense day: 14 jobs, many of them streams or bound to a deadline."""
    kinds: dict[str, Any] = {"jobs": 14, "general": 0.25, "time_critical": 0.4, "streaming": 0.35}
    arrivals = {"arrivals": ArrivalConfig(pattern="poisson"), "arrival_unit_s": 60}
    sizes = {"standard_s": [300, 9000], "batches": [2, 12], "period_s": [300, 900], "data_gb": [5.0, 60.0]}
    slack = {"slack": [1.05, 2.0], "slack_s": 200}
    return MarketWorldConfig(
        WorkloadConfig(**{**kinds, **arrivals, **sizes, **slack, **(workload or {})}),
        MarketConfig(**{"margin_s": 0, **(market or {})}),
        UNGUARDED,
    )


def federated_config(
    applications: dict[str, Any] | None = None,
    workload: dict[str, Any] | None = None,
) -> MarketWorldConfig:
    """A dense day of which a fifth are applications, half of whose clients have budgets, often short ones."""
    facts: dict[str, Any] = {"share": 0.2, "clients": [1, 4], "rounds": [1, 6], "epoch_s": [60, 900]}
    more = {"budget": 0.5, "budget_usd_hour": [0.3, 4.0], "checkpoint_interval_s": 120, "epoch_spread": 0.3}
    config = ApplicationsConfig(**{**facts, **more, **(applications or {})})
    return small_config({"federated": True, "applications": config, **(workload or {})})


# -- one story at a time ---------------------------------------------------------------------------------


def one_job(**changes: Any) -> dict[str, Any]:
    """A general job of one hour on one executor that reads nothing and saves nothing."""
    job = {"category": Category.GENERAL, "executors": 1, "executions": 1, "home": 0}
    times_s = {"arrival_s": 0, "standard_s": HOUR, "period_s": 0, "allowance_s": 0}
    saving = {"interval_s": 0, "dump_s": 0, "data_gb": 0.0, "checkpoint_gb": 0.0}
    return {**job, **times_s, **saving, "expected_hetero": 70, "sensitivity": 1, **changes}


def story(
    jobs: Sequence[Mapping[str, Any]],
    offers: Sequence[OfferConfig],
    availability: Mapping[int, StepSeries] | None = None,
    prices: Mapping[int, StepSeries] | None = None,
    egress: float = 0.0,
    tasks: Tasks | None = None,
    steps: Steps | None = None,
    guards: GuardsConfig | None = None,
    record: bool = False,
    **market: Any,
) -> MarketWorld:
    """A loaded world of one lane: jobs take their standard time everywhere, prices default to 1 USD/h."""
    regions = tuple(dict.fromkeys(offer.region for offer in offers))
    matrix = np.full((len(regions), len(regions)), egress)
    np.fill_diagonal(matrix, 0.0)
    always = series((0, 1.0))
    known = tuple((availability or {}).get(c, always) for c in range(len(offers)))
    data = MarketData(
        offers=tuple(offers),
        price_usd_hour=tuple(
            (prices or {}).get(c, series((0, 0.0 if offer.market == "owned" else 1.0)))
            for c, offer in enumerate(offers)
        ),
        availability=known,
        on_demand_usd_hour=tuple(series((0, 3.0)) for _ in offers),
        regions=regions,
        egress_usd_gb=matrix,
        splits={"train": (0, 86_400)},
        law=LAW,
    )
    config = MarketWorldConfig(
        WorkloadConfig(
            jobs=len(jobs), federated=tasks is not None, applications=ApplicationsConfig(epoch_spread=0.0)
        ),
        MarketConfig(**{"restart_s": 0, "reconsider_interval_s": 0, **market}),
        guards or UNGUARDED,
    )
    columns = {name: np.array([job[name] for job in jobs]) for name in jobs[0]}
    standard = columns["standard_s"]
    execution_s = np.repeat(standard[:, None], len(offers), axis=1)
    drawn = Jobs(**columns, execution_s=execution_s, tasks=tasks, steps=steps)
    world = MarketWorld(config, data, record=record)
    world.load(
        EpisodeData(
            jobs=drawn,
            availability=known,
            price_usd_hour=data.price_usd_hour,
            on_demand_usd_hour=np.array([3.0] * len(offers)),
            history_s=0,
            launch_key=1,
            revocation_key=1,
            origin_s=0,
        )
    )
    return world


def federated_story(
    epochs_s: Sequence[int],
    offers: Sequence[OfferConfig],
    availability: Mapping[int, StepSeries] | None = None,
    rounds: int = 2,
    cold_s: int = 0,
    budgets_usd: Sequence[float] | None = None,
    allowance_s: int = 0,
    whole_s: int = HOUR,
    task: Mapping[str, Any] | None = None,
    **more: Any,
) -> MarketWorld:
    """A story of one application: job 0 is its server, which aggregates in 10 s, jobs 1, 2, ... its clients.

    Epochs take exactly `epochs_s`; `task` changes all rows, `more` goes to `story`.
    """
    n = len(epochs_s) + 1
    facts = {"category": Category.FEDERATED, "executions": rounds, **(task or {})}
    jobs = [one_job(**facts, standard_s=10, allowance_s=allowance_s)]
    jobs += [one_job(**facts, standard_s=seconds) for seconds in epochs_s]
    clients = np.arange(n) > 0
    tasks = Tasks(
        server=np.zeros(n, np.int64),
        clients=np.full(n, n - 1),
        cold_s=np.where(clients, cold_s, 0),
        budget_usd=np.array([0.0, *(budgets_usd or [0.0] * (n - 1))]),
        whole_s=np.where(clients, 0, whole_s),
    )
    return story(jobs, offers, availability, tasks=tasks, **more)
