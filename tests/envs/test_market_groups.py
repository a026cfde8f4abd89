"""Bags and workflows among the jobs of a market world: what is drawn, and when a step may begin."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from spotweave.agents.rules.policy import from_python
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.market import columns as at
from spotweave.envs.simulation.market.config import BagsConfig, MarketWorldConfig, WorkflowsConfig
from spotweave.envs.simulation.market.episodes import Steps
from spotweave.envs.simulation.market.observation import steps_after
from spotweave.envs.simulation.market.source import draw_episode
from spotweave.envs.simulation.market.workload import draw_bag, draw_workflow
from spotweave.envs.simulation.market.world import MarketWorld
from spotweave.envs.simulation.snapshot import Category
from spotweave.envs.simulation.world import EpisodeKey
from tests.envs.checks import at_random
from tests.envs.market_cases import HOUR, federated_config, one_job, random_market, small_config, story
from tests.envs.test_market_stories import POOL, decide, now, pair, play, seen, shown, take

RNG = np.random.default_rng(5)
MIXED: dict[str, Any] = {
    "jobs": 20,
    "bags": BagsConfig(share=0.1, tasks=[2, 5]),
    "workflows": WorkflowsConfig(share=0.15, stages=[2, 3], width=[1, 3], executors=[1, 2]),
}


def in_order(**changes: Any) -> MarketWorld:
    """Jobs 0 (one hour) and 1 (two hours), job 2, which waits for both, and job 3 by itself."""
    rows = [one_job(standard_s=hours * HOUR, **changes) for hours in (1, 2, 1, 1)]
    steps = Steps(np.array([0, 0, 0, 3]), np.array([0, 0, 2, 3]), np.array([2, 2, 2, 3]))
    return story(rows, [POOL], steps=steps)


def test_a_step_is_decided_once_all_that_it_waits_for_have_ended() -> None:
    world = in_order(category=Category.TIME_CRITICAL, allowance_s=4 * HOUR)
    assert shown(world) == [0, 1, 3]
    assert [seen(world, job, col.EXECUTIONS) for job in (0, 1, 3)] == [2, 2, 1]
    take(world, (0, 0), (1, 0), (3, 0))
    assert now(world) == 2 * HOUR
    assert shown(world) == [2]
    assert seen(world, 2, col.SLACK_S) == 2 * HOUR
    assert seen(world, 2, col.WAITED_S) == 0
    assert pair(world, 2, 0, col.DEADLINE_S) == 2 * HOUR
    metrics = play(world, (2, 0))
    assert metrics["money_usd"] == pytest.approx(5.0)
    assert metrics["delay_hours"] == pytest.approx(0.0), "what it waited for is no delay of its own"
    assert metrics["misses"] == 0


def test_the_time_of_a_step_that_waits_is_delay_only_from_when_it_could_begin() -> None:
    world = in_order()
    take(world, (0, 0), (1, 0), (3, 0))
    assert decide(world, 2, None) == pytest.approx(-0.25 * 300 / HOUR)  # none for now: asked again in 300 s
    assert now(world) == 2 * HOUR + 300
    assert play(world, (2, 0))["delay_hours"] == pytest.approx(300 / HOUR)


def test_a_step_whose_deadline_passes_while_it_waits_is_late() -> None:
    world = in_order(category=Category.TIME_CRITICAL, allowance_s=HOUR)
    metrics = play(world, (0, 0), (1, 0), (3, 0), (2, 0))
    assert metrics["miss_tc"] == 2, "jobs 1 and 2"
    assert world.lanes.job[0, :4, at.MISSES].tolist() == [0, 1, 1, 0]


def test_a_bag_has_one_deadline_after_its_longest_task() -> None:
    config = BagsConfig(
        share=0.1, tasks=[3, 3], task_s=[60, 600], deadline=1.0, slack=[2.0, 2.0], slack_s=100
    )
    bag = draw_bag(config, RNG)
    assert bag.executors.tolist() == [1, 1, 1]
    assert set(bag.allowance_s.tolist()) == {2 * int(bag.standard_s.max()) + 100}
    assert (bag.needed == 0).all()
    assert (draw_bag(BagsConfig(deadline=0.0), RNG).allowance_s == 0).all()


def test_a_step_leaves_time_for_the_stages_after_it() -> None:
    config = WorkflowsConfig(
        share=0.1, stages=[3, 3], width=[2, 2], step_s=[100, 100], executors=[9, 9], start_s=50, slack=[2, 2]
    )
    drawn = draw_workflow(config, 4, RNG)
    # Three stages of 150 s, twice: 900 s for all; the last but one leaves 150 s, the first 300 s.
    assert drawn.allowance_s.tolist() == [600, 600, 750, 750, 900, 900]
    assert drawn.needed.tolist() == [[0, 0], [0, 0], [0, 2], [0, 2], [2, 4], [2, 4]]
    assert set(drawn.executors.tolist()) == {4}


@pytest.mark.parametrize("federated", [False, True])
def test_all_other_jobs_stay_as_they_were_drawn(federated: bool) -> None:
    without: MarketWorldConfig = federated_config() if federated else small_config()
    mixed = federated_config(workload=MIXED) if federated else small_config(MIXED)
    without.workload.jobs = MIXED["jobs"]
    data, key = random_market(3), EpisodeKey(7, "train", 2)
    plain, jobs = draw_episode(without, data, key).jobs, draw_episode(mixed, data, key).jobs
    assert plain.steps is None
    assert jobs.steps is not None
    n, rows = len(jobs.arrival_s), np.arange(len(jobs.arrival_s))
    assert n <= mixed.workload.most_tasks
    # Rows of a group are those that share their last row with others, or are alone and new.
    kept = np.isin(jobs.data_gb, plain.data_gb) & np.isin(jobs.standard_s, plain.standard_s)
    assert len(plain.arrival_s) - kept.sum() == 5, "two bags and three workflows took the place of others"
    assert (np.diff(jobs.arrival_s) >= 0).all()
    assert (jobs.steps.last >= rows).all()
    waits = jobs.steps.needed_from < jobs.steps.needed_end
    assert waits.any()
    assert not (waits & kept).any()
    assert (jobs.steps.needed_end[waits] <= rows[waits]).all()
    if federated:
        assert jobs.tasks is not None
        member = jobs.category == Category.FEDERATED
        assert (jobs.category[jobs.tasks.server[member]] == Category.FEDERATED).all()
        assert (jobs.tasks.server[~member] == rows[~member]).all()
        assert (jobs.arrival_s[jobs.tasks.server] == jobs.arrival_s).all()


def test_steps_that_wait_for_others_that_wait_are_counted_too() -> None:
    world = MarketWorld(federated_config(workload=MIXED), random_market(4))
    world.reset([EpisodeKey(4, "train", 0)])
    rows, n = world.episodes.job[0], int(world.episodes.n_jobs[0])
    waits = [set(range(rows[job, at.NEEDED_FROM], rows[job, at.NEEDED_END])) for job in range(n)]
    most = 0
    for job in range(n):
        found = {job}
        for step in range(job + 1, n):
            if waits[step] & found:
                found.add(step)
        assert from_python(steps_after)(world.episodes, 0, job) == len(found) - 1
        most = max(most, len(found) - 1)
    assert most > 3


@pytest.mark.parametrize("seed", range(3))
def test_a_mixed_episode_ends_and_no_step_begins_too_early(seed: int) -> None:
    world = MarketWorld(federated_config(workload=MIXED), random_market(seed), 1, record=True)
    world.reset([EpisodeKey(seed, "train", 0)])
    at_random(world, seed)
    assert not world.truncated(0)
    steps = world.episodes.job[0]
    ends_s = world.lanes.job[0, :, at.FINISH_S]
    begun: dict[int, int] = {}
    for row in world.lanes.log[0, : world.lanes.lane[0, at.LOG_N]]:
        if row[at.LOG_KIND] == at.SEGMENT:
            job = int(row[at.LOG_JOB])
            begun[job] = min(begun.get(job, 1 << 60), int(row[at.LOG_START_S]))
    waiting = [job for job in begun if steps[job, at.NEEDED_FROM] < steps[job, at.NEEDED_END]]
    assert waiting
    for job in waiting:
        needed = slice(steps[job, at.NEEDED_FROM], steps[job, at.NEEDED_END])
        assert begun[job] >= ends_s[needed].max()


def test_arrivals_that_are_cut_short_hold_whole_groups() -> None:
    world = MarketWorld(federated_config(workload=MIXED), random_market(0))
    world.reset([EpisodeKey(0, "train", 0)])
    rows, n = world.episodes.job[0], int(world.episodes.n_jobs[0])
    arrived, longer = int(world.lanes.lane[0, at.ARRIVED]), 0
    for further in range(1, n - arrived + 1):
        world.lanes.lane[0, at.LIMIT] = n
        world.limit_arrivals(np.array([0]), further)
        limit = int(world.lanes.lane[0, at.LIMIT])
        assert rows[limit - 1, at.LAST_ROW] == limit - 1
        longer += limit > arrived + further
    assert longer > 5
