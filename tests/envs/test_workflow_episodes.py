"""Workflows carried out on rented offers: bills, interruptions and the guard, worked by hand, and laws."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from envs.simulation import columns as col
from envs.simulation.series import StepSeries
from envs.simulation.workflows.episodes.case import Habits, Quotes
from envs.simulation.workflows.episodes.execution import Execution
from envs.simulation.workflows.episodes.options import Reserve, on_demand_s, on_demand_usd
from envs.simulation.workflows.families import FAMILIES
from envs.simulation.workflows.model import Stays, WorkflowError
from envs.simulation.world import EpisodeKey
from envs.workflows_episodes import WorkflowsConfig, build_workflows
from tests.envs.offers_cases import (
    DEMAND_A,
    DEMAND_B,
    NONE,
    OFFERS,
    OWNED,
    SPOT_A,
    SPOT_B,
    answer,
    begun,
    case_of,
    chain,
    fan,
    valid,
)


def test_an_instance_is_billed_from_its_launch_and_takes_the_next_step_at_once() -> None:
    world = begun(case_of(chain()))
    assert valid(world) == [OWNED, SPOT_A, DEMAND_A, SPOT_B, DEMAND_B, NONE]
    assert world.observation["pairs"][0, 0, SPOT_A, col.FINISH_S] == 700
    first, _ = answer(world, SPOT_A)
    assert world.execution(0).now_s == 700
    assert world.observation["clusters"][0, :, col.LAUNCH_S].tolist() == [0, 0, 100, 100, 100]
    rest, done = answer(world, SPOT_A)
    assert done
    # 100 + 600 + 300 s at 0.001 USD; all the work on demand is 900 s at 0.004 USD.
    metrics = world.metrics(0)
    assert metrics["cost_usd"] == pytest.approx(1.0)
    assert metrics["makespan_s"] == 1000
    assert metrics["cost_index"] == pytest.approx(100 * 1.0 / 3.6)
    assert first + rest == pytest.approx(-metrics["cost_index"])
    assert metrics["unused_usd"] == pytest.approx(0.1)  # the launch


def test_files_move_while_an_instance_launches_and_are_paid_for_once() -> None:
    world = begun(case_of(fan(2)))
    pairs = world.observation["pairs"][0, 0]
    # 10 s and 1 GB at 0.1 GB/s: 20 s, within the 100 s of a launch.
    assert pairs[SPOT_B, col.TRANSFER_S] == 0
    assert pairs[SPOT_B, col.EGRESS_USD] == pytest.approx(0.02)
    answer(world, SPOT_B)
    assert world.observation["pairs"][0, 0, SPOT_B, col.EGRESS_USD] == 0
    answer(world, SPOT_B)
    # Two instances, 700 s each, at 0.0005 USD.
    assert world.metrics(0)["cost_usd"] == pytest.approx(0.02 + 1400 * 0.0005)
    # The owned cluster launches nothing: there the step waits for what has been written in region b.
    other = begun(case_of(chain()))
    answer(other, SPOT_B)
    assert other.observation["pairs"][0, 0, OWNED, col.FINISH_S] == 320


def test_private_files_are_a_hard_mask() -> None:
    world = begun(case_of(chain(stays=Stays.REGION)))
    assert valid(world) == [OWNED, SPOT_A, DEMAND_A, NONE]
    answer(world, SPOT_A)
    assert valid(world) == [OWNED, SPOT_A, DEMAND_A, SPOT_B, DEMAND_B, NONE]  # results may leave
    assert valid(begun(case_of(chain(stays=Stays.CLUSTER)))) == [OWNED, NONE]


def test_a_step_that_only_spot_may_run_is_refused() -> None:
    workflow = chain()
    first = replace(workflow.steps[0], clusters=(OFFERS[SPOT_A].name,))
    with pytest.raises(WorkflowError, match="step 'first' may run on spot offers only: expected an owned"):
        begun(case_of(replace(workflow, steps=(first, workflow.steps[1]))))


def test_an_interrupted_step_starts_again_and_its_time_is_paid_for() -> None:
    world = begun(case_of(chain(), ends_s=[(SPOT_A, 400, 5000)]))
    answer(world, SPOT_A)
    assert world.execution(0).now_s == 400
    assert SPOT_A not in valid(world)
    assert world.observation["jobs"][0, 0, col.INTERRUPTIONS] == 1
    answer(world, DEMAND_A, DEMAND_A)
    metrics = world.metrics(0)
    assert metrics["cost_usd"] == pytest.approx(400 * 0.001 + 1000 * 0.004)
    assert metrics["lost_s"] == 300
    assert metrics["makespan_s"] == 1400


def test_a_picture_shows_what_ran_what_was_rented_and_what_was_lost() -> None:
    world = begun(case_of(chain(), ends_s=[(SPOT_A, 400, 5000)]))
    answer(world, SPOT_A, DEMAND_A)
    shown = world.timeline()
    assert [(one.job, one.cluster, one.start, one.end) for one in shown.segments] == [
        (0, SPOT_A, 100, 400),
        (0, DEMAND_A, 500, 1100),
    ]
    assert list(shown.interruptions) == [(400, SPOT_A)]
    assert [shown.capacity[SPOT_A].at(time_s) for time_s in (0, 399, 400)] == [1, 1, 0]
    assert [shown.used[SPOT_A].at(time_s) for time_s in (0, 100, 400)] == [0, 1, 0]
    assert shown.capacity[OWNED].at(0) == 1


def test_a_step_that_ends_when_its_offer_does_has_ended() -> None:
    world = begun(case_of(chain(), ends_s=[(SPOT_A, 700, 5000)]))
    answer(world, SPOT_A)
    assert world.execution(0).steps_left == 1
    assert world.observation["jobs"][0, 0, col.INTERRUPTIONS] == 0


def test_an_idle_instance_is_kept_or_given_back_and_billed_for_a_minute_at_least() -> None:
    world = begun(case_of(chain(), actual=[0.8, 1.0]))
    answer(world, OWNED)
    answer(world, DEMAND_A)  # ends at 480 + 100 + 300 s
    assert world.metrics(0)["cost_usd"] == pytest.approx(400 * 0.004)
    kept = begun(case_of(chain()))
    answer(kept, SPOT_A, OWNED)  # at 700 s the instance is idle and the second step runs elsewhere
    assert valid(kept) == [SPOT_A, NONE]
    assert kept.observation["jobs"][0, 0, col.IDLE] == 1
    _, done = answer(kept, NONE)
    assert done
    assert kept.metrics(0)["cost_usd"] == pytest.approx(0.7)
    brief = begun(case_of(fan(1), ends_s=[(SPOT_A, 30, 100)]))
    answer(brief, SPOT_A, OWNED)
    assert brief.metrics(0)["cost_usd"] == pytest.approx(0.03)  # the provider took it


def test_what_on_demand_needs_at_most_by_hand() -> None:
    reserve = Reserve(case_of(chain()))
    # A launch, the input where it lies, and a fifth more than 600 s; then a file from the other region.
    assert reserve.need_s.tolist() == [100 + 720, 100 + 20 + 360]
    assert reserve.tail_s.tolist() == [480, 0]
    assert reserve.least_s == 1300
    assert on_demand_s(case_of(chain())) == 1000
    assert on_demand_usd(case_of(chain())) == pytest.approx(3.6)


@pytest.mark.parametrize(
    ("deadline_s", "actions"),
    [
        (1199, [OWNED, DEMAND_A, DEMAND_B]),  # nothing is certain any more: all but spot
        (1200, [OWNED]),  # 720 + 480
        (1300, [OWNED, DEMAND_A, DEMAND_B]),  # 100 more for a launch
        (1599, [OWNED, DEMAND_A, DEMAND_B]),
        (1600, [OWNED, DEMAND_A, DEMAND_B, NONE]),  # asked again after 300 s
        (2119, [OWNED, DEMAND_A, DEMAND_B, NONE]),
        (2120, [OWNED, SPOT_A, DEMAND_A, SPOT_B, DEMAND_B, NONE]),  # 820 on spot and 820 again
    ],
)
def test_spot_is_tried_only_where_on_demand_could_do_it_again(deadline_s: float, actions: list[int]) -> None:
    assert valid(begun(case_of(chain(deadline_s)))) == actions


def test_once_a_step_waits_those_behind_it_wait_too() -> None:
    world = begun(case_of(fan(3)))
    answer(world, SPOT_A)
    assert world.observation["jobs"][0, 0, col.BACKLOG] == 1
    answer(world, NONE)
    assert world.execution(0).now_s == 300  # nobody was asked about the third
    assert world.question(0).step == 1
    answer(world, NONE, NONE)
    assert world.execution(0).now_s == 700
    assert world.observation["clusters"][0, SPOT_A, col.LAUNCH_S] == 0


def test_what_is_expected_of_a_round() -> None:
    world = begun(case_of(fan(3)))
    answer(world, SPOT_A)
    row = world.observation["jobs"][0, 0]
    # One instance will be idle at 700 s on the owned executor at once: 600, then 700 + 600... the owned one
    # takes the second step until 600 s and the third until 1,200 s.
    assert row[col.ROUND_LEFT_S] == 700
    assert row[col.ROUND_S] == 1200
    answer(world, OWNED)
    row = world.observation["jobs"][0, 0]
    assert (row[col.ROUND_LEFT_S], row[col.ROUND_S]) == (600, 1200)


def test_an_idle_instance_is_told_when_it_is_wanted() -> None:
    world = begun(case_of(chain()))
    answer(world, SPOT_A, OWNED)
    # Nothing will come: until the deadline.
    assert world.observation["jobs"][0, 0, col.ROUND_LEFT_S] == 10_000 - 700


def test_prices_and_the_past_of_an_offer() -> None:
    price = StepSeries(np.array([0, 1800]), np.array([1.0, 3.0]))
    availability = StepSeries(np.array([-3600, -1800, 0, 900]), np.array([1.0, 0.0, 1.0, 0.0]))
    quotes = Quotes(price, availability)
    assert quotes.cost_usd(900, 2700) == pytest.approx(0.25 + 0.75)
    assert [quotes.available(at_s) for at_s in (0, 899, 900)] == [True, True, False]
    assert quotes.changes_s() == [900]
    assert quotes.least_usd_hour(3600) == 1.0
    # Up for 1800 and 900 s of 5400 s, in two spells.
    assert quotes.habits(1800) == Habits(0.5, 900, 1350)
    assert quotes.habits(-3600).up_ratio == 0.0


def _check(execution: Execution) -> None:
    """Laws that every execution keeps, whatever was decided."""
    case = execution.case
    whole = {one.step: one for one in execution.attempts if one.whole}
    assert Counter(one.step for one in execution.attempts if one.whole) == Counter(range(len(case.before)))
    for step, one in whole.items():
        assert case.may[step, one.place]
        assert one.end_s - one.start_s == pytest.approx(
            case.problem.run_s[step, one.place] * case.actual[step]
        )
        assert all(whole[earlier].end_s <= one.start_s + 1e-6 for earlier in case.before[step])
    for attempt in execution.attempts:
        if case.spot[attempt.place] and attempt.end_s > attempt.start_s:
            quotes = case.quotes[attempt.place]
            middle_s = (attempt.start_s + attempt.end_s) / 2
            assert quotes.available(attempt.start_s)
            assert quotes.available(middle_s)
    for c, offer in enumerate(case.offers):
        spans = [(a.start_s, a.end_s) for a in execution.attempts if a.place == c and a.end_s > a.start_s]
        most = max((sum(s <= start < e for s, e in spans) for start, _ in spans), default=0)
        assert most <= offer.quota


@pytest.mark.parametrize("family", FAMILIES)
def test_no_valid_answers_miss_the_deadline_and_the_laws_hold(family: str) -> None:
    world = build_workflows(WorkflowsConfig(family=family, steps=30))
    for index in range(4):
        rng = np.random.default_rng(index)
        world.reset([EpisodeKey(3, "test", index)])
        total, done = 0.0, False
        waits = rng.random()
        while not done:
            actions = np.array(valid(world))
            # Some policies mostly wait: those are the ones that come close to the deadline.
            action = actions[-1] if rng.random() < waits else rng.choice(actions)
            reward, done = answer(world, int(action))
            total += reward
        metrics = world.metrics(0)
        assert metrics["missed"] == 0
        assert -total == pytest.approx(metrics["cost_index"])
        _check(world.execution(0))


def test_a_deadline_that_cannot_be_kept_is_missed_and_counts() -> None:
    world = begun(case_of(chain(500)))
    assert valid(world) == [OWNED, DEMAND_A, DEMAND_B]
    answer(world, OWNED, OWNED)
    assert world.metrics(0)["cost_index"] == 100
    assert world.metrics(0)["missed"] == 1
