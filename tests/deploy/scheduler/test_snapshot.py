"""How live facts become the columns of a snapshot, and how rounds are seen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from spotweave.agents.networks import WeighedPolicy
from spotweave.agents.rules.expected_cost import appraise
from spotweave.deploy.model.instances import InstanceState
from spotweave.deploy.model.jobs import (
    Flower,
    FlowerClient,
    JobSpec,
    Places,
    Resources,
    SparkStreaming,
    TaskKey,
)
from spotweave.deploy.model.strategies import FedAsync, FedAvg, Strategy
from spotweave.deploy.model.tasks import Phase, TaskReport
from spotweave.deploy.scheduler.decider import Decider, load_market_policy
from spotweave.deploy.scheduler.needs import Membership, Round, need_of
from spotweave.deploy.scheduler.rounds import Look, Rounds
from spotweave.deploy.scheduler.snapshot import SAMPLE_S, Occupancy, snapshot_of
from spotweave.deploy.store.instances import Instance
from spotweave.deploy.store.tasks import Task
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.snapshot import Category, Observation, encode
from tests.deploy.scheduler.training import A, B, TrainingWorld, federated, key_of
from tests.deploy.scheduler.worlds import cheap_and_sure, need, offer


def test_columns_are_in_physical_units_and_the_encoder_derives_the_rest() -> None:
    offers = [offer("spot"), offer("sure", "on_demand", speed=2.0)]
    needs = [need(kind="deadline", slack_s=700.0, age_s=100.0, waited_s=50.0, restart_s=20.0)]
    observation = encode(snapshot_of(offers, needs, {"spot": 1}, Occupancy()), 3)
    clusters, jobs, pairs = (observation[name] for name in ("clusters", "jobs", "pairs"))
    assert clusters[0, col.USED] == 1
    assert clusters[1, col.HETERO_FACTOR] == 2 * clusters[0, col.HETERO_FACTOR]
    assert jobs[0, col.CATEGORY] == Category.TIME_CRITICAL
    assert jobs[0, col.SLACK_S] == 700
    # 60 s of launch, 20 of set-up, 600 of work, or 300 on the faster type.
    assert pairs[0, 0, col.FINISH_S] == 680
    assert pairs[0, 1, col.FINISH_S] == 380
    assert pairs[0, 1, col.COST_USD] == pytest.approx(380 / 3600)
    assert pairs[0, 0, col.IMPROPER] == 0
    assert observation["action_mask"].reshape(3, 3).tolist() == [[1, 1, 1], [0, 0, 0], [0, 0, 0]]
    # Too late on one of them.
    late = encode(snapshot_of(offers, [replace(needs[0], slack_s=650.0)], {}, Occupancy()), 1)
    assert late["pairs"][0, :2, col.IMPROPER].tolist() == [1, 0]


@pytest.mark.parametrize(
    ("changes", "used", "valid"),
    [
        ({"places": Places(markets=("on_demand",))}, 0, False),
        ({"places": Places(regions=("there",))}, 0, False),
        ({"places": Places(providers=("aws",))}, 0, False),
        ({"places": Places(instance_types=("large",))}, 0, False),
        ({"resources": Resources(vcpus=8)}, 0, False),
        ({"resources": Resources(memory_gib=16.0)}, 0, False),
        ({"resources": Resources(gpus=1)}, 0, False),
        ({"resources": Resources(gpu=("T4",))}, 0, False),
        ({"resources": Resources(instances=5)}, 0, False),
        pytest.param({"resources": Resources(instances=2)}, 3, False, id="no room"),
        pytest.param({"resources": Resources(instances=2)}, 2, True, id="just enough room"),
    ],
)
def test_only_where_a_task_may_run_and_has_room_is_valid(
    changes: dict[str, Any], used: int, valid: bool
) -> None:
    observation = encode(snapshot_of([offer("spot")], [need(**changes)], {"spot": used}, Occupancy()), 1)
    assert observation["action_mask"].tolist() == [valid, 1]


def test_an_idle_task_may_keep_what_it_holds_even_where_nothing_can_be_rented() -> None:
    idle = need(kind="federated", here="spot", round=Round(idle=True, owes=False, round_left_s=100.0))
    observation = encode(snapshot_of([offer("spot", available=False)], [idle], {"spot": 1}, Occupancy()), 1)
    assert observation["action_mask"].tolist() == [1, 1]
    assert observation["jobs"][0, col.IDLE] == 1


def test_occupation_is_sampled_like_in_the_simulated_market() -> None:
    occupancy = Occupancy()
    occupancy.sample(SAMPLE_S - 1.0)  # the first moment at which something is known
    occupancy.hold({"spot": 2})
    occupancy.sample(3 * SAMPLE_S)  # at 1, 2 and 3 times: what was in use until then
    occupancy.hold({"spot": 4})
    occupancy.sample(4 * SAMPLE_S)
    occupancy.hold({"late": 4})
    occupancy.sample(5 * SAMPLE_S)
    ratios = occupancy.ratios("spot", 4)
    assert ratios[-5:].tolist() == [0.5, 0.5, 0.5, 1.0, 0.0]
    assert not ratios[:-5].any()
    assert occupancy.mean("spot", 4) == pytest.approx(2.5 / 5)
    assert occupancy.mean("late", 4) == pytest.approx(1 / 5)  # it was free in the four samples before
    assert occupancy.ratios("other", 4).sum() == 0


def test_more_used_than_the_quota_still_is_a_ratio() -> None:
    occupancy = Occupancy()
    occupancy.hold({"spot": 9})
    occupancy.sample(SAMPLE_S)
    assert occupancy.ratios("spot", 4).max() == 1.0
    assert np.isfinite(snapshot_of([offer("spot")], [], {"spot": 9}, occupancy).clusters).all()


OFFERS = [offer("spot", price_usd_hour=0.2), offer("sure", "on_demand"), offer("down", available=False)]
NEEDS = [
    need("first"),
    need("second", kind="deadline", slack_s=900.0),
    need("third", kind="deadline", slack_s=5000.0, running=True, here="spot", left_here_s=300.0),
]


@pytest.mark.parametrize("name", ["multicloud", "cheapest"])
def test_the_values_shown_are_those_of_the_whole_window(name: str) -> None:
    """Only the decided task's row is computed for showing: it must not depend on the others."""
    loaded = load_market_policy(name, len(OFFERS))
    decider = Decider(loaded.policy, window=8, components=loaded.components)
    snapshot = snapshot_of(OFFERS, NEEDS, {"spot": 1}, Occupancy())
    decision = decider.decide(snapshot, NEEDS, OFFERS)
    row = NEEDS.index(decision.need)
    window = {key: np.asarray(array)[None] for key, array in encode(snapshot, 8).items()}
    batch = cast(Observation, window)
    usd = appraise(batch, len(NEEDS)).usd[0, row]
    places = [*(one.offer_id for one in OFFERS), None]
    for candidate in decision.candidates:
        place = places.index(candidate.offer_id)
        assert candidate.expected_usd == pytest.approx(usd[place], rel=1e-5, abs=1e-6)
        if isinstance(loaded.policy, WeighedPolicy):
            shown = [candidate.values.get(one, np.nan) for one in loaded.components]
            expected = loaded.policy.value_table(batch)[0, row, place]
            assert shown == pytest.approx(expected, rel=1e-5, abs=1e-6, nan_ok=True)


