"""The live loop with 10,000 queued jobs and 1,000 instances: seconds of a pass, memory of the scheduler.

The simulated cloud runs in the same process and is counted with it. The store is a real one on this disk,
synced at each commit; the policies are the released `multicloud` and the rule `round_cost`.
"""

from __future__ import annotations

import gc
import itertools
import random
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measurement import Measurement, at_most, run_alone
from benchmarks.simulated import (
    SimulatedCloud,
    SimulatedNodes,
    SimulatedOffer,
    SimulatedProvider,
    SimulatedRunner,
)
from spotweave.deploy.model.clock import VirtualClock
from spotweave.deploy.model.instances import Offer
from spotweave.deploy.model.jobs import Flower, FlowerClient, JobSpec, JobState, SparkBatch, SparkStreaming
from spotweave.deploy.model.tasks import Phase
from spotweave.deploy.scheduler.chooser import Policies
from spotweave.deploy.scheduler.decider import Decider, load_market_policy
from spotweave.deploy.scheduler.loop import Scheduler
from spotweave.deploy.scheduler.placing import place
from spotweave.deploy.scheduler.settings import SchedulerSettings
from spotweave.deploy.store.jobs import Job
from spotweave.deploy.store.store import Store

QUEUED = 10_000
INSTANCES = 1_000
OFFERS = 20
PASSES = 30
PASS_S = 0.4
LONGEST_S = 0.8
MEMORY_MIB = 500.0


def measure(*, smallest: bool = False) -> Iterator[Measurement]:
    """In a process of its own, whose memory is that of the scheduler alone."""
    queued, instances, passes = (20, 5, 2) if smallest else (QUEUED, INSTANCES, PASSES)
    found = run_alone("benchmarks.loop", queued, instances, passes)
    note = f"{found['queued']} queued jobs, {found['instances']} instances, {passes} passes"
    for name, what, bar_s in (("mean_s", "mean", PASS_S), ("longest_s", "longest", LONGEST_S)):
        yield at_most(f"pass of the loop, {what}", found[name], "s", bar_s, note)
    yield at_most("pass of the loop, CPU", found["cpu_s"], "s", None, f"mean; {note}")
    yield at_most("memory of the scheduler", found["peak_mib"], "MiB", MEMORY_MIB, note)


def filled(folder: Path, queued: int, instances: int) -> Scheduler:
    """A scheduler that was just started: its instances are at work while the jobs that are queued wait."""
    clock = VirtualClock()
    cloud = SimulatedCloud(clock, [SimulatedOffer(offer(k)) for k in range(OFFERS)])
    store = Store.open(f"sqlite:///{folder}/store.db", clock.now())
    rng, numbers = random.Random(7), itertools.count()
    _submit(store, clock.now(), str(folder), instances, numbers, rng)
    # As if a policy had decided so: no policy would take all of the dearest offers.
    with store.transaction():
        for k, task in enumerate(store.tasks.waiting()[:instances]):
            place(store, task.key, 1, cloud.offers[k % OFFERS].offer, clock.now(), None)
    before = scheduler_of(store, cloud)
    before.actions.act(clock.now())
    clock.sleep(90.0)
    for look in before.observer.looks:
        look(clock.now())
    before.actions.act(clock.now())
    running = sum(task.phase is Phase.STARTING for task in store.tasks.placed())
    if running != instances or store.intents.pending():
        raise ValueError(f"{running} tasks were started: expected {instances}")
    _submit(store, clock.now(), str(folder), queued - store.jobs.counts()[JobState.PENDING], numbers, rng)
    return scheduler_of(store, cloud)


def scheduler_of(
    store: Store, cloud: SimulatedCloud, offers: int = OFFERS, settings: SchedulerSettings | None = None
) -> Scheduler:
    """A scheduler with the released policy in front of a simulated cloud."""
    market = load_market_policy("multicloud", offers)
    policies = Policies(Decider(market.policy, components=market.components))
    return Scheduler(
        store,
        {"simulated": SimulatedProvider(cloud)},
        [SimulatedRunner(cloud)],
        policies,
        cloud.clock,
        SimulatedNodes(cloud),
        settings,
    )


def _submit(
    store: Store, now_s: float, folder: str, jobs: int, numbers: Iterator[int], rng: random.Random
) -> None:
    with store.transaction():
        for number in itertools.islice(numbers, max(0, jobs)):
            spec = _spec(number, rng)
            store.jobs.add(Job(f"job-{number}", spec, JobState.PENDING, now_s, folder, "me"))


def offer(k: int) -> Offer:
    """One of many, alike but for place, speed and price."""
    sure = k % 4 == 0
    return Offer(
        offer_id=f"offer-{k}",
        provider="simulated",
        region=f"region-{k % 3}",
        zone=f"zone-{k % 5}",
        instance_type="large",
        market="on_demand" if sure else "spot",
        vcpus=8,
        memory_gib=32.0,
        gpu=None,
        speed=1.0 + 0.05 * (k % 5),
        price_usd_hour=1.0 if sure else 0.3 + 0.02 * k,
        on_demand_usd_hour=1.0,
        available=True,
        quota=INSTANCES // OFFERS,
        mean_up_s=7200.0,
        launch_s=60.0,
    )


def _spec(number: int, rng: random.Random) -> JobSpec:
    """Draw a job: of ten, eight are batches (half with a deadline), one streams, one is federated."""
    work: SparkBatch | SparkStreaming | Flower
    if number % 10 == 0:
        clients = tuple(FlowerClient(name=f"c{k}") for k in range(3))
        work = Flower(app="app", rounds=100, clients=clients, epoch_s=300.0)
    elif number % 10 == 1:
        work = SparkStreaming(script="s.py", period_s=60.0, batch_deadline_s=60.0, standard_s=20.0)
    else:
        work_s = rng.uniform(20_000.0, 80_000.0)
        deadline_s = 20 * work_s if number % 2 else None
        work = SparkBatch(script="b.py", args=("--n", str(number)), standard_s=work_s, deadline_s=deadline_s)
    return JobSpec(name=f"job-{number}", work=work, budget_usd=500.0 if number % 5 == 0 else None)


def alone(queued: int, instances: int, passes: int) -> dict[str, float]:
    """What is measured, in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="spotweave-bench-") as folder:
        scheduler = filled(Path(folder), queued, instances)
        gc.freeze()  # as the service does
        store, walls = scheduler.store, []
        cpu_s = time.process_time()
        for _ in range(passes):
            began_s = time.perf_counter()
            scheduler.step()
            walls.append(time.perf_counter() - began_s)
            scheduler.clock.sleep(scheduler.settings.period_s)
        cpu_s = time.process_time() - cpu_s
        found = {
            "queued": store.jobs.counts()[JobState.PENDING],
            "instances": len(store.instances.live()),
            "mean_s": sum(walls) / passes,
            "longest_s": max(walls),
            "cpu_s": cpu_s / passes,
            # Linux gives KiB.
            "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }
        store.close()
    return found
