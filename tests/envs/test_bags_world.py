"""`spotweave/Bags-v0`: by hand, with the schedulers of the thesis, and the deadline that it keeps."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from agents.bags.heuristics import plan_primarily
from agents.bags.schedulers import BurstHads, Hads
from envs.simulation import columns as col
from envs.simulation.bags.cases import Case, uniform_job
from envs.simulation.bags.decisions import BagScheduler, Cause
from envs.simulation.bags.execution import Execution
from envs.simulation.bags.model import TABLE_9_1, Environment
from envs.simulation.bags.options import ImpossibleDeadlineError
from envs.simulation.bags.outcome import Outcome
from envs.simulation.bags.plan import Plan
from envs.simulation.bags.scenarios import SCENARIOS, Changes, Scenario, drawn
from envs.simulation.bags.world import BagWorld
from envs.simulation.world import EpisodeKey
from tests.agents.test_bag_schedulers import has_twins
from tests.envs.bag_cases import ONE_CORE, at, environment, plan_of, spot, tasks_of
from training.studies.bags.chapter_9 import plans_of

KEY = EpisodeKey(0, "test", 0)


@dataclass(frozen=True)
class Given:
    """One case. A `CaseSource`."""

    plan: Plan
    environment: Environment
    changes: Changes
    scenario: Scenario = SCENARIOS["s_4"]
    launch_s: float = 0.0

    def case(self, key: EpisodeKey) -> Case:
        """It."""
        d_spot_s = self.plan.d_spot_s
        return Case(self.plan, self.environment, self.scenario, self.changes, d_spot_s, self.launch_s)


def begun(source: Given) -> BagWorld:
    """A world in its first question."""
    world = BagWorld(source, 1)
    world.reset([KEY])
    return world


def answer(world: BagWorld, action: int) -> tuple[float, bool]:
    """One step: reward, done."""
    reward, done = world.step(np.array([action]))
    return float(reward[0]), bool(done[0])


def valid(world: BagWorld) -> list[int]:
    """The actions that may be taken."""
    return [int(action) for action in np.flatnonzero(world.observation["action_mask"][0])]


def at_random(world: BagWorld, seed: int) -> Outcome:
    """Any answers that are valid."""
    rng, done = np.random.default_rng(seed), not valid(world)
    while not done:
        _, done = answer(world, int(rng.choice(valid(world))))
    return world.outcome(0)


def by_scheduler(world: BagWorld, scheduler: BagScheduler) -> Outcome:
    """The answers of a scheduler that knows the fleet."""
    done = not valid(world)
    while not done:
        question, options = world.question(0)
        told = scheduler.decide(question, world.execution(0).fleet)
        _, done = answer(world, options.place(told))
    return world.outcome(0)


# ONE_CORE and TWO_CORES on spot, then on demand, then BURST: five places each.
ONE_SPOT, ONE_DEMAND, TWO_DEMAND, NONE = 0, 10, 15, 25


def test_a_task_that_nothing_has_placed_begins_where_it_is_told_and_an_empty_vm_is_given_back() -> None:
    plan = Plan(plan_of(tasks_of(100, 200), {}).bag, (), 2000.0, 1000.0, 1000.0)
    world = begun(Given(plan, environment(), at(), launch_s=50.0))
    question, _ = world.question(0)
    assert (question.cause, question.task) == (Cause.START, 1)  # the longer one first
    assert valid(world) == [0, 5, 10, 15]  # one of each; no burstable VM, and none for now is no start
    shown = world.observation
    assert shown["clusters"][0, ONE_SPOT, col.LAUNCH_S] == 50
    # Checkpoints take a tenth more on spot VMs.
    assert shown["pairs"][0, 0, ONE_SPOT, col.EXECUTION_S] == pytest.approx(220)
    assert shown["pairs"][0, 0, ONE_DEMAND, col.EXECUTION_S] == 200
    answer(world, ONE_DEMAND)
    # A second task there begins at 50 + 200; the next place is a second VM of the kind.
    assert valid(world) == [0, 5, 10, 11, 15]
    assert world.observation["pairs"][0, 0, ONE_DEMAND, col.TRANSFER_S] == 200
    answer(world, ONE_DEMAND + 1)
    # At 150 s the second VM has ended its task and takes nothing; its cycle would end at 1,000 s.
    question, _ = world.question(0)
    assert question.cause == Cause.EMPTY
    assert valid(world) == [11, NONE]
    assert world.observation["pairs"][0, 0, 11, col.EXECUTION_S] == 850
    _, done = answer(world, NONE)
    assert done
    # 250 s and 150 s at 0.0001 USD.
    assert world.metrics(0)["cost_usd"] == pytest.approx(0.04)
    assert world.metrics(0)["makespan_s"] == 250


def test_rewards_add_up_to_the_objective_of_equation_8_1() -> None:
    plan = plan_of(tasks_of(100), {spot(ONE_CORE): (0,)}, deadline_s=1000)
    world = begun(Given(replace(plan, d_spot_s=500.0), environment(), at(one=(50, 80))))
    # Hibernated at 50 s; it waits and resumes at 80: ends at 130 s, 100 s of it billed at 0.00001 USD.
    total, done = answer(world, NONE)
    assert done
    # The dearest spot VM costs 0.00002 USD a second and ten may run: 0.1 USD in 500 s.
    assert -total == pytest.approx(100 * (0.5 * 0.001 / 0.1 + 0.5 * 130 / 500))
    assert world.metrics(0)["objective"] == pytest.approx(-total)
    late = begun(Given(replace(plan, deadline_s=120.0, d_spot_s=500.0), environment(), at(one=(50,))))
    assert at_random(late, 0).missed
    assert late.metrics(0)["objective"] > 100


def test_what_hibernates_may_wait_only_until_the_migration_time_limit() -> None:
    # mtt = 1000 - (100 + 100) = 800: then nothing but an on-demand VM is in time.
    plan = plan_of(tasks_of(100), {spot(ONE_CORE): (0,)}, deadline_s=1000)
    world = begun(Given(plan, environment(), at(one=(50,))))
    assert NONE in valid(world)
    assert world.observation["clusters"][0, ONE_SPOT, col.AVAILABLE] == 0
    answer(world, NONE)
    assert world.execution(0).fleet.now_s == 800
    assert valid(world) == [ONE_DEMAND, TWO_DEMAND]
    _, done = answer(world, ONE_DEMAND)
    assert done
    assert world.metrics(0)["makespan_s"] == 1000
    assert world.metrics(0)["missed"] == 0


def test_spot_is_rented_only_of_types_that_run_and_with_time_for_doing_it_again() -> None:
    # A new spot VM of type two would end the task at 50 + 100 + 110 s, and leave 200 s for doing it again
    # from 460 s on; type one is hibernated.
    plan = plan_of(tasks_of(100), {spot(ONE_CORE): (0,)}, deadline_s=461)
    assert valid(begun(Given(plan, environment(), at(one=(50,))))) == [5, 10, 15, NONE]
    tight = replace(plan, deadline_s=460.0)
    assert valid(begun(Given(tight, environment(), at(one=(50,))))) == [10, 15, NONE]


@pytest.mark.parametrize("scenario", ["s_2", "s_4"])
@pytest.mark.parametrize("scheduler", [Hads, BurstHads])
def test_the_schedulers_of_the_thesis_do_in_the_world_what_they_do_without(
    scheduler: type[Hads] | type[BurstHads], scenario: str
) -> None:
    plans = plans_of("J60")
    plan = plans.hads if scheduler is Hads else plans.burst
    given = Environment(TABLE_9_1)
    hibernated = 0
    for seed in range(3):
        changes = drawn(SCENARIOS[scenario], seed)
        alone = Execution(plan, given, changes, scheduler(), 180.0).run()
        played = by_scheduler(begun(Given(plan, given, changes, launch_s=180.0)), scheduler())
        assert replace(played, scheduler=alone.scheduler) == alone
        hibernated += alone.counts.hibernations
    assert hibernated > 0


@pytest.mark.real
@settings(max_examples=80, deadline=None)
@given(
    count=st.integers(4, 30),
    longest_s=st.integers(20, 400),
    stretch=st.floats(1.1, 6.0),
    rates=st.tuples(st.floats(0, 30), st.floats(0, 30)),
    seed=st.integers(0, 10_000),
)
def test_no_valid_answers_miss_the_deadline(
    count: int, longest_s: int, stretch: float, rates: tuple[float, float], seed: int
) -> None:
    """Whatever is answered among the valid ones: as HADS', the guarantee needs a VM for each spot VM."""
    given_ = Environment(TABLE_9_1)
    bag = uniform_job(count, 10, longest_s, given_.types, seed)
    deadline_s = 180.0 + longest_s * count / 8 * stretch
    try:
        plan = plan_primarily(bag, given_, deadline_s)
    except ImpossibleDeadlineError:
        assume(False)
    assume(has_twins(plan, given_))
    world = drawn(Scenario("drawn", *rates, over_s=deadline_s), seed)
    assert not at_random(begun(Given(plan, given_, world)), seed).missed