@pytest.mark.real
def test_starts_and_epochs_are_measured(tmp_path: Path) -> None:
    """Epochs go with the speed of the instance; a training that has gone on shows what its rounds take."""
    world = TrainingWorld(tmp_path, cheap_and_sure(), a=60.0, b=900.0)
    job = world.submit(federated(4, A, B, epoch_s=600.0))
    seen: list[Membership] = []
    memberships = world.scheduler.chooser._roster.memberships
    for _ in range(60):
        world.go(50)
        if world.trainings[job].done == 4:
            break
        memberships.look(world.store.jobs.get(job))
        about = memberships.member(key_of(job, "b"))
        assert about is not None
        seen.append(about)
    # Before a round is done the job's own word counts.
    assert seen[0].epoch_s == 600
    assert seen[-1].epoch_s == pytest.approx(900, rel=0.25)
    assert seen[-1].rounds_left < seen[0].rounds_left


def test_a_stream_without_a_place_falls_behind(tmp_path: Path) -> None:
    """Otherwise waiting would cost nothing, and it could wait for ever."""
    world = TrainingWorld(tmp_path, cheap_and_sure())
    work = SparkStreaming(script="x.py", period_s=60.0, batch_deadline_s=50.0, batches=9)
    job = world.store.jobs.get(world.submit(JobSpec(name="stream", work=work)))
    told = replace(world.store.tasks.get(TaskKey(job.job_id, "main")), executions_done=2, next_due_s=1000.0)

    def after(now_s: float) -> tuple[float | None, int, int]:
        found = need_of(job, told, (), now_s, world.scheduler.settings)
        return found.slack_s, found.backlog, found.misses

    assert after(970.0) == (80.0, 0, 0)
    assert after(1055.0) == (-5.0, 1, 1)
    assert after(1600.0) == (-550.0, 7, 7), "all seven that are left"


