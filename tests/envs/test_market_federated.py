"""Stories of federated applications in the market world, every figure worked out by hand.

Job 0 is the server (it aggregates in 10 s), jobs 1, 2, ... are its clients. Launches and set-up take no time
and an instance costs 1 USD per hour, unless said otherwise.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.market import columns as at
from spotweave.envs.simulation.market.episodes import Tasks
from spotweave.envs.simulation.market.world import MarketWorld
from spotweave.envs.simulation.series import StepSeries
from spotweave.envs.simulation.snapshot import Category
from tests.envs.checks import check
from tests.envs.market_cases import HOUR, ON_DEMAND, OWNED, SPOT, federated_story, one_job, series, story
from tests.envs.test_market_stories import decide, now, pair, seen, shown, take, told, until

POOL = replace(ON_DEMAND, launch_s=0, quota=8)
ZONE = replace(SPOT, launch_s=0)
BLUNT = replace(ZONE, notice_s=0)
NONE = None


def state(world: MarketWorld, job: int, column: int) -> int:
    return int(world.lanes.job[0, job, column])


def start(world: MarketWorld, *offers: int) -> None:
    """Everybody goes somewhere at 0 s."""
    take(world, *enumerate(offers))


def finish(world: MarketWorld, offer: int) -> dict[str, float]:
    """Idle clients keep what they have, whoever else asks goes to `offer`: the metrics."""
    while shown(world):
        job = shown(world)[0]
        idle = seen(world, job, col.IDLE) == 1
        decide(world, job, state(world, job, at.OFFER) if idle else offer)
    return dict(world.metrics(0))


def gone_at(*ends_s: int) -> dict[int, StepSeries]:
    """The second offer is away from the first second on, there again from the second."""
    return {1: until(*ends_s)[0]}


def paid_s(world: MarketWorld, job: int) -> float:
    """Seconds at 1 USD per hour that a task has paid for."""
    return state(world, job, at.CHARGE) / 1e6


def test_a_fast_client_is_released_and_started_again() -> None:
    """Epochs of 600 and 1800 s, 100 s more when cold: the fast one needs no instance from 700 to 1910."""
    world = federated_story([600, 1800], [POOL], cold_s=100, whole_s=3720)
    start(world, 0, 0, 0)
    assert (now(world), shown(world)) == (700, [1])
    assert told(world, 1, col.IDLE, col.OWES, col.IS_SERVER) == [1, 0, 0]
    assert seen(world, 1, col.CATEGORY) == Category.FEDERATED
    assert told(world, 1, col.ROUND_LEFT_S, col.ROUND_S, col.COLD_S) == [1200, 1810, 100]
    assert seen(world, 1, col.OTHERS_USD_HOUR) == 2
    assert (pair(world, 1, 0, col.HERE), pair(world, 1, 0, col.EXECUTION_S)) == (1, 600)  # warm, if it stays
    assert world.observation["action_mask"][0, :2].tolist() == [1, 1]
    decide(world, 1, NONE)
    # It is needed after 1200 + 1810 s and takes 700 s: half of that slack is more than ten minutes.
    assert (now(world), seen(world, 1, col.IDLE)) == (1300, 0)
    assert world.observation["clusters"][0, 0, col.USED] == 2
    decide(world, 1, NONE)
    assert (now(world), shown(world)) == (1900, [1, 2])
    assert seen(world, 2, col.ROUND_LEFT_S) == 0  # it is the last
    take(world, (1, NONE), (2, 0))
    assert (now(world), shown(world)) == (1910, [1])  # asked at once: the second round has begun
    assert told(world, 1, col.OWES, col.ROUND_LEFT_S) == [1, 1800]
    decide(world, 1, NONE)
    assert now(world) == 1910 + (1800 - 700) // 2
    decide(world, 1, 0)
    assert not shown(world)
    assert [paid_s(world, job) for job in range(3)] == [3720, 700 + 700, 1900 + 10 + 1800]
    metrics = world.metrics(0)
    usd = (3720 + 1400 + 3710) / HOUR
    check(metrics, idle_usd=10 / HOUR, money_usd=usd, cost_usd_eq=usd, jobs_on_time=1, unfinished=0)
    check(metrics, rounds_per_application=2, application_hours=3720 / HOUR, delay_hours=0)


def test_a_client_that_is_kept_begins_at_once_and_warm() -> None:
    world = federated_story([600, 1800], [POOL], cold_s=100)
    start(world, 0, 0, 0)
    decide(world, 1, 0)
    assert now(world) == 1300  # asked again after ten minutes at the latest
    assert seen(world, 1, col.WAITED_S) == 600
    metrics = finish(world, 0)
    assert [paid_s(world, job) for job in range(3)] == [3720, 1910 + 600, 1910 + 1800]
    check(metrics, idle_usd=(1210 + 10) / HOUR)


def test_an_idle_client_may_move() -> None:
    """From 1 to 0.5 USD per hour between two rounds: the new instance is cold."""
    world = federated_story([600, 1800], [POOL, ZONE], cold_s=100, prices={1: series((0, 0.5))})
    start(world, 0, 0, 0)
    assert pair(world, 1, 1, col.EXECUTION_S) == 700
    decide(world, 1, 1)
    check(finish(world, 0), spot_usd=0.5 * (1910 - 700 + 700) / HOUR)
    assert state(world, 1, at.FINISH_S) == 3720


def test_nobody_trains_without_a_server() -> None:
    """The server comes after 300 s; the client's instance is idle until then."""
    world = federated_story([600], [POOL], rounds=1)
    take(world, (0, NONE), (1, 0))
    assert now(world) == 300
    check(finish(world, 0), idle_usd=300 / HOUR, application_hours=(300 + 600 + 10) / HOUR)


