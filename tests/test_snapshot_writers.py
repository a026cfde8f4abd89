"""A column of the snapshot means the same whoever writes it: the same situations through every writer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pytest

from spotweave.deploy.model.instances import Offer
from spotweave.deploy.model.jobs import Resources
from spotweave.deploy.scheduler.needs import Need, Round
from spotweave.deploy.scheduler.snapshot import Occupancy, observe, snapshot_of
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.federations.rounds.application import Application, Client, Market, Tariff
from spotweave.envs.simulation.federations.rounds.application import Offer as RoundOffer
from spotweave.envs.simulation.guards import GuardsConfig
from spotweave.envs.simulation.market.config import OfferConfig
from spotweave.envs.simulation.series import StepSeries
from spotweave.envs.simulation.snapshot import FULLY_SENSITIVE, REFERENCE_HETERO, Category, Observation
from tests.agents.inputs import CLUSTERS, JOBS, PAIRS
from tests.deploy.scheduler.worlds import need, offer
from tests.envs.federated_cases import Story
from tests.envs.market_cases import federated_story, one_job, story
from tests.envs.test_slices_episodes import Job, small_config, start


class Seen(NamedTuple):
    """One task of an observation: (C, F), (F,), (C, P)."""

    clusters: np.ndarray[Any, Any]
    job: np.ndarray[Any, Any]
    pairs: np.ndarray[Any, Any]

    def columns(self) -> dict[str, list[float]]:
        """By name: of each cluster, or of the task alone."""
        found = {name: self.clusters[:, getattr(col, name)] for name in CLUSTERS}
        found |= {name: self.job[None, getattr(col, name)] for name in JOBS}
        found |= {name: self.pairs[:, getattr(col, name)] for name in PAIRS}
        return {name: [round(float(value), 4) for value in values] for name, values in found.items()}


def seen(observation: Observation, row: int = 0) -> Seen:
    return Seen(observation["clusters"], observation["jobs"][row], observation["pairs"][row])


def live(task: Need, *offers: Offer) -> Seen:
    return seen(
        observe(snapshot_of(offers, [task], {}, Occupancy()), [task], 1, GuardsConfig().rules()).observation
    )


def lane(observation: Observation, row: int = 0) -> Seen:
    """Of a batch of one."""
    return Seen(observation["clusters"][0], observation["jobs"][0, row], observation["pairs"][0, row])


# One situation: a job with a deadline in 5000 s before an owned cluster, spot capacity that is down, and
# on-demand capacity that takes 60 s to launch.


def _market_offer(market: str, **facts: Any) -> OfferConfig:
    name: dict[str, Any] = {"region": "r", "zone": f"r-{market}", "instance_type": "t", "market": market}
    name |= {"provider": "owned" if market == "owned" else "aws", "hetero_factor": 70, "quota": 4}
    return OfferConfig(**{**name, "launch_s": 60, **facts})


def market_job() -> Seen:
    world = story(
        [one_job(category=Category.TIME_CRITICAL, allowance_s=5000, sensitivity=5)],
        [_market_offer("owned", launch_s=0), _market_offer("spot"), _market_offer("on_demand")],
        {1: StepSeries(np.array([0]), np.array([0.0]))},
        restart_s=120,
    )
    return lane(world.observation)


def live_job() -> Seen:
    facts: dict[str, Any] = {
        "region": "r",
        "provider": "aws",
        "price_usd_hour": 1.0,
        "on_demand_usd_hour": 3.0,
    }
    owned = {"price_usd_hour": 0.0, "launch_s": 0.0, "queues": True, "up_ratio": 1.0}
    return live(
        need(kind="deadline", standard_s=3600.0, slack_s=5000.0, restart_s=120.0),
        offer("o", "owned", **{**facts, **owned, "provider": "owned"}),
        offer("s", "spot", **facts, available=False, up_ratio=0.0),
        offer("d", "on_demand", **facts, up_ratio=1.0),
    )


A_JOB = {
    "PROVIDER": [0, 1, 1],
    "HETERO_FACTOR": [REFERENCE_HETERO] * 3,
    "QUEUES": [1, 0, 0],
    "CAPACITY_NORMAL": [4, 0, 0],
    "CAPACITY_NOW": [4, 0, 4],
    "AVAILABLE": [1, 0, 1],
    "IS_SPOT": [0, 1, 0],
    "PRICE_USD_HOUR": [0, 1, 1],
    "LAUNCH_S": [0, 60, 60],
    "CATEGORY": [Category.TIME_CRITICAL],
    "EXPECTED_HETERO": [REFERENCE_HETERO],
    "SENSITIVITY": [FULLY_SENSITIVE],
    "STANDARD_S": [3600],
    "DURATION_S": [3600],
    "SLACK_S": [5000],
    "HAS_DEADLINE": [1],
    "RESTART_S": [120],
    "COLD_S": [0],
    "EXECUTION_S": [3600] * 3,
    "DEADLINE_S": [5000] * 3,
    "TRANSFER_S": [120] * 3,
    "FINISH_S": [3720, 3780, 3780],
    "FITS": [1, 0, 1],
}

# `OWES` is left out: an episode's first round begins later than an application of the market arrives.
# Another: the slow one of two clients awaits its first instance, with two rounds to go; its epochs take
# 600 s, the first on an instance 100 s more, and nothing else takes any time.

APPLICATION = Application(
    "two",
    2,
    (Client("slow", 600, 700, 60, (0, 1)), Client("fast", 100, 200, 60, (0, 1))),
    (
        RoundOffer("s", "r", Market.SPOT, Tariff.constant(1.0)),
        RoundOffer("d", "r", Market.ON_DEMAND, Tariff.constant(3.0)),
    ),
)


def episode_client() -> Seen:
    return lane(Story(APPLICATION, measured=True).world.observation)


def market_client() -> Seen:
    world = federated_story(
        [600, 100],
        [_market_offer("spot"), _market_offer("on_demand")],
        cold_s=100,
        task={"sensitivity": 5},
        prices={1: StepSeries(np.array([0]), np.array([3.0]))},
    )
    return lane(world.observation, 1)


def live_client() -> Seen:
    facts: dict[str, Any] = {"region": "r", "provider": "aws", "on_demand_usd_hour": 3.0, "up_ratio": 1.0}
    rounds = Round(owes=True, round_s=600.0, cold_s=100.0)
    return live(
        need(kind="federated", standard_s=600.0, executions_left=2, round=rounds),
        offer("s", "spot", **facts, price_usd_hour=1.0),
        offer("d", "on_demand", **facts, price_usd_hour=3.0),
    )


A_CLIENT = {
    "PROVIDER": [1, 1],
    "HETERO_FACTOR": [REFERENCE_HETERO] * 2,
    "QUEUES": [0, 0],
    "AVAILABLE": [1, 1],
    "IS_SPOT": [1, 0],
    "UP_RATIO": [1, 1],
    "PRICE_USD_HOUR": [1, 3],
    "ON_DEMAND_USD_HOUR": [3, 3],
    "LAUNCH_S": [60, 60],
    "CATEGORY": [Category.FEDERATED],
    "EXPECTED_HETERO": [REFERENCE_HETERO],
    "SENSITIVITY": [FULLY_SENSITIVE],
    "STANDARD_S": [600],
    "EXECUTIONS": [2],
    "HAS_DEADLINE": [0],
    "RESTART_S": [0],
    "IDLE": [0],
    "IS_SERVER": [0],
    "COLD_S": [100],
    "HAS_BUDGET": [0],
    "TIME_ERROR_S": [0],
    "EXECUTION_S": [700, 700],
    "DEADLINE_S": [0, 0],
    "TRANSFER_S": [0, 0],
    "FINISH_S": [760, 760],
    "FITS": [1, 1],
    "HERE": [0, 0],
}

# The third: a job of 40 s before an owned cluster, where it may wait.


def slices_owned() -> Seen:
    world = start(small_config(1), [Job(request=1, execution=40)])
    return lane(world.observation)


def market_owned() -> Seen:
    quick = _market_offer("owned", launch_s=0, hetero_factor=100, quota=100)
    return lane(story([one_job(standard_s=40, expected_hetero=100)], [quick]).observation)


def live_owned() -> Seen:
    facts = {
        "price_usd_hour": 0.0,
        "on_demand_usd_hour": 0.0,
        "launch_s": 0.0,
        "speed": 100 / REFERENCE_HETERO,
    }
    task = need(standard_s=40.0, reference_speed=100 / REFERENCE_HETERO, sensitivity=1.0)
    return live(task, offer("o", "owned", **facts, queues=True, up_ratio=1.0, quota=100))


AN_OWNED = {
    "SEQUENCE": [1],
    "CAPACITY_NORMAL": [100],
    "CAPACITY_MAX": [100],
    "CAPACITY_NOW": [100],
    "HETERO_FACTOR": [100],
    "PRICE_USD_HOUR": [0],
    "AVAILABLE": [1],
    "UP_RATIO": [1],
    "PROVIDER": [0],
    "QUEUES": [1],
    "CATEGORY": [Category.GENERAL],
    "EXPECTED_HETERO": [100],
    "SENSITIVITY": [1],
    "STANDARD_S": [40],
    "EXECUTIONS": [1],
    "DURATION_S": [40],
    "EXECUTION_S": [40],
    "FINISH_S": [40],
    "FITS": [1],
}


@pytest.mark.parametrize(
    ("situation", "writers"),
    [
        (A_JOB, (market_job, live_job)),
        (A_CLIENT, (episode_client, market_client, live_client)),
        (AN_OWNED, (slices_owned, market_owned, live_owned)),
    ],
    ids=["job", "client", "owned"],
)
def test_every_writer_means_the_same_by_a_column(
    situation: Mapping[str, list[float]], writers: tuple[Callable[[], Seen], ...]
) -> None:
    for writer in writers:
        columns = writer().columns()
        assert {name: columns[name] for name in situation} == situation, writer.__name__


def test_where_a_task_may_not_go_it_asks_for_more_than_there_can_be() -> None:
    only_spot = Application(
        "one", 1, (Client("c", 600, 700, 60, (0,)),), APPLICATION.offers, closing_s=0, aggregation_s=0
    )
    episode = lane(Story(only_spot, measured=True).world.observation)
    no_budget = federated_story(
        [600], [_market_offer("spot"), _market_offer("on_demand")], budgets_usd=[0.25],
        prices={1: StepSeries(np.array([0]), np.array([30.0]))},
    )  # fmt: skip
    banned = need(kind="federated", places=need().places.model_copy(update={"markets": ("spot",)}))
    for found in (episode, lane(no_budget.observation, 1), live(banned, offer("s"), offer("d", "on_demand"))):
        request, most = found.pairs[:, col.REQUEST], found.clusters[:, col.CAPACITY_MAX]
        assert request[0] <= most[0]
        assert request[1] == 2 * most[1] + 1


def test_a_gang_larger_than_an_offer_asks_for_its_own_size() -> None:
    """Policies read the size of a gang off any offer's request."""
    world = story([one_job(executors=6)], [_market_offer("owned"), _market_offer("on_demand", quota=8)])
    gang = need(resources=Resources(instances=6))
    for found in (lane(world.observation), live(gang, offer("o", "owned", quota=4), offer("d", quota=8))):
        assert found.pairs[:, col.REQUEST].tolist() == [6, 6]


def test_a_budget_that_is_overdrawn_has_nothing_left() -> None:
    overdrawn = need(kind="federated", round=Round(budget_left_usd=-0.5))
    found = live(overdrawn, offer("s"))
    assert found.job[[col.HAS_BUDGET, col.BUDGET_LEFT_USD]].tolist() == [1.0, 0.0]
