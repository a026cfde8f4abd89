"""Jobs that ask for a GPU never run without one: drivers that are missing, wrong models, GPUs that are lost.

Clouds and jobs are simulated; what nodes say comes from the real NVML code over a driver that the test plays,
by way of the real heartbeats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.simulated import CHECKPOINT_S, SimulatedNodes
from spotweave.deploy.heartbeats import Heartbeats
from spotweave.deploy.model.jobs import Bag, BagTask, JobSpec, Resources, SparkBatch, SparkStreaming
from spotweave.deploy.node.gpus import Nvml
from spotweave.deploy.store.instances import Instance
from spotweave.deploy.store.store import Store
from tests.deploy.fake_nvml import FakeGpu, FakeNvml, NVMLError
from tests.deploy.scheduler.worlds import SETTINGS, World, rentable
from tests.deploy.test_heartbeats import Says

BAD, GOOD = "cheap", "sure"
T4: dict[str, Any] = {"gpu": "T4", "gpus": 1, "gpu_memory_gib": 16.0}
ASKS = Resources(gpu=("T4",), gpu_memory_gib=16.0)


class GpuWorld(World):
    """Nodes of the cheaper offer have a driver that the test plays, those of the other a good one."""

    def __init__(self, folder: Path) -> None:
        self.bad = FakeNvml()
        plain = rentable("plain", price_usd_hour=0.1)
        super().__init__(folder, [plain, rentable(BAD, **T4), rentable(GOOD, "on_demand", **T4)])

    def anew(self, store: Store) -> None:
        super().anew(store)
        self.heartbeats = Heartbeats(store, self.clock, self._ask)
        for part in (self.scheduler.observer, self.scheduler.ending):
            part._nodes = self.heartbeats

    def _ask(self, instance: Instance) -> Says | None:
        if not SimulatedNodes(self.cloud).answers(instance):
            return None
        fake = self.bad if instance.offer.offer_id == BAD else FakeNvml()
        seen = Nvml(lambda: fake).look()
        return Says(gpus=seen.gpus, no_gpus=seen.problem)

    def go(self, seconds: float) -> None:
        end_s = self.clock.now() + seconds
        while self.clock.now() < end_s:
            self.heartbeats.listen()
            self.scheduler.step()
            self.clock.sleep(self.settings.period_s)


@pytest.fixture
def gpus(tmp_path: Path) -> Iterator[GpuWorld]:
    made = GpuWorld(tmp_path / "world")
    yield made
    made.heartbeats.close()
    made.store.close()


WORKS: list[Any] = [
    SparkBatch(script="x.py", standard_s=300.0),
    SparkStreaming(script="x.py", period_s=60.0, batch_deadline_s=60.0, batches=5),
    Bag(tasks=(BagTask(name="one", command=("x",), minutes=5.0),)),
]


def spec(work: Any, resources: Resources = ASKS) -> JobSpec:
    return JobSpec(name="job", work=work, resources=resources)


def no_driver(nvml: FakeNvml) -> None:
    nvml.missing = True


def another_model(nvml: FakeNvml) -> None:
    nvml.gpus = [FakeGpu("NVIDIA L4", 22.5)]


def too_small(nvml: FakeNvml) -> None:
    nvml.gpus[0].memory_gib = 7.5


def lost(nvml: FakeNvml) -> None:
    nvml.gpus[0].fault = NVMLError("GPU is lost")


FAULTS = [
    (no_driver, "it has no GPU (no working NVIDIA driver: NVML Shared Library Not Found)"),
    (another_model, "it has 1 L4 of 22 GiB"),
    (too_small, "it has 1 T4 of 8 GiB"),
    (lost, "it has no GPU (GPU 0: GPU is lost)"),
]


def goes_elsewhere(world: GpuWorld, job: str, told: str) -> None:
    """The offer is refused with these words, and left alone; the job ends well elsewhere, in two passes."""
    world.ends_well(job)
    (refused,) = world.events("instance.refused")
    expected = {"offer": BAD, "why": "node", "error": f"its offer promises 1 T4 of 16 GiB, {told}"}
    assert refused.data == expected
    assert world.offers_taken() == [BAD, GOOD]
    launched_s = world.events("instance.launched")[-1].time_s
    assert launched_s - refused.time_s <= 2 * SETTINGS.period_s
    assert set(world.cloud.completions.values()) == {1}
    assert world.store.jobs.get(job).user_failures == 0
    # Also a job that is decided about just then leaves that offer alone.
    assert [one.data["lost"] for one in world.events("task.requeued")] == [True]


@pytest.mark.parametrize(("fault", "told"), FAULTS)
def test_a_node_that_is_not_what_its_offer_promised_is_refused(
    gpus: GpuWorld, fault: Callable[[FakeNvml], None], told: str
) -> None:
    fault(gpus.bad)
    job = gpus.submit(spec(WORKS[0]))
    goes_elsewhere(gpus, job, told)
    # Nothing ever began there.
    (started,) = gpus.events("task.started")
    assert started.time_s > gpus.events("instance.refused")[0].time_s


@pytest.mark.parametrize("work", WORKS)
def test_what_loses_its_gpu_in_mid_run_goes_on_elsewhere_from_its_checkpoint(
    gpus: GpuWorld, work: Any
) -> None:
    job = gpus.submit(spec(work))
    gpus.go(200.0)
    assert len(gpus.events("task.running")) == 1
    lost(gpus.bad)
    gpus.go(2 * SETTINGS.period_s)
    assert gpus.events("instance.refused"), "not seen within two passes"
    goes_elsewhere(gpus, job, FAULTS[3][1])
    # Two starts, the work, and at most what was done since the latest checkpoint.
    assert gpus.took_s(job) <= 300.0 + CHECKPOINT_S + 2 * 30.0 + 10 * SETTINGS.period_s


def test_the_offer_is_left_alone_by_others_too(gpus: GpuWorld) -> None:
    no_driver(gpus.bad)
    gpus.submit(spec(WORKS[0]))
    gpus.go(50.0)
    assert gpus.events("instance.refused")
    gpus.submit(JobSpec(name="other", work=WORKS[0], resources=ASKS))
    gpus.go(10.0)
    assert gpus.offers_taken() == [BAD, GOOD, GOOD]


def test_a_restarted_scheduler_refuses_it_too(gpus: GpuWorld) -> None:
    job = gpus.submit(spec(WORKS[0]))
    gpus.go(100.0)
    gpus.heartbeats.close()
    gpus.restart()
    lost(gpus.bad)
    gpus.go(2 * SETTINGS.period_s)
    goes_elsewhere(gpus, job, FAULTS[3][1])


def test_a_job_that_asks_for_none_is_left_where_it_is(gpus: GpuWorld) -> None:
    no_driver(gpus.bad)
    gpus.cloud.offers = gpus.cloud.offers[1:]
    job = gpus.submit(spec(WORKS[0], Resources()))
    gpus.ends_well(job)
    assert gpus.events("instance.refused") == []
    assert gpus.offers_taken() == [BAD]