def test_an_interrupted_client_goes_on_from_its_checkpoint() -> None:
    """1000 s are nine cycles of 100 + 10 s and 10 s that are lost: 900 of 2000 s are saved."""
    task = {"interval_s": 100, "dump_s": 10}
    world = federated_story([2000, 300], [POOL, BLUNT], gone_at(1000), rounds=1, task=task)
    start(world, 0, 1, 0)
    assert (now(world), shown(world)) == (1000, [1])
    assert told(world, 1, col.OWES, col.PROGRESS) == [1, np.float32(0.45)]
    assert pair(world, 1, 0, col.EXECUTION_S) == 1100 + 10 * 10
    check(finish(world, 0), wasted_hours=10 / HOUR, application_hours=(1000 + 1200 + 10) / HOUR)


@pytest.mark.parametrize("noticed", [True, False])
def test_a_server_that_is_interrupted_loses_what_nobody_holds(noticed: bool) -> None:
    """At 1000 s clients 1 and 2 have delivered; 1 holds its instance, 2 does not; 3 trains on."""
    zone = ZONE if noticed else BLUNT
    world = federated_story([600, 700, 1800], [POOL, zone], gone_at(1000), task={"dump_s": 1})
    start(world, 1, 0, 0, 0)
    take(world, (1, 0), (2, NONE))
    assert (now(world), shown(world)) == (1000, [0, 1, 2])  # all that wait are asked
    assert seen(world, 0, col.IS_SERVER) == 1
    assert [seen(world, job, col.OWES) for job in (1, 2)] == [1 - noticed, 1 - noticed]
    assert state(world, 3, at.PHASE) == at.WORKING
    take(world, (0, 0), (1, 0), (2, NONE))
    if noticed:
        assert seen(world, 1, col.OWES) == 0
    else:
        # The server is back, client 1 delivers again and is asked again.
        assert (now(world), shown(world)) == (1000, [1, 2])
        take(world, (1, 0), (2, 0))
        assert now(world) == 1600
    metrics = finish(world, 0)
    check(metrics, interruptions=1, wasted_hours=0 if noticed else 700 / HOUR)
    check(metrics, rounds_per_application=2, application_hours=(1810 + 1810) / HOUR)
    assert state(world, 1, at.EXECUTED) == state(world, 2, at.EXECUTED) == 2


