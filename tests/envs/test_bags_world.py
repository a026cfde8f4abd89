"""Bags on VMs that hibernate (Teylo 2021): executions by hand, and the environment that plays them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import assume, given, settings

from spotweave.agents.bags.heuristics import plan_primarily
from spotweave.agents.bags.schedulers import BurstHads, Hads
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.bags.cases import (
    SCENARIOS,
    Case,
    Changes,
    Scenario,
    drawn,
    scenario_named,
    uniform_job,
)
from spotweave.envs.simulation.bags.execution import (
    Answer,
    BagScheduler,
    Cause,
    Execution,
    InvalidAnswerError,
    Move,
    Question,
    Rent,
    Wait,
)
from spotweave.envs.simulation.bags.fleet import Fleet, Outcome
from spotweave.envs.simulation.bags.model import TABLE_9_1, Environment, Market, Mode, Task, VmType
from spotweave.envs.simulation.bags.options import ImpossibleDeadlineError
from spotweave.envs.simulation.bags.plan import Plan
from spotweave.envs.simulation.bags.rented import Span, VmState
from spotweave.envs.simulation.bags.world import BagWorld
from spotweave.envs.simulation.world import EpisodeKey
from spotweave.training.studies.bags.chapter_9 import plans_of
from tests.agents.test_bag_schedulers import has_twins
from tests.envs.bag_cases import (
    BURST,
    DRAWN,
    ONE_CORE,
    TWO_CORES,
    Told,
    at,
    ends_s,
    environment,
    on_demand,
    plan_of,
    spot,
    tasks_of,
)
from tests.envs.checks import answer, at_random, check, to_the_end, valid

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
        d_spot_s = self.plan.d_spot_s
        return Case(self.plan, self.environment, self.scenario, self.changes, d_spot_s, self.launch_s)


def begun(source: Given) -> BagWorld:
    """A world in its first question."""
    world = BagWorld(source, 1)
    world.reset([KEY])
    return world


def by_scheduler(world: BagWorld, scheduler: BagScheduler) -> Outcome:
    """The answers of a scheduler that knows the fleet."""

    def choose() -> int:
        question, options = world.question(0)
        return options.place(scheduler.decide(question, world.execution(0).fleet))

    to_the_end(world, choose)
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
    check(world.metrics(0), cost_usd=0.04, makespan_s=250)


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
    at_random(late, 0)
    assert late.outcome(0).missed
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
    check(world.metrics(0), makespan_s=1000, missed=0)


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
@settings(max_examples=80)
@given(**DRAWN)
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
    world = begun(Given(plan, given_, drawn(Scenario("drawn", *rates, over_s=deadline_s), seed)))
    at_random(world, seed)
    assert not world.outcome(0).missed


NEVER = at()


def outcome_of(plan: Plan, changes: Changes = NEVER, told: Told | None = None, **environ: float) -> Outcome:
    """Of a plan, where nothing hibernates and every question is answered with Wait unless told."""
    return Execution(plan, environment(**environ), changes, told or Told()).run()


def test_cores_take_tasks_in_order_and_the_bill_is_by_the_second() -> None:
    # Core 0: 100 s, then task 2 for 50 s; core 1: 150 s. 150 s at 0.0002 USD are 3 cents.
    plan = plan_of(tasks_of(100, 150, 50), {on_demand(TWO_CORES): (0, 1, 2)})
    outcome = outcome_of(plan)
    assert (outcome.makespan_s, outcome.cost_usd) == pytest.approx((150, 0.03))
    assert sorted(outcome.tasks) == [(0, 0, 0, 0, 100), (0, 0, 2, 100, 150), (0, 1, 1, 0, 150)]


def test_a_task_waits_for_memory_while_a_core_is_free() -> None:
    # 10 MB: tasks of 6 MB run one after another, the second core stays idle (Figure 4.1).
    plan = plan_of(tasks_of(100, 100, memory_mb=6), {on_demand(TWO_CORES): (0, 1)})
    assert ends_s(Execution(plan, environment(), at(), Told())) == {0: 100, 1: 200}


def test_the_time_until_the_first_vms_are_ready_is_billed() -> None:
    plan = plan_of(tasks_of(100), {on_demand(ONE_CORE): (0,)})
    outcome = Execution(plan, environment(), at(), Told(), launch_s=180).run()
    assert (outcome.makespan_s, outcome.cost_usd) == pytest.approx((280, 0.028))
    assert outcome.states[0] == (Span(VmState.STARTING, 0, 180), Span(VmState.BUSY, 180, 280))


def test_a_hibernated_vm_costs_nothing_and_goes_on_from_its_break_point() -> None:
    # Away from 40 to 70 s: 100 s of work end at 130 s, and 100 s at 0.00001 USD are billed.
    plan = plan_of(tasks_of(100), {spot(ONE_CORE): (0,)})
    outcome = outcome_of(plan, at(one=(40, 70)))
    assert (outcome.makespan_s, outcome.cost_usd) == pytest.approx((130, 0.001))
    assert (outcome.counts.hibernations, outcome.counts.resumes) == (1, 1)


def test_all_vms_of_a_type_hibernate_and_no_other() -> None:
    plan = plan_of(
        tasks_of(100, 100, 100), {spot(ONE_CORE, 1): (0,), spot(ONE_CORE, 2): (1,), spot(TWO_CORES): (2,)}
    )
    execution = Execution(plan, environment(), at(one=(40, 70)), Told())
    assert ends_s(execution) == {0: 130, 1: 130, 2: 100}


def test_a_checkpoint_stops_its_task_and_is_what_another_vm_starts_from() -> None:
    # Checkpoints of 5 s after 30, 60 and 90 s of work: done at 35, 70 and 105 s, the task at 115 s.
    plan = plan_of(tasks_of(100), {spot(ONE_CORE): (0,)}, interval_s=30)
    assert outcome_of(plan).makespan_s == 115
    # At 104 s two of them are done: 60 s are saved. A new VM is ready at 204 s and works 40 s more.
    moving = Told(lambda question, fleet: Rent(ONE_CORE, Market.ON_DEMAND))
    outcome = outcome_of(plan, at(one=(104,)), moving)
    assert outcome.makespan_s == 244
    assert (outcome.counts.checkpoints, outcome.counts.recoveries, outcome.counts.on_demand) == (2, 1, 1)


def test_no_checkpoint_is_taken_at_the_very_end_nor_on_demand() -> None:
    plan = plan_of(tasks_of(60), {spot(ONE_CORE): (0,)}, interval_s=30)
    assert outcome_of(plan).counts.checkpoints == 1
    plan = plan_of(tasks_of(60), {on_demand(ONE_CORE): (0,)}, interval_s=30)
    assert outcome_of(plan).makespan_s == 60


def test_a_hibernation_in_the_instant_a_task_ends_comes_too_late_for_it() -> None:
    plan = plan_of(tasks_of(100, 50), {spot(ONE_CORE): (0, 1)})
    told = Told()
    outcome = outcome_of(plan, at(one=(100, 200)), told)
    assert [question.task for _, question in told.asked] == [1]
    assert outcome.makespan_s == 250


@pytest.mark.parametrize(
    ("hibernates_s", "last_state", "billed_usd"),
    [
        # It is idle from 20 s on, and its cycle ends at 50 s. Hibernating then comes first: it is kept.
        (50, VmState.HIBERNATED, 0.0005),
        # A moment later it has been given back.
        (50.5, VmState.IDLE, 0.0005),
        # Earlier it costs nothing from then on; there is no cycle to end while it is away.
        (30, VmState.HIBERNATED, 0.0003),
    ],
)
def test_an_idle_vm_at_the_end_of_its_allocation_cycle(
    hibernates_s: float, last_state: VmState, billed_usd: float
) -> None:
    plan = plan_of(tasks_of(20, 500), {spot(ONE_CORE): (0,), on_demand(TWO_CORES): (1,)})
    outcome = outcome_of(plan, at(one=(hibernates_s,)), allocation_cycle_s=50)
    assert outcome.states[0][-1].state == last_state
    assert outcome.cost_usd == pytest.approx(billed_usd + 0.1)


def test_cycles_count_from_when_a_vm_was_rented_and_a_busy_vm_passes_them() -> None:
    # Idle from 120 s on in its third cycle of 50 s, which ends at 150 s.
    plan = plan_of(tasks_of(120, 500), {spot(ONE_CORE): (0,), on_demand(TWO_CORES): (1,)})
    outcome = outcome_of(plan, allocation_cycle_s=50)
    assert outcome.states[0] == (Span(VmState.BUSY, 0, 120), Span(VmState.IDLE, 120, 150))


def test_a_limit_asks_again_once_for_each_task() -> None:
    told = Told(lambda asked, fleet: Wait(300 + asked.task) if asked.cause == Cause.HIBERNATED else Wait())
    plan = plan_of(tasks_of(100, 100), {spot(ONE_CORE): (0, 1)})
    outcome = outcome_of(plan, at(one=(50,)), told)
    assert [(time_s, question.cause, question.task) for time_s, question in told.asked] == [
        (50, Cause.HIBERNATED, 0),
        (50, Cause.HIBERNATED, 1),
        (300, Cause.LIMIT, 0),
        (300, Cause.LIMIT, 1),
    ]
    # It waits for ever and never resumes.
    assert (outcome.missed, outcome.makespan_s) == (True, float("inf"))


def test_an_idle_vm_is_offered_what_others_have_waiting_on_demand_first() -> None:
    told = Told(lambda asked, fleet: Move(asked.idle) if asked.idle and asked.task == 3 else Wait())
    vms = {spot(ONE_CORE, 1): (0,), spot(ONE_CORE, 2): (1, 2), on_demand(ONE_CORE): (4, 3)}
    outcome = outcome_of(plan_of(tasks_of(10, 100, 100, 100, 100), vms), told=told)
    assert [question.task for time_s, question in told.asked if time_s == 10] == [3, 2]
    assert outcome.counts.steals == 1
    assert (0, 0, 3, 10, 110) in outcome.tasks


def to_burstable(mode: Mode) -> Told:
    """Moves what hibernates to VM 1, at 900 s."""
    return Told(
        lambda asked, fleet: Wait(900) if asked.cause == Cause.HIBERNATED else Move(fleet.vms[1], mode)
    )


@pytest.mark.parametrize(
    ("mode", "work_s", "makespan_s"),
    [
        # VM 1 stands by for 900 s and earns 900 / 150 = 6 credits. At full speed a task burns 1/60 credit per
        # second while 1/150 is earned: 6 / 0.01 = 600 s at full speed.
        (Mode.FULL, 600, 1500),
        # The last 100 s of work take 500 s at 20 %.
        (Mode.FULL, 700, 900 + 600 + 500),
        (Mode.BASELINE, 100, 900 + 500),
    ],
)
def test_a_burstable_vm_without_credits_runs_at_its_baseline(
    mode: Mode, work_s: float, makespan_s: float
) -> None:
    plan = plan_of(tasks_of(work_s), {spot(ONE_CORE): (0,), on_demand(BURST): ()})
    assert outcome_of(plan, at(one=(10,)), to_burstable(mode)).makespan_s == pytest.approx(makespan_s)


def test_a_planned_baseline_task_leaves_credits() -> None:
    # 100 s of work at 20 % take 500 s. 0.2 / 60 credit per second is half of the 1/150 earned.
    held: list[float] = []

    def answer(question: Question, fleet: Fleet) -> Answer:
        if question.cause == Cause.HIBERNATED:
            vm = fleet.vms[0]
            vm.update_credits(fleet.now_s, fleet.environment.burst_period_s)
            held.append(vm.credits)
        return Wait()

    plan = plan_of(tasks_of(100, 700), {on_demand(BURST): (0,), spot(ONE_CORE): (1,)})
    outcome = outcome_of(plan, at(one=(600, 601)), Told(answer))
    assert (0, 0, 0, 0, 500) in outcome.tasks
    assert held == [pytest.approx(500 / 300 + 100 / 150)]


def refused(answer: Answer) -> str:
    """What is said of an answer about a task of 1 MB on VM 0 that has hibernated."""
    plan = plan_of(tasks_of(100, 300), {spot(ONE_CORE): (0,), on_demand(ONE_CORE): (1,)})
    told = Told(lambda question, fleet: answer)
    with pytest.raises(InvalidAnswerError) as raised:
        outcome_of(plan, at(one=(50,)), told, max_per_type_and_market=1)
    return str(raised.value)


def test_what_cannot_be_done_is_refused() -> None:
    assert "no more may run" in refused(Rent(ONE_CORE, Market.ON_DEMAND))
    assert "there is none" in refused(Rent(ONE_CORE, Market.SPOT))
    assert "there is none" in refused(Rent(BURST, Market.SPOT))


def test_a_task_cannot_go_to_a_hibernated_vm_nor_to_where_it_is() -> None:
    def stay(question: Question, fleet: Fleet) -> Answer:
        assert question.vm is not None
        return Move(question.vm)

    there = Told(stay)
    plan = plan_of(tasks_of(100), {spot(ONE_CORE): (0,)})
    with pytest.raises(InvalidAnswerError, match="to a VM that is hibernated"):
        outcome_of(plan, at(one=(50,)), there)
    plan = plan_of(tasks_of(10, 100, 100), {spot(TWO_CORES): (0,), spot(ONE_CORE): (1, 2)})
    with pytest.raises(InvalidAnswerError, match="where it is: answer Wait"):
        outcome_of(plan, told=there)


def test_a_task_cannot_go_where_memory_lacks() -> None:
    large = Task("0", "run", 20.0, {"one": 100.0, "big": 100.0})
    plan = plan_of([large], {spot(VmType("big", 1, 1.0, 0.36, 0.036)): (0,)})
    told = Told(lambda question, fleet: Rent(ONE_CORE, Market.ON_DEMAND))
    with pytest.raises(InvalidAnswerError, match="one, which lacks the memory"):
        outcome_of(plan, at(big=(50,)), told)


def test_a_vm_that_gets_ready_while_its_type_is_hibernated_hibernates() -> None:
    plan = plan_of(tasks_of(100), {spot(ONE_CORE): (0,)})
    outcome = Execution(plan, environment(), at(one=(50, 300)), Told(), launch_s=180).run()
    assert outcome.states[0] == (
        Span(VmState.STARTING, 0, 180),
        Span(VmState.HIBERNATED, 180, 300),
        Span(VmState.BUSY, 300, 400),
    )


def test_published_rates() -> None:
    # Table 7.3: sc_5 has 3 and 2.5 events in 2,100 s; Table 9.2: s_4 has 5 and 5 in 2,700 s.
    assert scenario_named("sc_5").hibernations_per_s == 3 / 2100
    assert scenario_named("sc_5").resumes_per_s == 2.5 / 2100
    assert scenario_named("s_4").resumes_per_s == 5 / 2700
    assert scenario_named("c_2").resumes_per_s == 2.5 / 3600
    with pytest.raises(ValueError, match="there is no scenario 'sc_8': expected one of none, sc_1"):
        scenario_named("sc_8")


def test_types_hibernate_at_the_rates_of_the_scenario_and_apart() -> None:
    changes = drawn(SCENARIOS["sc_5"], seed=7)
    times = np.diff([0.0, *itertools.islice(changes("c3.large"), 8000)])
    # Means of 4,000 exponential draws: standard error 1.6 %.
    assert times[::2].mean() == pytest.approx(700, rel=0.06)
    assert times[1::2].mean() == pytest.approx(840, rel=0.06)
    assert next(changes("c4.large")) != next(changes("c3.large"))
    assert next(changes("c3.large")) == times[0]
    # Without resumption there is one hibernation; without hibernation nothing.
    assert len(list(drawn(SCENARIOS["sc_1"], seed=7)("c3.large"))) == 1
    assert list(drawn(SCENARIOS["none"], seed=7)("c3.large")) == []
