"""One story per mechanism of the market world, every figure worked out by hand.

Unless said otherwise a job takes one executor and one hour, launches and set-up take no time, running costs
1 USD per hour, and what runs on demand stays there. A script lists (job, offer) in the order of the
decisions; None is "none for now".
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.guards import GuardsConfig
from spotweave.envs.simulation.market import columns as at
from spotweave.envs.simulation.market.world import MarketWorld
from spotweave.envs.simulation.series import StepSeries
from spotweave.envs.simulation.snapshot import Category
from tests.envs.checks import check
from tests.envs.market_cases import HOUR, ON_DEMAND, OWNED, SPOT, one_job, series, story

POOL = replace(ON_DEMAND, launch_s=0)
ZONE = replace(SPOT, launch_s=0)
NONE = None


def shown(world: MarketWorld) -> list[int]:
    """Jobs in the window."""
    return [int(job) for job in world.lanes.window[0, : world.lanes.lane[0, at.WINDOW_N]]]


def now(world: MarketWorld) -> int:
    return int(world.lanes.lane[0, at.NOW_S])


def decide(world: MarketWorld, job: int, offer: int | None) -> float:
    columns = world.spec.n_clusters + 1
    column = world.spec.n_clusters if offer is None else offer
    rewards, _ = world.step(np.array([shown(world).index(job) * columns + column]))
    return float(rewards[0])


def take(world: MarketWorld, *script: tuple[int, int | None]) -> None:
    for job, offer in script:
        decide(world, job, offer)


def play(world: MarketWorld, *script: tuple[int, int | None]) -> dict[str, float]:
    take(world, *script)
    return dict(world.metrics(0))


def finish_s(world: MarketWorld, job: int = 0) -> int:
    return int(world.lanes.job[0, job, at.FINISH_S])


def seen(world: MarketWorld, job: int, field: int) -> float:
    return float(world.observation["jobs"][0, shown(world).index(job), field])


def told(world: MarketWorld, job: int, *fields: int) -> list[float]:
    return [seen(world, job, field) for field in fields]


def pair(world: MarketWorld, job: int, offer: int, field: int) -> float:
    return float(world.observation["pairs"][0, shown(world).index(job), offer, field])


def until(*ends_s: int) -> dict[int, StepSeries]:
    """The first offer is there until the first second, away until the second, and so on."""
    return {0: series((0, 1.0), *((end_s, float(k % 2)) for k, end_s in enumerate(ends_s)))}


def stream(**changes: Any) -> dict[str, Any]:
    """Batches of 600 s, due every 1200 s; their state is saved in 50 s."""
    batches = {"standard_s": 600, "executions": 4, "period_s": 1200, "allowance_s": 600, "dump_s": 50}
    return one_job(category=Category.STREAMING, **{**batches, **changes})


SAVING = one_job(standard_s=2 * HOUR, interval_s=1000, dump_s=50)
"""A job of two hours with checkpoints of 50 s."""

# -- billing ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("revoked_s", "paid_s"), [(3000, 0), (3599, 0), (3600, 3600), (4000, 4000)])
def test_an_interruption_in_the_first_hour_is_free(revoked_s: int, paid_s: int) -> None:
    job = one_job(standard_s=2 * HOUR, dump_s=200)  # 120 s of notice do not save it
    world = story([job], [ZONE, POOL], until(revoked_s))
    metrics = play(world, (0, 0), (0, 1))
    check(metrics, interruptions=1, spot_usd=paid_s / HOUR, on_demand_usd=2.0, wasted_hours=revoked_s / HOUR)
    check(metrics, cost_usd_eq=paid_s / HOUR + 2.0 + 0.25 * revoked_s / HOUR)
    assert finish_s(world) == revoked_s + 2 * HOUR


def test_a_bill_is_at_least_a_minute_per_executor_on_gcp_of_interrupted_instances_too() -> None:
    world = story([one_job()], [replace(ZONE, free_first_s=0), POOL], until(20))
    check(play(world, (0, 0), (0, 1)), spot_usd=60 / HOUR)
    world = story([one_job(standard_s=30, executors=3)], [POOL])
    check(play(world, (0, 0)), on_demand_usd=3 * 60 / HOUR)


# -- what survives an interruption ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("notice_s", "missed", "kept_s"), [(120, 0.0, 5000), (120, 1.0, 0), (29, 0.0, 0), (30, 0.0, 5000)]
)
def test_a_notice_saves_everything_if_it_comes_and_suffices(
    notice_s: int, missed: float, kept_s: int
) -> None:
    zone = replace(ZONE, notice_s=notice_s, notice_missed=missed)
    world = story([one_job(standard_s=2 * HOUR, dump_s=30)], [zone, POOL], until(5000))
    decide(world, 0, 0)
    assert seen(world, 0, col.PROGRESS) == np.float32(kept_s / 7200)
    assert pair(world, 0, 1, col.EXECUTION_S) == 7200 - kept_s
    check(play(world, (0, 1)), wasted_hours=(5000 - kept_s) / HOUR)
    assert finish_s(world) == 5000 + 7200 - kept_s


def test_hibernated_instances_resume_where_they_stopped() -> None:
    world = story([SAVING], [replace(ZONE, interruption="hibernate"), POOL], until(4000, 10_000))
    decide(world, 0, 0)
    assert (pair(world, 0, 0, col.HERE), pair(world, 0, 0, col.EXECUTION_S)) == (1, 3550)
    assert seen(world, 0, col.RUNNING) == 0
    assert world.observation["action_mask"][0].tolist()[:3] == [0, 1, 1]
    assert world.observation["clusters"][0, 0, col.USED] == 0
    metrics = play(world, *[(0, NONE)] * 20)  # at 4000, 4300, ..., 9700
    disk = 10_959 / 1e6 * 6000 / HOUR  # 100 GB at 0.08 / 730 USD per GB and hour, in whole micro-dollars
    check(metrics, spot_usd=7550 / HOUR, disk_usd=disk, wasted_hours=0)
    assert finish_s(world) == 7550 + 6000


# -- data ------------------------------------------------------------------------------------------------


def test_data_and_checkpoint_cost_time_and_egress_from_where_they_lie() -> None:
    """10 GB of input at home, 4 GB of checkpoint in the east: at 0.25 GB/s and 0.1 USD/GB across regions."""
    offers = [OWNED, replace(ZONE, region="east"), replace(POOL, region="west")]
    job = one_job(standard_s=2 * HOUR, data_gb=10.0, checkpoint_gb=4.0, dump_s=10)
    world = story([job], offers, {1: until(3640)[0]}, egress=0.1, restart_s=100)
    assert pair(world, 0, 0, col.TRANSFER_S) == 100 + 10
    assert pair(world, 0, 1, col.TRANSFER_S) == 100 + 40
    assert pair(world, 0, 1, col.EGRESS_USD) == np.float32(1.0)
    decide(world, 0, 1)
    assert now(world) == 3640  # 3500 s of work, all saved by the notice
    assert pair(world, 0, 2, col.TRANSFER_S) == 100 + 56
    assert [pair(world, 0, offer, col.EGRESS_USD) for offer in (1, 2)] == [np.float32(1.0), np.float32(1.4)]
    check(play(world, (0, 2)), egress_usd=2.4, spot_usd=3640 / HOUR, on_demand_usd=3856 / HOUR)
    assert finish_s(world) == 3640 + 156 + 3700


# -- streams ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("allowance_s", "late"), [(700, 3), (1000, 2), (1500, 0)])
def test_a_stream_works_its_backlog_off_and_late_batches_count(allowance_s: int, late: int) -> None:
    """Batches of 900 s every 600 s: due at 600, 1200, 1800, done at 1500, 2400, 3300."""
    job = stream(standard_s=900, executions=3, period_s=600, allowance_s=allowance_s)
    world = story([job], [POOL])
    metrics = play(world, (0, 0))
    check(metrics, miss_batches=late, on_demand_usd=3300 / HOUR, delay_hours=(0 + 300 + 600) / 3 / HOUR)
    assert finish_s(world) == 3300


# -- moving from on demand -------------------------------------------------------------------------------


HALF_IN_THE_ZONE = {0: series((0, 1.0)), 1: series((0, 0.5))}


@pytest.mark.parametrize("first", [0, 1])
def test_a_stream_may_be_moved_between_two_batches(first: int) -> None:
    """The first batch that ends after half an hour is the one that ends then.

    The other place has instances at 1850 s and waits for the data of 2400 s.
    """
    world = story([stream()], [POOL, ZONE], prices=HALF_IN_THE_ZONE, reconsider_interval_s=1800)
    decide(world, 0, first)
    assert now(world) == 1800
    assert told(world, 0, col.RUNNING, col.WAITED_S, col.EXECUTIONS) == [1, 0, 3]
    assert (pair(world, 0, first, col.HERE), pair(world, 0, first, col.EXECUTION_S)) == (1, 600)
    assert pair(world, 0, 1 - first, col.TRANSFER_S) == 50
    metrics = play(world, (0, 1 - first), (0, NONE))
    assert finish_s(world) == 4800 + 600
    on_demand_s = 1850 if first == 0 else 5400 - 1850
    check(
        metrics, on_demand_usd=on_demand_s / HOUR, spot_usd=0.5 * (5400 - on_demand_s) / HOUR, miss_batches=0
    )


@pytest.mark.parametrize("hibernates", [False, True])
def test_a_move_that_an_interruption_ends_gives_its_new_place_back(hibernates: bool) -> None:
    """The stream begins to move at 1800 s; at 1820 s, of 50 s that its state takes, the old zone goes."""
    zone = replace(ZONE, interruption="hibernate") if hibernates else ZONE
    world = story([stream(executions=3)], [zone, POOL], until(1820), reconsider_interval_s=1800)
    decide(world, 0, 0)
    decide(world, 0, 1)
    assert now(world) == 1820
    assert world.lanes.offer[0, 0, at.USED] == 0
    # Frozen instances would go on with the move.
    assert world.lanes.offer[0, 1, at.USED] == int(hibernates)
    decide(world, 0, 1)
    while not world.lanes.lane[0, at.STATUS]:
        decide(world, 0, NONE)
    assert (world.lanes.offer[0, :, [at.USED, at.PRESENT]] == 0).all()


# -- owned clusters --------------------------------------------------------------------------------------


def test_a_full_cluster_is_extended_every_300_s_and_shrinks_when_it_was_not_full_for_a_while() -> None:
    cluster = replace(OWNED, quota=2, elastic=2)
    world = story([one_job()] * 3, [cluster], record=True, elastic_step=1, elastic_window_s=600)
    clusters = world.observation["clusters"][0, 0]
    assert clusters[[col.CAPACITY_NORMAL, col.CAPACITY_NOW, col.CAPACITY_MAX]].tolist() == [2, 2, 4]
    metrics = play(world, (0, 0), (1, 0), (2, 0))
    check(metrics, cost_usd_eq=0.25 * 300 / HOUR, owned_executor_hours=3.0)
    assert [finish_s(world, job) for job in range(3)] == [HOUR, HOUR, 300 + HOUR]
    capacity = world.timeline(0).capacity[0]
    # Full at 300 (a queue) and 600 s (3 of 3), then unused; at 1500 s back to 3, all used, and so on.
    assert capacity.times_s.tolist() == [0, 300, 600, 1500, 1800, 2700, 3000]
    assert capacity.values.tolist() == [2, 3, 4, 3, 4, 3, 4]


def test_a_gang_that_only_a_full_extension_holds_waits_for_it() -> None:
    world = story([one_job(executors=4)], [replace(OWNED, quota=2, elastic=2)], elastic_step=1)
    play(world, (0, 0))
    assert finish_s(world) == 600 + HOUR


# -- values ----------------------------------------------------------------------------------------------


def test_the_values_of_each_decision_are_what_followed_it() -> None:
    """Spot until 5000 s (nothing saved), then on demand until 12,200 s; the deadline passes at 9000 s."""
    job = one_job(category=Category.TIME_CRITICAL, standard_s=2 * HOUR, allowance_s=9000, dump_s=200, home=0)
    world = story([job], [ZONE, POOL], until(5000))
    rewards, marks = [], []
    for offer in (0, NONE, 1):
        rewards.append(decide(world, 0, offer))
        marks.append(world.marks()[0])
    values = world.values(0, np.zeros(3, np.int64), np.array(marks))
    end = 5300 + 7200
    spot, on_demand = 5000 / HOUR, 2.0
    expected = [
        [-1.0, 0.0, -(end - 7200) / HOUR, -(spot + on_demand), 0.0],
        [-1.0, 0.0, -(end - 5000 - 7200) / HOUR, -on_demand, 0.0],
        [-1.0, 0.0, -(end - 5300 - 7200) / HOUR, -on_demand, 0.0],
    ]
    np.testing.assert_allclose(values, expected, atol=1e-12)
    cost = spot + on_demand + 25 + 0.25 * (end - 7200) / HOUR
    assert sum(rewards) == pytest.approx(-cost)
    assert world.metrics(0)["cost_usd_eq"] == pytest.approx(cost)
    np.testing.assert_allclose(values[0] @ np.array(world.spec.objective_weights), -cost)


def test_a_miss_in_the_queue_is_felt_by_those_who_were_there() -> None:
    """Job 1 waits behind job 0 and misses its deadline; job 2 came later still, job 0 two deployments ago."""
    late = one_job(category=Category.TIME_CRITICAL, executors=1, standard_s=100, allowance_s=1000)
    world = story([one_job(executors=3), late, one_job(executors=3)], [OWNED], beta=0.9)
    marks = []
    for number in range(3):
        decide(world, number, 0)
        marks.append(world.marks()[0])
    values = world.values(0, np.arange(3), np.array(marks))
    assert values[:, 0].tolist() == [0, -1, 0]
    np.testing.assert_allclose(values[:, 1], [-(0.9**2), 0, -1])
    np.testing.assert_allclose(values[:, 4], [-3, -100 / HOUR, -3])  # executor-hours of the owned cluster
    assert world.metrics(0)["miss_tc"] == 1


# -- the end ---------------------------------------------------------------------------------------------


def test_a_deadline_met_to_the_second_is_met() -> None:
    for allowance, missed in ((HOUR, 0), (HOUR - 1, 1)):
        world = story([one_job(category=Category.TIME_CRITICAL, allowance_s=allowance)], [POOL])
        assert play(world, (0, 0))["miss_tc"] == missed


@pytest.mark.parametrize(("spot_risk", "ends_s"), [(0.0, 6780), (0.1, 6780), (0.2, 3600)])
def test_the_net_leaves_a_job_on_spot_capacity_that_is_about_to_end(spot_risk: float, ends_s: int) -> None:
    """Its latest start on demand is 7200 - 1.1 * 3600 - 60 = 3180 s, when 420 s are left."""
    job = one_job(category=Category.TIME_CRITICAL, allowance_s=2 * HOUR)
    world = story([job], [ZONE, POOL], guards=GuardsConfig(spot_risk=spot_risk))
    assert play(world, (0, 0))["miss_tc"] == 0
    assert finish_s(world) == ends_s
