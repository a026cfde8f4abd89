"""Section `stories`: ten short lives of jobs in a simulated cloud, as the scheduler's database tells them."""

from __future__ import annotations

import json
import re
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.simulated import SimulatedOffer
from spotweave.deploy.model.instances import InstanceReport, InstanceState, LaunchRequest
from spotweave.deploy.model.jobs import Bag, BagTask, FlowerClient, JobSpec, JobState, Places, SparkStreaming
from spotweave.deploy.providers.base import CapacityError
from spotweave.deploy.scheduler.retries import end_job
from tests.deploy.scheduler.training import RoundsRunner, Training, federated
from tests.deploy.scheduler.worlds import SETTINGS, World, batch, cheap_and_sure
from tests.deploy.workflows import step, workflow

START_S = 1_000_000
PASSES = replace(SETTINGS, period_s=20.0, ask_again_s=20.0)
LEDGER = {
    "job": "job_id, state, submitted_s, ended_s, user_failures, reason FROM jobs ORDER BY job_id",
    "task": """job_id || '/' || task, phase, attempt, progress, executions_done, misses, losses, failures,
        interruptions, message FROM tasks ORDER BY job_id, position""",
    "instance": """instance_id, offer_id AS offer, job_id || '/' || task, state, requested_s, launched_s,
        ready_s, ended_s, by_provider FROM instances ORDER BY requested_s, job_id, task, rowid""",
    "price": """instance_id, start_s, price_micro_usd_hour AS micro_usd
        FROM price_segments ORDER BY start_s, rowid""",
    "charge": "instance_id, day, zone, market, seconds, cost, on_demand, disk FROM charges ORDER BY rowid",
    "egress": "instance_id, job_id || '/' || task, attempt, day, zone, market, cost FROM egress",
    "intent": "kind, state, attempts, count(*) AS number FROM intents GROUP BY kind, state, attempts",
    "decision": "time_s, job_id || '/' || task, chosen, policy FROM decisions ORDER BY decision_id",
    "event": """time_s, kind, job_id || coalesce('/' || task, ''), instance_id, decision_id AS decision, data
        FROM events ORDER BY time_s""",
}
"""What is read of the database, whose tables outlive the modules that write them; zeros are left out."""
UNORDERED = ("charge", "egress", "event")


class Rounds(World):
    """Trainings with rounds are told of as the Flower runner does."""

    trainings: dict[str, Training]

    def runs(self) -> RoundsRunner:
        self.trainings = getattr(self, "trainings", {})
        return RoundsRunner(self.cloud, {"a": 200.0, "b": 400.0}, self.trainings)


def _off(first_s: float, until_s: float) -> Callable[[float], bool]:
    return lambda now_s: not first_s <= now_s - START_S < until_s


def batch_interrupted(folder: Path) -> World:
    world = World(folder, cheap_and_sure(available=_off(200, 400)), settings=PASSES)
    world.submit(batch(work_s=900.0))
    world.until_all_end()
    return world


def fallback_to_on_demand(folder: Path) -> World:
    """The first has no time for spot at all, the second waits for it, the third is moved off it in time."""
    world = World(folder, cheap_and_sure(available=_off(200, 220)), settings=PASSES)
    world.submit(batch("late", work_s=600.0, deadline_s=760.0))
    world.submit(batch("later", work_s=900.0, places=Places(markets=("spot",))))
    world.submit(batch("moved", work_s=900.0, deadline_s=1150.0))
    world.until_all_end()
    return world


def stream(folder: Path) -> World:
    prices = cheap_and_sure(price_usd_hour=lambda now_s: 0.25 if now_s < START_S + 300 else 0.35)
    world = World(folder, prices, settings=PASSES)
    work = SparkStreaming(script="x.py", period_s=60.0, batch_deadline_s=90.0, batches=12, standard_s=30.0)
    world.submit(JobSpec(name="stream", work=work))
    world.until_all_end()
    return world


def bag_stopped(folder: Path) -> World:
    """What runs on spot is stopped in the middle, as hibernation does, and found out."""
    world = World(folder, cheap_and_sure(), settings=PASSES)
    tasks = tuple(BagTask(name=f"t{k}", command=("run", str(k)), minutes=5.0) for k in range(5))
    world.submit(JobSpec(name="bag", work=Bag(tasks=tasks, deadline_s=2400.0)))
    world.go(200.0)
    for name in world.cloud.live("spot")[:2]:
        machine = world.cloud.machines[name]
        machine.report = replace(machine.report, state=InstanceState.STOPPED, stopped_s=world.clock.now())
    world.until_all_end()
    return world


