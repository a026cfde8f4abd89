"""Plans of workflows: what is left of them, by hand, and what becomes of them in the simulated cloud."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.simulated import SimulatedOffer
from deploy.model.jobs import JobState
from deploy.model.transfers import Transfers
from deploy.scheduler.decide.chooser import Policies
from deploy.scheduler.decide.plans import Plans, Stand
from envs.simulation.workflows.model import File, Stays
from tests.deploy.scheduler.cases import offer
from tests.deploy.scheduler.worlds import World
from tests.deploy.workflows import file, step, workflow


def place(region: str, **facts: Any) -> SimulatedOffer:
    available = facts.pop("available", lambda now_s: True)
    common: dict[str, Any] = {"provider": "simulated", "region": region, "zone": "", "launch_s": 10.0}
    return SimulatedOffer(offer(f"{region}/sure", "on_demand", **{**common, **facts}), available=available)


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
    found = [
        plans.regions(flow, {"runs": Stand("fast", progress)}, offers, Counter())["waits"]
        for progress in (0.9, 0.1)
    ]
    assert found == ["fast", "slow"]


class Planned(World):
    """With plans."""

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
        (tmp_path / name).mkdir()
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
    world = Planned(
        tmp_path,
        [
            place("slow", quota=2),
            place("fast", quota=1, speed=4.0, available=lambda now_s: now_s < 1_000_200),
        ],
    )
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
    world.until_all_end()
    assert world.state(job) is JobState.SUCCEEDED
    assert regions(world, job) == {"long": ["fast", "slow"], "kept": ["slow"], "last": ["slow"]}
    world.check_nothing_is_left()


def test_a_step_runs_where_its_files_are_if_all_else_is_equal(tmp_path: Path) -> None:
    world = Planned(tmp_path, [place("n"), place("s")])
    job = world.submit(workflow(step("one", "there"), step("two", "one-out"), files=(file("there", "s"),)))
    world.until_all_end()
    assert regions(world, job) == {"one": ["s"], "two": ["s"]}


@pytest.mark.real
def test_where_only_spot_capacity_is_planned_a_deadline_keeps_all_places_open(tmp_path: Path) -> None:
    fast = SimulatedOffer(replace(place("fast", speed=4.0).offer, market="spot", price_usd_hour=5.0))
    for deadline_s, expected in ((None, "fast"), (8000.0, "slow")):
        folder = tmp_path / str(deadline_s)
        folder.mkdir()
        world = Planned(folder, [place("slow"), fast], policy="cheapest")
        job = world.submit(workflow(step("one", minutes=20.0), deadline_s=deadline_s))
        world.until_all_end()
        assert regions(world, job) == {"one": [expected]}
