"""A simulated afternoon of a small deployment: jobs of every kind, interruptions, a notice, a wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from benchmarks.simulated import SimulatedOffer
from spotweave.deploy.dashboard.routes import router
from spotweave.deploy.model.instances import Offer
from spotweave.deploy.model.jobs import (
    Flower,
    FlowerClient,
    JobSpec,
    Places,
    Resources,
    SparkBatch,
    SparkStreaming,
)
from spotweave.deploy.runners.base import Printed
from spotweave.deploy.server.app import create_app
from spotweave.deploy.server.context import ServerSettings
from spotweave.deploy.server.deciding import Deciders
from spotweave.deploy.store.intents import Mode
from spotweave.deploy.store.jobs import Job
from tests.deploy.scheduler.worlds import World, batch, offer
from tests.deploy.store.cases import add_job

BEGIN_S = 1_772_366_400.0
"""2026-03-01 12:00 UTC."""
LENGTH_S = 2700.0
EVIL = "<img src=x onerror=\"document.title='broken into'\"><b>bold</b>"
"""What an attacker would like to be HTML."""


class Shown:
    """What the service sees of a world's scheduler."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.behind_s = 0.0

    def offers(self) -> Sequence[Offer]:
        return self.world.scheduler.observer.offers

    def last_pass_s(self) -> float | None:
        return self.world.clock.now() - self.behind_s

    def check(self, spec: JobSpec, folder: str) -> None:
        """Everything runs here."""

    def log(self, job: Job, name: str, attempt: int, offset: int, most_bytes: int) -> Printed:
        text = f"{job.job_id}: attempt {attempt} of {name}\n{EVIL} \x1b[2J\n".encode()
        return Printed(text, len(text))


def offers() -> list[SimulatedOffer]:
    def made(name: str, market: Any, price: float, quota: int, **changes: Any) -> Offer:
        region, kind = name.split("/")[0], name.split("/")[1]
        facts = {"region": region.rstrip("ab"), "zone": region, "instance_type": kind, "launch_s": 40.0}
        facts |= {"price_usd_hour": price, "on_demand_usd_hour": 0.96, "quota": quota}
        return offer(name, market, **{"provider": "simulated", **facts, **changes})

    return [
        SimulatedOffer(
            made("east-1a/m5/spot", "spot", 0.29, 4, up_ratio=0.81, notice_s=120.0, mean_up_s=5400.0),
            available=lambda now_s: not any(a <= now_s - BEGIN_S < b for a, b in ((620, 1500), (2350, 2600))),
            price_usd_hour=lambda now_s: 0.27 + 0.01 * ((now_s - BEGIN_S) // 300 % 4),
        ),
        SimulatedOffer(
            made("east-1b/m5/spot", "spot", 0.33, 3, up_ratio=0.93, notice_s=120.0),
            available=lambda now_s: not 1500 <= now_s - BEGIN_S < 1900,
        ),
        SimulatedOffer(made("east-1/m5/on-demand", "on_demand", 0.96, 6, zone="")),
        SimulatedOffer(made("rack/m5/owned", "owned", 0.12, 2, on_demand_usd_hour=0.12)),
        SimulatedOffer(
            made("west-1a/g5/spot", "spot", 0.44, 2, gpu="A10G", gpus=1, on_demand_usd_hour=1.21),
            available=lambda _: False,
        ),
    ]


def submit(world: World, spec: JobSpec, number: int, submitter: str) -> None:
    now_s, job_id = world.clock.now(), f"{spec.name}-{number:04x}"
    add_job(world.store, job_id, spec, submitted_s=now_s, workdir=str(world.folder), submitter=submitter)
    with world.store.transaction():
        data = {"name": spec.name, "kind": spec.work.kind, "submitter": submitter}
        world.store.events.add("job.submitted", now_s, data, job_id=job_id)


def told(folder: Path, length_s: float = LENGTH_S) -> World:
    """A world after its afternoon; some jobs have ended, some run, one waits, one instance has notice."""
    folder.mkdir(parents=True, exist_ok=True)
    world = World(folder, offers(), policy="multicloud")
    world.clock.sleep(BEGIN_S - world.clock.now())
    cloud_only = Places(markets=("spot", "on_demand"))
    clients = tuple(FlowerClient(name=name) for name in ("berlin", "lyon", "porto"))
    tuning = SparkBatch(script="tune.py", standard_s=600.0, deadline_s=4000.0)
    gpu = Resources(vcpus=4, memory_gib=8.0, gpu=("A10G",))
    plan: list[tuple[float, JobSpec, str]] = [
        (0, batch("nightly-report", 900, 2, deadline_s=2400.0, places=cloud_only), "ana"),
        (60, batch("wordcount", 300, deadline_s=900.0), "ana"),
        (240, JobSpec(name="digits", work=Flower(app="app", rounds=20, clients=clients, epoch_s=120.0),
                      places=Places(markets=("spot",))), "ben"),
        (300, batch("wrong-column", 200, places=Places(markets=("owned",))), "ben"),
        (600, JobSpec(name="clicks", work=SparkStreaming(script="s.py", period_s=30.0, batch_deadline_s=45.0,
                                                        batches=80, standard_s=12.0)), "ana"),
        (900, batch("features", 1200, deadline_s=3300.0, places=Places(markets=("spot",))), "ana"),
        (1700, JobSpec(name="gpu-tuning", work=tuning, resources=gpu), "ben"),
        (1900, batch("backfill", 500, 2, deadline_s=1300.0, places=cloud_only), "ana"),
        (2000, batch("payroll", 1500, 2, deadline_s=2400.0, places=Places(markets=("on_demand",))), "eve"),
    ]  # fmt: skip
    world.cloud.fails["wrong-column"] = 99
    number = 0x3A10
    for at_s, spec, submitter in plan:
        if at_s <= length_s:
            world.go(max(0.0, BEGIN_S + at_s - world.clock.now()))
            number += 0x11
            submit(world, spec, number, submitter)
    world.go(BEGIN_S + length_s - world.clock.now())
    warn(world)
    world.scheduler.step()
    return world


def warn(world: World) -> None:
    """A provider says that it will end an instance of the federated job in two minutes."""
    for machine in world.cloud.machines.values():
        if machine.report.ended_s is None and machine.report.tags["job_id"].startswith("digits"):
            machine.report = replace(machine.report, notice_s=world.clock.now() + 120.0)
            return


def application(
    world: World, shown: Shown, deciders: Deciders, tokens: bool = False, mode: Mode | None = Mode.ACT
) -> FastAPI:
    return create_app(
        ServerSettings(jobs=world.folder / "jobs", tokens=tokens),
        deciders,
        world.store,
        shown,
        world.clock,
        more_routes=[partial(router, store=world.store, scheduler=shown, mode=mode)],
    )