def steps_of_a_workflow(folder: Path) -> World:
    world = World(folder, cheap_and_sure(available=_off(150, 260)), settings=PASSES)
    middle = step("b", "a-out", minutes=1.0), step("c", "a-out", minutes=3.0)
    world.submit(workflow(step("a", minutes=2.0), *middle, step("d", "b-out c-out"), deadline_s=4000.0))
    world.until_all_end()
    return world


def training_revoked(folder: Path) -> World:
    world = Rounds(folder, cheap_and_sure(available=_off(500, 700)), settings=PASSES)
    clients = FlowerClient(name="a"), FlowerClient(name="b", budget_usd=5.0)
    world.submit(federated(3, *clients, epoch_s=300.0))
    world.until_all_end()
    return world


def budget_spent(folder: Path) -> World:
    world = World(folder, cheap_and_sure(), settings=replace(PASSES, budget_usd=0.05))
    for name in ("first", "second"):
        world.submit(batch(name, work_s=36_000.0))
    world.submit(batch("poor", work_s=36_000.0, budget_usd=0.01))
    world.go(900.0)
    return world


def cancelled(folder: Path) -> World:
    world = World(folder, cheap_and_sure(), settings=PASSES)
    job = world.submit(batch(work_s=5000.0, instances=2))
    world.go(200.0)
    end_job(world.store, job, JobState.CANCELLED, world.clock.now(), "by its owner")
    world.go(200.0)
    return world


def refused(folder: Path) -> World:
    """No capacity though an offer says so, then none at all; too little quota; a user's own failures."""
    offers = cheap_and_sure(available=_off(60, 180))
    offers[1] = SimulatedOffer(replace(offers[1].offer, quota=1))
    world = World(folder, offers, settings=PASSES)
    launch = world.provider.launch

    def launch_later(request: LaunchRequest) -> InstanceReport:
        if request.offer_id == "spot" and world.clock.now() < START_S + 60:
            raise CapacityError("none left")
        return launch(request)

    world.provider.launch = launch_later  # type: ignore[method-assign]
    world.cloud.fails = {"bad": 9}
    world.submit(batch("gang", instances=3))
    world.submit(batch("bad", work_s=50.0, max_user_failures=2))
    world.submit(batch("good", work_s=100.0))
    world.until_all_end()
    return world


def restarted(folder: Path) -> World:
    world = World(folder, cheap_and_sure(available=_off(300, 420)), policy="multicloud", settings=PASSES)
    for k in range(3):
        world.submit(batch(f"job{k}", work_s=400.0, deadline_s=3000.0))
    for _ in range(6):
        world.go(70.0)
        world.restart()
    world.until_all_end()
    return world


STORIES: dict[str, Callable[[Path], World]] = {
    "batch": batch_interrupted,
    "fallback": fallback_to_on_demand,
    "stream": stream,
    "bag": bag_stopped,
    "workflow": steps_of_a_workflow,
    "training": training_revoked,
    "budget": budget_spent,
    "cancel": cancelled,
    "refused": refused,
    "restart": restarted,
}


def stories() -> list[str]:
    """Of every story what each table of the database holds at its end, row by row."""
    lines = []
    for name, story in STORIES.items():
        with tempfile.TemporaryDirectory() as folder:
            world = story(Path(folder))
            world.store.close()
            with closing(sqlite3.connect(Path(folder) / "store.db")) as database:
                lines += [f"{name}: {told}" for told in _told(database)]
    return lines


def _told(database: sqlite3.Connection) -> Iterator[str]:
    names: dict[str, str] = {}
    asked = "SELECT instance_id FROM instances ORDER BY requested_s, job_id, task, rowid"
    for (instance_id,) in database.execute(asked):
        names[instance_id] = f"i{len(names) + 1}"
    own = re.compile("|".join(map(re.escape, names)) or "$^")
    for table, query in LEDGER.items():
        cursor = database.execute(f"SELECT {query}")
        columns = [about[0] for about in cursor.description]
        rows = [[(name, value) for name, value in zip(columns, row, strict=True) if value] for row in cursor]
        lines = [" ".join([table, *(_fact(*pair) for pair in row)]) for row in rows]
        told = [own.sub(lambda found: names[found[0]], line) for line in lines]
        # What is found out in one pass has the order of random names.
        yield from sorted(told, key=lambda line: (_time(line), line)) if table in UNORDERED else told


def _time(line: str) -> float:
    return float(line.partition("time=")[2].partition(" ")[0] or 0)


def _fact(column: str, value: Any) -> str:
    if column.endswith("_s"):
        return f"{column[:-2]}={value - START_S:.6g}"
    if column == "data":
        return json.dumps(_rounded(json.loads(value)), ensure_ascii=False, separators=(",", ":"))
    plain = column.endswith("_id") or column in ("state", "phase", "kind", "day", "zone", "market", "policy")
    return str(value) if plain or "||" in column else f"{column}={_rounded(value)}"


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return value - START_S if value > START_S else float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, list) else value
