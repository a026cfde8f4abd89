"""Workflows, their plans, and bags of tasks in the simulated cloud; times by hand."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from benchmarks.simulated import SimulatedOffer
from spotweave.deploy.billing import Bill, Transfers, usd
from spotweave.deploy.model.jobs import (
    SERVER,
    Bag,
    BagTask,
    FlowerServer,
    JobSpec,
    JobState,
    Places,
    Resources,
    TaskKey,
)
from spotweave.deploy.model.tasks import Phase
from spotweave.deploy.scheduler.chooser import Policies
from spotweave.deploy.scheduler.decider import Decider
from spotweave.deploy.scheduler.needs import Need, need_of
from spotweave.deploy.scheduler.placing import of_start, regions_of
from spotweave.deploy.scheduler.plans import Plans, Stand
from spotweave.deploy.server.admission import AdmissionError, admit
from spotweave.deploy.store.intents import IntentKind
from spotweave.deploy.store.schema import intents
from spotweave.envs.simulation.workflows.model import File, Stays
from tests.deploy.scheduler.training import A, B, TrainingWorld, federated, key_of
from tests.deploy.scheduler.worlds import SETTINGS, Stubborn, World, cheap_and_sure, rentable
from tests.deploy.workflows import file, step, workflow


def place(region: str, **facts: Any) -> SimulatedOffer:
    common = {"region": region, "zone": "", "launch_s": 10.0}
    return rentable(f"{region}/sure", "on_demand", **{**common, **facts})


def clusters(*regions: str, price_usd_hour: float = 1.0) -> list[SimulatedOffer]:
    """Owned-like capacity in each region, which stays; the first is the cheapest."""
    return [
        place(region, launch_s=30.0, price_usd_hour=price_usd_hour + k) for k, region in enumerate(regions)
    ]


def started(world: World) -> dict[str, float]:
    """By step: when its first attempt was placed, in seconds since the submission."""
    found: dict[str, float] = {}
    for event in world.events("task.started"):
        assert event.task is not None
        found.setdefault(event.task, event.time_s)
    first = min(found.values())
    return {task: at - first for task, at in found.items()}


@pytest.mark.real
def test_a_step_waits_for_those_whose_files_it_reads(tmp_path: Path) -> None:
    world = World(tmp_path, clusters("n", "s"))
    flow = workflow(
        step("all", "one-out two-out"),
        step("one", minutes=2.0),
        step("two", minutes=5.0),
        step("after", "one-out"),
    )
    job = world.submit(flow)
    held = {task.key.task: (task.not_before_s, task.message) for task in world.store.tasks.of_job(job)}
    assert held == {
        "all": (math.inf, "waits for one, two"),
        "one": (0.0, ""),
        "two": (0.0, ""),
        "after": (math.inf, "waits for one"),
    }
    # A scheduler that was killed knows it all the same.
    for _ in range(4):
        world.go(50.0)
        world.restart()
    world.ends_well(job)
    assert world.cloud.completions == {TaskKey(job, name): 1 for name in ("all", "one", "two", "after")}
    at = started(world)
    assert at["one"] == at["two"] == 0.0
    # 120 s and 300 s of work, each at once decided about and 30 s of launch later there; passes every 10 s.
    assert 150.0 <= at["after"] <= 190.0
    assert 330.0 <= at["all"] <= 370.0
    released = [(event.task, event.data["after"]) for event in world.events("task.released")]
    assert released == [("after", ["one"]), ("all", ["one", "two"])]


def test_a_late_step_waits_for_its_inputs_all_the_same(tmp_path: Path) -> None:
    world = World(tmp_path, clusters("n"))
    # Of 1500 s both need 1200: the last safe moment passes while the first one runs.
    flow = workflow(step("one", minutes=10.0), step("two", "one-out", minutes=10.0), deadline_s=1500.0)
    world.ends_well(world.submit(flow))
    assert started(world)["two"] > 600.0


class Disobedient(World):
    """Its policy puts everything on the second cluster, also where that is forbidden."""

    refused: Counter[tuple[str, str]]

    def decides(self) -> Policies:
        decider = Decider(Stubborn(1))
        decider.invalid = self.refused
        return Policies(decider, self.mode)


@pytest.mark.real
@pytest.mark.parametrize("away", [False, True], ids=["there", "away for a while"])
def test_private_data_are_read_in_their_region_whatever_the_policy_says(tmp_path: Path, away: bool) -> None:
    north, south = clusters("n", "s", price_usd_hour=9.0)
    if away:  # where it must not run there is capacity all the time, where it must only later
        north = replace(north, available=lambda now_s: now_s > 1_000_500)
    Disobedient.refused = Counter()
    world = Disobedient(tmp_path, [north, south])
    flow = workflow(
        step("sums", "private", "sums"),
        step("kept", "private", "kept!"),
        step("more", "kept sums"),
        step("all", "sums more-out"),
        files=(file("private", "n", stays=True),),
        deadline_s=20_000.0,
    )
    job = world.submit(flow)
    for _ in range(12):
        world.go(100.0)
        world.restart()
        # An interruption: what it did is done again, and again only there.
        for name in world.cloud.live("n/sure")[:1] if world.clock.now() < 1_000_700 else []:
            world.cloud.kill(name, by_provider=True)
    world.ends_well(job)
    ran = {(one.key.task, one.offer.region) for one in world.store.instances.of_job(job)}
    assert ran == {("sums", "n"), ("kept", "n"), ("more", "n"), ("all", "s")}
    # It did try.
    assert world.refused["stubborn", "masked"] >= 3


def test_each_step_has_until_the_latest_moment_that_leaves_time_for_those_behind_it(tmp_path: Path) -> None:
    world = World(tmp_path, clusters("n"))
    flow = workflow(step("one", minutes=2.0), step("two", "one-out", minutes=5.0), deadline_s=1000.0)
    one, two = needs(world, flow, start_s=50.0)
    # Of 1000 s 100 have gone; behind "one" come 300 s of work and 50 s to start it.
    assert (one.kind, one.standard_s, one.slack_s) == ("deadline", 120.0, 550.0)
    assert (two.kind, two.standard_s, two.slack_s) == ("deadline", 300.0, 900.0)
    assert (one.executions_left, two.executions_left) == (2, 1), "itself and those that wait for it"


def test_files_are_moved_from_where_their_step_ran(tmp_path: Path) -> None:
    transfers = Transfers(("n", "s"), {("n", "s"): 0.05}, {("n", "s"): 10.0})
    world = World(tmp_path, clusters("n", "s"), settings=replace(SETTINGS, transfers=transfers))
    one = step("one", "input") | {"writes": [{"name": "sums", "gb": 2.0}]}
    flow = workflow(
        one, step("two", "sums input", region="s"), files=(file("input", "n", gb=4.0), file("small", gb=9.0))
    )
    job_id = world.submit(flow)
    world.until_all_end()
    job, regions = world.store.jobs.get(job_id), regions_of(world.store, job_id, flow)
    assert regions == {"one": "n", "two": "s"}
    two = world.store.tasks.get(TaskKey(job_id, "two"))
    need = need_of(job, two, [], 0.0, world.settings, written_in=regions)
    # 2 GB that "one" wrote and 4 GB of input, at 10 s and 0.05 USD a GB.
    assert need.data_gb == 6.0
    assert need.moves["s"].seconds == 60.0
    assert need.moves["s"].usd == pytest.approx(0.30)
    assert need.moves["n"] == (0.0, 0.0)
    assert of_start(flow, two, "n", transfers, regions) == 0
    assert world.spent_usd(job_id) > 0.30
    [began] = [event for event in world.events("task.started") if event.task == "two"]
    assert began.data["egress_usd"] == pytest.approx(0.30)


def test_a_step_that_fits_nowhere_is_refused_at_once() -> None:
    offers = [one.offer for one in clusters("n", "s")]
    private = (file("private", "n", stays=True),)
    admit(workflow(step("a", "private", executors=4), files=private), offers)
    with pytest.raises(AdmissionError, match="no offer can run task 'a' of this job, which must run in n"):
        admit(workflow(step("a", "private"), files=private), offers[1:])
    with pytest.raises(AdmissionError, match="at most 4 instances may run, the job needs 5"):
        admit(workflow(step("a", executors=5)), offers)
    # Two steps of 10 min one after the other, and 30 s of launch.
    chain = [step("a", minutes=10.0), step("b", "a-out", minutes=10.0)]
    admit(workflow(*chain, deadline_s=1300.0), offers)
    with pytest.raises(AdmissionError, match="the deadline of 1200 s cannot be met"):
        admit(workflow(*chain, deadline_s=1200.0), offers)


def test_what_is_left_of_a_workflow_is_planned_with_what_is_true_now() -> None:
    flow = workflow(
        step("done", "private", "a"),
        step("runs", "a", "b", minutes=10.0, executors=2),
        step("waits", "a b open", "c", minutes=5.0),
        step("last", "c small", region="s"),
        files=(file("private", "n", stays=True), file("open", "s", gb=3.0), file("small")),
    )
    offers = [
        place("n", quota=3).offer,
        place("s", quota=2, speed=2.0).offer,
        replace(place("away").offer, available=False),
    ]
    plans = Plans("heft", 20.0, Transfers(("n", "s"), {}, {("n", "s"): 10.0, ("s", "n"): 30.0}))
    stands = {"done": Stand("n", 1.0), "runs": Stand("n", 0.25)}
    left, platform = plans.problem(flow, stands, offers, Counter({"n/sure": 1}))
    steps = {one.name: one for one in left.steps}
    # Of 10 min 0.75 are left; 5 min, at twice the speed 2.5, after 10 s of launch and 20 s of set-up.
    assert steps["runs"].profile.run_s == {"n": 450.0}
    assert steps["waits"].profile.run_s == {"n": 330.0, "s": 180.0}
    assert steps["last"].profile.run_s == {"s": 60.0}
    assert sorted(steps) == ["last", "runs", "waits"]
    assert {one.name: one.executors for one in platform.clusters} == {"n": 2, "s": 2, "away": 1}
    assert {one.name: one for one in left.files} == {
        "a": File("a", 0.0, ("n",)),
        "b": File("b", 0.0),
        "c": File("c", 0.0),
        "last-out": File("last-out", 0.0),
        "open": File("open", 3.0, ("s",)),
        "small": File("small", 0.0, ("n", "s", "away")),
    }
    assert all(one.stays is Stays.FREE for one in left.files)
    # The slower way of the two, and a second; that alone where the tables say nothing.
    assert math.isclose(platform.transfer_s(2.0, "n", "s"), 61.0)
    assert platform.transfer_s(2.0, "n", "away") == 1.0
    assert plans.regions(flow, stands, offers, Counter())["last"] == "s"
    # While nothing is known of where one of the steps runs, there is no plan.
    assert plans.regions(flow, stands, offers[:1], Counter()) == {}
    assert plans.regions(flow, stands, [], Counter()) == {}
    # Where there is no room anywhere a step is planned all the same.
    full = Counter({"n/sure": 3, "s/sure": 2})
    assert set(plans.problem(flow, stands, offers, full)[0].steps[1].profile.run_s) == {"n", "s", "away"}


def test_a_step_that_is_late_is_no_longer_waited_for() -> None:
    # "waits" takes 10 min in slow, 5 min in fast, where "runs" has the only place. With 90 % of its 10 min
    # done that is free in 1 min, and 1 + 5 < 10; with 10 % in 9 min, and 9 + 5 > 10.
    flow = workflow(step("runs", minutes=10.0), step("waits", minutes=10.0))
    offers = [place("slow").offer, place("fast", quota=1, speed=2.0).offer]
    plans = Plans("annealing", 0.0, Transfers((), {}, {}))
    for progress, region in ((0.9, "fast"), (0.1, "slow")):
        stands = {"runs": Stand("fast", progress)}
        assert plans.regions(flow, stands, offers, Counter())["waits"] == region


class Planned(World):
    def decides(self) -> Policies:
        policies = super().decides()
        policies.plans = Plans("annealing", self.settings.set_up_s, self.settings.transfers)
        return policies


def regions(world: World, job: str) -> dict[str, list[str]]:
    """By step: where it was put, one after the other."""
    found: dict[str, list[str]] = {}
    for one in sorted(world.store.instances.of_job(job), key=lambda one: one.requested_s):
        found.setdefault(one.key.task, []).append(one.offer.region)
    return found


@pytest.mark.real
def test_a_plan_puts_the_longest_step_on_the_fastest_cluster_whatever_it_costs(tmp_path: Path) -> None:
    # The policy alone takes the cheapest place for all three. As in Table 3.1 of Liu 2022 the step with most
    # work belongs on the fast cluster, though it is named last and there is room for one.
    flow = workflow(step("one"), step("two"), step("long", minutes=20.0))
    found = []
    for name, kind in (("alone", World), ("planned", Planned)):
        clusters = [place("slow", quota=3), place("fast", quota=1, speed=4.0, price_usd_hour=9.0)]
        world = kind(tmp_path / name, clusters, policy="cheapest")
        job = world.submit(flow)
        world.until_all_end()
        found.append(regions(world, job))
    assert found[0] == {"one": ["slow"], "two": ["slow"], "long": ["slow"]}
    assert found[1] == {"one": ["slow"], "two": ["slow"], "long": ["fast"]}
    [record] = [one for one in world.store.decisions.latest(50) if one.key.task == "long"]
    assert {one.reason for one in record.candidates} == {"", "its plan puts it in fast"}


@pytest.mark.real
def test_a_step_whose_cluster_is_lost_is_planned_anew(tmp_path: Path) -> None:
    # The fast cluster goes away after 200 s and stays away. "long" would have taken 300 s there.
    fast = place("fast", quota=1, speed=4.0, available=lambda now_s: now_s < 1_000_200)
    world = Planned(tmp_path, [place("slow", quota=2), fast])
    flow = workflow(
        step("long", "private", minutes=20.0),
        step("kept", "stays"),
        step("last", "long-out"),
        files=(file("private", "fast"), file("stays", "slow", stays=True)),
    )
    job = world.submit(flow)
    world.go(100.0)
    assert regions(world, job)["long"] == ["fast"]
    world.go(110.0)
    for name in world.cloud.live("fast/sure"):
        world.cloud.kill(name, by_provider=True)
    world.restart()
    world.ends_well(job)
    assert regions(world, job) == {"long": ["fast", "slow"], "kept": ["slow"], "last": ["slow"]}


def test_a_step_runs_where_its_files_are_if_all_else_is_equal(tmp_path: Path) -> None:
    world = Planned(tmp_path, [place("n"), place("s")])
    job = world.submit(workflow(step("one", "there"), step("two", "one-out"), files=(file("there", "s"),)))
    world.until_all_end()
    assert regions(world, job) == {"one": ["s"], "two": ["s"]}


@pytest.mark.real
def test_where_only_spot_capacity_is_planned_a_deadline_keeps_all_places_open(tmp_path: Path) -> None:
    fast = rentable("fast", region="fast", speed=4.0, price_usd_hour=5.0, launch_s=10.0)
    for deadline_s, expected in ((None, "fast"), (8000.0, "slow")):
        world = Planned(tmp_path / str(deadline_s), [place("slow"), fast], policy="cheapest")
        job = world.submit(workflow(step("one", minutes=20.0), deadline_s=deadline_s))
        world.until_all_end()
        assert regions(world, job) == {"one": [expected]}


def bag(n_tasks: int, minutes: float, deadline_s: float | None, **changes: Any) -> JobSpec:
    tasks = tuple(BagTask(name=f"t{k}", command=("run", str(k)), minutes=minutes) for k in range(n_tasks))
    return JobSpec(name="bag", work=Bag(tasks=tasks, deadline_s=deadline_s), **changes)


def needs(world: World, spec: JobSpec, start_s: float = 0.0) -> list[Need]:
    """Of each of its tasks, 100 s after it was submitted."""
    job = world.store.jobs.get(world.submit(spec))
    now_s, tasks = job.submitted_s + 100.0, world.store.tasks.of_job(job.job_id)
    return [need_of(job, task, [], now_s, SETTINGS, start_s=start_s) for task in tasks]


def each_once(world: World, job: str, n_tasks: int) -> bool:
    return world.cloud.completions == {TaskKey(job, f"t{k}"): 1 for k in range(n_tasks)}


FLOW = workflow(step("one"), step("two", "one-out"), max_user_failures=2)


@pytest.mark.parametrize("spec", [FLOW, bag(1, 5.0, None, max_user_failures=2)], ids=["workflow", "bag"])
def test_what_fails_too_often_fails_its_job_and_nothing_behind_it_starts(world: World, spec: JobSpec) -> None:
    world.cloud.fails[spec.name] = 3
    assert world.why_failed(world.submit(spec)) == "exit code 1"
    assert len({event.task for event in world.events("task.started")}) == 1


@pytest.mark.real
def test_ten_tasks_under_interruptions_end_before_the_deadline_each_once(tmp_path: Path) -> None:
    # Four machines of each kind; every 300 s spot capacity is away for 60 s and all that runs there is lost.
    # Ten times 10 min of work; four machines on demand alone need three rounds of about 640 s: 1920 s.
    world = World(tmp_path, cheap_and_sure(available=lambda now_s: (now_s - 1_000_000) % 300 < 240))
    job = world.submit(bag(10, 10.0, 3600.0))
    world.ends_well(job)
    assert world.took_s(job) <= 3600.0
    assert each_once(world, job, 10)
    # No task of 600 s ends on spot capacity that lasts for 240 s: all were interrupted or moved.
    assert len(world.events("task.lost")) >= 10
    assert set(world.offers_taken()) == {"spot", "sure"}


def test_the_net_takes_tasks_off_spot_capacity_in_time(tmp_path: Path) -> None:
    # One of two zones always has spot capacity, for 100 s: a try saves one checkpoint (60 s) of the 300 s of
    # work. On demand all of it takes 30 s of launch, 20 s of set-up and 300 s, so at first nothing stands in
    # the way of spot; after a try 290 s are left to do, and 360 s to do it in.
    zones = [
        rentable("a", available=lambda now_s: (now_s - 1_000_000) % 200 < 100, launch_s=10.0),
        rentable("b", available=lambda now_s: (now_s - 1_000_000) % 200 >= 100, launch_s=10.0),
    ]
    world = World(tmp_path, [*zones, cheap_and_sure()[1]])
    job = world.submit(bag(4, 5.0, 460.0))
    world.ends_well(job)
    assert world.took_s(job) <= 460.0
    assert each_once(world, job, 4)
    assert world.metric("overruled_total", by="net") >= 4


@pytest.mark.real
def test_a_killed_scheduler_goes_on_and_what_is_done_is_ended_once(world: World) -> None:
    # Four at once: four are done after about 350 s, four more run.
    job = world.submit(bag(12, 5.0, None, places=Places(markets=("spot",))))
    for _ in range(10):
        world.go(50.0)
        world.restart()
    tasks = world.store.tasks.of_job(job)
    assert sum(task.phase == "succeeded" for task in tasks) == 4
    assert world.store.gantt.sums([job])[job].tasks_done == 4
    assert world.state(job) is JobState.RUNNING
    world.ends_well(job)
    assert each_once(world, job, 12)
    # Twelve machines; for each task one stop, and one to forget the job.
    assert world.cloud.launches == 12
    stops = select(intents.c.target).where(intents.c.kind == IntentKind.STOP.value)
    stopped = sorted(row.target for row in world.store._database.read_all(stops))
    assert stopped == sorted([f"{job}:forget", *(f"{job}.t{k}.1" for k in range(12))])


def test_a_task_needs_what_it_says_and_the_bag_is_time_critical(world: World) -> None:
    one = BagTask(name="small", command=("a",), minutes=2.0)
    other = BagTask(name="large", command=("b",), minutes=5.0, vcpus=3, memory_gib=6.0)
    work = Bag(tasks=(one, other), deadline_s=1000.0)
    small, large = needs(world, JobSpec(name="bag", work=work, resources=Resources(memory_gib=2.0)))
    assert (small.kind, small.standard_s, small.slack_s) == ("deadline", 120.0, 900.0)
    assert (large.kind, large.standard_s, large.slack_s) == ("deadline", 300.0, 900.0)
    assert (small.resources.vcpus, small.resources.memory_gib) == (1, 2.0)
    assert (large.resources.vcpus, large.resources.memory_gib) == (3, 6.0)


# Trainings with several clients: release and pre-warming, budgets, deadlines, where data lie.


@pytest.mark.real
def test_a_quick_client_is_released_and_back_in_time_for_the_next_round(tmp_path: Path) -> None:
    world = TrainingWorld(tmp_path, cheap_and_sure(), a=60.0, b=900.0)
    job = world.submit(federated(4, A, B, epoch_s=600.0))
    world.go(2400)
    world.restart()  # a scheduler that comes back hears of the released one from the runner
    world.ends_well(job)
    training = world.trainings[job]
    assert training.done == 4
    released = [event for event in world.events("task.requeued") if "released" in event.data["reason"]]
    assert {event.task for event in released} == {"client-a"}
    assert len(released) >= 2
    # Four slow epochs; the first round waits for a launch; nobody waits for the quick client after that.
    assert training.ended_s is not None
    assert training.ended_s - 1_000_000 <= 4 * 900 + 120
    bills = world.store.costs.of_tasks(job, world.clock.now())
    assert bills["client-a"].seconds < 0.5 * bills["client-b"].seconds
    assert world.store.costs.of_job(job, world.clock.now()) == bills["client-a"] + bills["client-b"]
    assert len(world.events("job.succeeded")) == 1


@pytest.mark.real
def test_a_client_whose_budget_is_spent_leaves_and_the_others_go_on(tmp_path: Path) -> None:
    """At 0.3 USD an hour 0.12 USD are 1440 s: two epochs of 500 s with their starts, not three."""
    world = TrainingWorld(tmp_path, cheap_and_sure(), a=500.0, b=500.0)
    job = world.submit(federated(5, A.model_copy(update={"budget_usd": 0.12}), B, epoch_s=500.0))
    world.ends_well(job)
    spent = float(usd(world.store.costs.of_tasks(job, world.clock.now())["client-a"].cost))
    assert 0.05 < spent <= 0.12
    left = world.store.tasks.get(key_of(job, "a"))
    assert left.phase is Phase.LEFT
    assert "budget" in left.message
    (event,) = world.events("task.left")
    assert (event.task, event.data) == ("client-a", {"reason": "its budget of 0.12 USD is spent"})
    asked_s = [one.requested_s for one in world.store.instances.of_job(job) if one.key.task == "client-a"]
    assert max(asked_s) <= event.time_s
    assert world.trainings[job].done == 5
    assert world.metric("clients_left_total") == 1


def test_a_budget_that_pays_no_round_at_all_is_known_before_anything_is_rented(tmp_path: Path) -> None:
    world = TrainingWorld(tmp_path, cheap_and_sure(), a=500.0)
    job = world.submit(federated(5, A.model_copy(update={"budget_usd": 0.001}), epoch_s=500.0))
    why = "0 of 1 clients are left, 1 are needed: the budget of a is spent; raise it or lower the quorum"
    assert world.why_failed(job) == why
    assert world.cloud.machines == {}


@pytest.mark.real
def test_a_training_with_a_deadline_goes_to_sure_capacity_in_time(tmp_path: Path) -> None:
    """Spot capacity never lasts an epoch of 400 s; three rounds on demand take about 1250."""
    world = TrainingWorld(
        tmp_path, cheap_and_sure(available=lambda now_s: (now_s - 1_000_000) % 400 < 380), a=400.0, b=400.0
    )
    job = world.submit(federated(3, A, B, epoch_s=400.0, deadline_s=2600.0))
    world.ends_well(job)
    assert world.took_s(job) <= 2600
    # By the policy, which weighs the deadline, or by the net: what counts is where it trained.
    rented = {one.offer.market for one in world.store.instances.of_job(job)}
    assert "on_demand" in rented


@pytest.mark.parametrize(("region", "goes_to"), [(None, "far"), ("near", "near")])
def test_a_client_trains_where_its_data_are(tmp_path: Path, region: str | None, goes_to: str) -> None:
    offers = [
        rentable(name, region=name, price_usd_hour=price) for name, price in (("far", 0.1), ("near", 0.5))
    ]
    world = TrainingWorld(tmp_path, offers, a=100.0)
    world.submit(federated(2, A.model_copy(update={"region": region}), epoch_s=100.0))
    world.until_all_end()
    assert set(world.offers_taken()) == {goes_to}


def test_data_where_the_job_may_not_run_are_a_mistake() -> None:
    work = federated(1, A.model_copy(update={"region": "far"})).work
    with pytest.raises(ValueError, match="add that region"):
        JobSpec(name="fl", work=work, places=Places(regions=("near",)))


@pytest.mark.real
def test_a_server_is_placed_like_a_client_and_replaced_each_time_it_is_taken(tmp_path: Path) -> None:
    """Spot capacity where it must run ends every 1500 s; clients elsewhere stay, and each round is done."""
    offers = [
        rentable("hub", available=lambda now_s: (now_s - 1_000_000) % 1500 < 1450, region="hub"),
        rentable("near", "on_demand", region="near"),
    ]
    world = TrainingWorld(tmp_path, offers, a=300.0, b=300.0)
    clients = [one.model_copy(update={"region": "near"}) for one in (A, B)]
    job = world.submit(federated(48, *clients, epoch_s=300.0, server=FlowerServer(region="hub")))
    world.go(1460)
    assert world.store.tasks.get(TaskKey(job, SERVER)).phase is None, "taken, and waits for a place"
    world.restart()  # while it is being replaced
    world.ends_well(job)
    training = world.trainings[job]
    assert training.done == 48
    assert training.lost >= 10
    held = world.store.instances.of_job(job)
    assert {one.offer.region for one in held if one.key.task == SERVER} == {"hub"}
    assert sorted(one.key.task for one in held if one.key.task != SERVER) == ["client-a", "client-b"]
    bills = world.store.costs.of_tasks(job, world.clock.now())
    assert bills[SERVER].cost > 0
    assert world.store.costs.of_job(job, world.clock.now()) == sum(bills.values(), Bill())
    # Rounds of 300 s, and for each loss half a round again, the wait for capacity and the start.
    assert world.took_s(job) <= 48 * 300 + training.lost * (300 + 50 + 30 + 60)
