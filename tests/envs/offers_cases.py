"""A chain of two steps on five places, small enough to work out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spotweave.envs.simulation.market.config import Market, OfferConfig
from spotweave.envs.simulation.series import StepSeries
from spotweave.envs.simulation.workflows import model
from spotweave.envs.simulation.workflows.options import Case, Conditions, Quotes
from spotweave.envs.simulation.workflows.problem import problem_of
from spotweave.envs.simulation.workflows.world import WorkflowWorld
from spotweave.envs.simulation.world import EpisodeKey

KEY = EpisodeKey(0, "test", 0)
OWNED, SPOT_A, DEMAND_A, SPOT_B, DEMAND_B, NONE = range(6)
PRICES_USD_HOUR = (0.0, 3.6, 14.4, 1.8, 14.4)
"""0.001 USD a second on spot in region a, half of that in region b, 0.004 on demand."""
CONDITIONS = Conditions(gb_s=0.1, latency_s=10.0, runtime_error=0.2)


def offer(market: Market, region: str) -> OfferConfig:
    """A place; instances take 100 s to launch, spot offers have two."""
    return OfferConfig(
        provider="owned" if market == "owned" else "aws",
        region=region,
        zone=region,
        instance_type="t",
        market=market,
        hetero_factor=70,
        quota={"owned": 1, "spot": 2, "on_demand": 100}[market],
        launch_s=0 if market == "owned" else 100,
        launch_failure=0.0,
    )


OFFERS = (
    offer("owned", "a"),
    offer("spot", "a"),
    offer("on_demand", "a"),
    offer("spot", "b"),
    offer("on_demand", "b"),
)


def step(name: str, run_s: float, reads: Sequence[str], writes: Sequence[str] = ()) -> model.Step:
    """On one executor."""
    return model.Step(name, model.Profile((model.Stage(1, run_s),), executors=1), tuple(reads), tuple(writes))


def chain(deadline_s: float = 10_000.0, stays: model.Stays = model.Stays.FREE) -> model.Workflow:
    """600 s, then 300 s; 1 GB lies in region a, 1 GB is between them."""
    return model.Workflow(
        "chain",
        (model.File("in", 1.0, (OFFERS[OWNED].name,), stays), model.File("between", 1.0)),
        (step("first", 600, ["in"], ["between"]), step("second", 300, ["between"])),
        deadline_s,
    )


def fan(count: int, deadline_s: float = 10_000.0) -> model.Workflow:
    """`count` steps of 600 s that read the same file of region a."""
    steps = tuple(step(f"s{k}", 600, ["in"]) for k in range(count))
    return model.Workflow("fan", (model.File("in", 1.0, (OFFERS[OWNED].name,)),), steps, deadline_s)


def case_of(
    workflow: model.Workflow,
    actual: Sequence[float] | None = None,
    ends_s: Sequence[tuple[int, int, int]] = (),
) -> Case:
    """An episode; `ends_s` has (place, from, until) when a spot offer is away."""
    platform = model.Platform(
        tuple(model.Cluster(one.name, one.quota, 1.0, region=one.region) for one in OFFERS),
        model.Link(0.1, 10.0),
    )
    quotes = []
    for c, usd_hour in enumerate(PRICES_USD_HOUR):
        times, values = [0], [1.0]
        for place, start, end in ends_s:
            if place == c:
                times, values = (
                    ([*times, start, end], [*values, 0.0, 1.0]) if start else ([0, end], [0.0, 1.0])
                )
        availability = StepSeries(np.array(times, np.int64), np.array(values))
        quotes.append(Quotes(StepSeries(np.zeros(1, np.int64), np.array([usd_hour])), availability))
    return Case(
        workflow,
        OFFERS,
        ("a", "b"),
        problem_of(workflow, platform),
        np.ones(len(workflow.steps)) if actual is None else np.array(actual),
        np.array([[0.0, 0.02], [0.02, 0.0]]),
        tuple(quotes),
        CONDITIONS,
    )


@dataclass(frozen=True)
class Given:
    """The same case for every key. A `CaseSource`."""

    only: Case

    @property
    def offers(self) -> tuple[OfferConfig, ...]:
        return self.only.offers

    def case(self, key: EpisodeKey) -> Case:
        return self.only


def begun(case: Case, lanes: int = 1) -> WorkflowWorld:
    """A world in its first question."""
    world = WorkflowWorld(Given(case), lanes)
    world.reset([KEY] * lanes)
    return world