def test_a_client_need_not_repeat_what_it_has_saved_of_its_epoch(tmp_path: Path) -> None:
    world = TrainingWorld(tmp_path, cheap_and_sure(), a=60.0, b=900.0)
    job = world.store.jobs.get(world.submit(federated(4, A, B, epoch_s=600.0)))
    about = Membership(round_s=600.0, rounds_left=4, epoch_s=600.0)
    stored = replace(world.store.tasks.get(key_of(job.job_id, "b")), execution_saved=0.75)

    def left_s(owes: bool) -> float:
        member = replace(about, owes=owes)
        return need_of(job, stored, (), 0.0, world.scheduler.settings, member).left_s(1.0)

    assert left_s(owes=True) == 150.0
    assert left_s(owes=False) == 600.0, "the next epoch has not begun"


OFFER = offer("spot", provider="simulated", launch_s=30.0)


def rounds(strategy: Strategy) -> Rounds:
    clients = (FlowerClient(name="a"), FlowerClient(name="b"))
    return Rounds(Flower(app="x", rounds=9, clients=clients, epoch_s=100.0, strategy=strategy), 0.0)


NOUGHT = ("progress", "saved", "misses", "execution_saved", "losses", "failures", "interruptions")
UNKNOWN = ("next_due_s", "reported_s", "waiting_since_s")


def task(name: str, done: int, epoch_s: float | None, phase: Phase | None) -> Task:
    told = {"phase": phase, "executions_done": done, "last_execution_s": epoch_s}
    place = {"instances": () if phase is None else (f"i-{name}",), "saved_region": "", "message": ""}
    rest = {**dict.fromkeys(NOUGHT, 0), **dict.fromkeys(UNKNOWN), "not_before_s": 0.0}
    return Task(TaskKey("job", name), 1, **{**told, **place, **rest})  # type: ignore[arg-type]


def look(name: str, done: int, epoch_s: float | None, on: str = "") -> Look:
    """A client that trains, or has no instance."""
    phase = Phase.RUNNING if on else None
    mine = task(name, done, epoch_s, phase)
    held = [Instance(on, OFFER, mine.key, "t", "n", InstanceState.RUNNING, 0.0, ready_s=30.0)] if on else []
    return Look(mine, held, TaskReport(mine.key, 1, Phase.RUNNING, executions_done=done))


@pytest.mark.parametrize(("strategy", "left_s"), [(FedAvg(), 100.0), (FedAsync(kind="fed_async"), 0.0)])
def test_a_client_without_an_instance_waits_for_nobody(strategy: Strategy, left_s: float) -> None:
    """In a round it has the 100 s of the other's epoch; here each second without it is lost."""
    known = rounds(strategy)
    for one in (look("client-a", 0, None, on="i-a"), look("client-b", 0, None)):
        known.stand(one, [OFFER])
    assert known.round_left_s("client-b", 0.0) == left_s
    assert known.stands["client-a"].owes
    assert known.stands["client-b"].owes


@pytest.mark.parametrize(("strategy", "cold"), [(FedAvg(), True), (FedAsync(kind="fed_async"), False)])
def test_a_version_that_others_made_is_no_epoch_of_ones_own(strategy: Strategy, cold: bool) -> None:
    """b trains on one instance and moves; the next version is a's, and b's latest epoch is still the old.

    In synchronous rounds it would be the first on the new instance, and tell how long a cold one takes.
    """
    known = rounds(strategy)
    a = look("client-a", 1, 10.0, on="i-a")
    for done, epoch_s, on in ((0, None, "i-1"), (1, 60.0, "i-1"), (2, 50.0, "i-1"), (3, 50.0, "i-2")):
        known.see([replace_done(a, done), look("client-b", done, epoch_s, on=on)], 0.0)
    assert (known._trained_on["client-b"] == "i-2") is cold
    known.see([replace_done(a, 4), look("client-b", 4, 80.0, on="i-2")], 0.0)
    assert known._trained_on["client-b"] == "i-2"
    # Cold on i-1: 60 - 50. On i-2 the first own epoch is the 80 s: 80 - 50 = 30 more than warm.
    assert (known.cold_s("client-b") > 15.0) is not cold


def replace_done(one: Look, done: int) -> Look:
    return one._replace(task=replace(one.task, executions_done=done))