def test_a_client_without_a_server_keeps_its_result() -> None:
    """The server is away from 500 to 900 s; the epoch that ends at 600 s is delivered at 900 s."""
    world = federated_story([600], [POOL, BLUNT], gone_at(500), rounds=1, task={"dump_s": 1})
    start(world, 1, 0)
    assert now(world) == 500
    decide(world, 0, NONE)
    assert (now(world), shown(world)) == (600, [1])
    assert told(world, 1, col.IDLE, col.OWES, col.PROGRESS) == [1, 1, 1]
    decide(world, 1, 0)
    assert now(world) == 800
    check(finish(world, 0), application_hours=810 / HOUR)
    assert paid_s(world, 1) == 800


def test_a_hibernated_client_resumes_its_epoch() -> None:
    """400 of 600 s are done when its instance freezes from 400 to 1000 s."""
    zone = replace(ZONE, interruption="hibernate")
    world = federated_story([600], [POOL, zone], gone_at(400, 1000), rounds=1)
    start(world, 0, 1)
    assert (now(world), pair(world, 1, 1, col.HERE), pair(world, 1, 1, col.EXECUTION_S)) == (400, 1, 200)
    assert world.observation["action_mask"][0, :3].tolist() == [1, 0, 1]
    take(world, (1, NONE), (1, NONE))
    assert not shown(world)
    check(world.metrics(0), application_hours=(1000 + 200 + 10) / HOUR)


def test_a_budget_is_spent_to_the_last_second_and_not_exceeded() -> None:
    """1500 s of budget: two rounds of 610 s and 280 s of the third; no offer can be paid after that."""
    world = federated_story([600, 600], [POOL], rounds=4, budgets_usd=[1500 / HOUR, 0.0])
    assert [seen(world, job, col.HAS_BUDGET) for job in (1, 2)] == [1, 0]
    assert seen(world, 1, col.BUDGET_LEFT_USD) == np.float32(1500 / HOUR)
    start(world, 0, 0, 0)
    for t in (600, 1210):
        assert now(world) == t
        assert seen(world, 1, col.BUDGET_LEFT_USD) == pytest.approx((1500 - t) / HOUR)
        take(world, (1, 0), (2, 0))
    metrics = finish(world, 0)
    assert paid_s(world, 1) == 1500
    assert (state(world, 1, at.FINISH_S), state(world, 1, at.EXECUTED)) == (1500, 2)
    check(metrics, clients_left=1, misses=0, unfinished=0)
    check(metrics, rounds_per_application=4, application_hours=4 * 610 / HOUR)


def test_an_offer_that_a_budget_does_not_pay_is_not_valid() -> None:
    """0.16 USD pay 600 s at 0.9 USD per hour, not at 1."""
    prices = {0: series((0, 1.0)), 1: series((0, 0.9))}
    world = federated_story([600], [POOL, ZONE], budgets_usd=[0.16], prices=prices, rounds=1)
    decide(world, 0, 0)
    assert world.observation["action_mask"][0, :3].tolist() == [0, 1, 1]
    assert finish(world, 1)["clients_left"] == 0


def test_a_client_that_no_offer_suits_leaves_before_it_began() -> None:
    world = federated_story([600, 600], [POOL], budgets_usd=[0.16, 0.0], rounds=1)
    assert shown(world) == [0, 2]
    check(finish(world, 0), clients_left=1, rounds_per_application=1)


def test_an_application_that_all_clients_leave_is_over_and_late() -> None:
    world = federated_story([600], [POOL], budgets_usd=[1000 / HOUR], rounds=3)
    start(world, 0, 0)
    decide(world, 1, 0)
    assert state(world, 1, at.FINISH_S) == paid_s(world, 0) == paid_s(world, 1) == 1000
    delay_hours = (1000 - HOUR / 3) / HOUR
    check(world.metrics(0), applications_late=1, misses=1, clients_left=1, delay_hours=delay_hours)
    check(world.metrics(0), cost_usd_eq=25 + 2000 / HOUR + 0.25 * delay_hours)


def test_an_application_that_is_over_makes_room_in_the_owned_cluster() -> None:
    """Its server held one of three executors, for all of which another job waits there."""
    facts = {"category": Category.FEDERATED}
    jobs = [one_job(**facts, standard_s=10), one_job(**facts, data_gb=9.0, home=1), one_job(executors=3)]
    tasks = Tasks(
        server=np.array([0, 0, 2]),
        clients=np.array([1, 1, 0]),
        cold_s=np.zeros(3, np.int64),
        budget_usd=np.array([0.0, 1.5, 0.0]),
        whole_s=np.array([HOUR, 0, 0]),
    )
    # A client that waits finds that the price has doubled: its budget pays an hour nowhere any more.
    far = replace(OWNED, region="far", quota=3)
    prices = {1: series((0, 1.0), (100, 2.0))}
    world = story(jobs, [far, POOL], prices=prices, tasks=tasks, egress=1.0, decision_interval_s=100)
    take(world, (0, 0), (2, 0), (1, NONE))
    assert now(world) == 0  # asked again: the server runs
    while now(world) < 100 and shown(world):
        decide(world, 1, NONE)
    assert not shown(world)
    assert world.metrics(0)["clients_left"] == 1
    # It is late, so it is asked like any job.
    assert state(world, 2, at.FINISH_S) == 100 + HOUR
    assert not world.truncated(0)


@pytest.mark.parametrize(("allowance_s", "late"), [(1220, 0), (1219, 1)])
def test_an_application_misses_its_deadline_once(allowance_s: int, late: int) -> None:
    """Two rounds of 600 + 10 s. What is left for the coming round leaves the next one its time."""
    world = federated_story([600, 100], [POOL], allowance_s=allowance_s, whole_s=1220)
    assert told(world, 1, col.HAS_DEADLINE, col.SLACK_S) == [1, allowance_s]
    assert pair(world, 1, 0, col.DEADLINE_S) == allowance_s - 610 - 10
    start(world, 0, 0, 0)
    check(finish(world, 0), applications_late=late, miss_tc=late, jobs_on_time=1 - late)


def test_a_task_does_not_wait_inside_an_owned_cluster() -> None:
    """Two executors: the third task cannot go there, others could queue."""
    world = federated_story([600, 600], [replace(OWNED, quota=2), POOL])
    take(world, (0, 0), (1, 0))
    assert shown(world) == [2]
    assert world.observation["action_mask"][0, :3].tolist() == [0, 1, 1]


def test_data_are_read_again_on_every_new_instance() -> None:
    """10 GB from home, a checkpoint of 4 GB from the east after the first epoch; 0.1 USD per GB."""
    east = replace(POOL, region="east")
    task = {"data_gb": 10.0, "checkpoint_gb": 4.0}
    world = federated_story([600, 1800], [OWNED, east], rounds=2, task=task, egress=0.1)
    assert pair(world, 1, 1, col.EGRESS_USD) == np.float32(1.0)
    start(world, 0, 1, 0)
    assert now(world) == 640
    assert [pair(world, 1, offer, col.EGRESS_USD) for offer in (1, 0)] == [np.float32(1.0), np.float32(0.4)]
    decide(world, 1, NONE)
    while shown(world) != [1] or seen(world, 1, col.OWES) == 0:
        decide(world, shown(world)[0], 0 if shown(world)[0] == 2 else NONE)
    decide(world, 1, 1)
    check(finish(world, 0), egress_usd=2.0)


def test_the_values_of_a_client_are_its_applications() -> None:
    """What the application pays from a decision on; nobody is late."""
    world = federated_story([600, 1800], [POOL], rounds=1, whole_s=1810)
    start(world, 0, 0, 0)
    marks = world.marks()
    assert not shown(world)
    values = world.values(0, np.array([1]), marks)
    assert values[0].tolist() == pytest.approx([0, 0, 0, -(1810 + 600 + 1800) / HOUR, 0])


def test_errors_of_what_was_expected_are_shown() -> None:
    """Launches take 100 s on average; epochs exactly as long as the ones before."""
    world = federated_story([600, 900], [ON_DEMAND])
    assert seen(world, 1, col.TIME_ERROR_S) == 0
    started = 0.0
    for job in range(3):
        decide(world, job, 0)
    errors = []
    for job in range(3):
        took = state(world, job, at.BILLED_FROM_S) - state(world, job, at.LAUNCHED_S)
        errors.append((state(world, job, at.BILLED_FROM_S), abs(took - 100)))
        assert 50 <= took <= 150
    for _, error in sorted(errors):
        started = error if started == 0 else 0.8 * started + 0.2 * error
    assert seen(world, 1, col.TIME_ERROR_S) == pytest.approx(started)
