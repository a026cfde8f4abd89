"""A month of the live loop in virtual time, 5,000 jobs: does anything grow, or become slower?

Passes of the last fifth are compared with those of the second one (the first compiles). The books
of every job are kept for ever, so rows are compared per job that was submitted.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
from sqlalchemy import create_engine, inspect, text

from benchmarks.loop import offer, scheduler_of
from benchmarks.measurement import Measurement, at_most, run_alone
from benchmarks.simulated import SimulatedCloud, SimulatedOffer
from spotweave.deploy.model.clock import VirtualClock
from spotweave.deploy.model.jobs import Flower, FlowerClient, JobSpec, JobState, SparkBatch, SparkStreaming
from spotweave.deploy.scheduler.settings import SchedulerSettings
from spotweave.deploy.store.jobs import Job
from spotweave.deploy.store.store import Store

DAYS = 30.0
JOBS = 5_000
OFFERS = 8
PERIOD_S = 60.0
SLOWER = 1.2
GROWTH_MIB = 32.0
_PARTS = 5
_DAY_S = 86_400.0
_LAST_S = 5 * 3600.0


@dataclass(frozen=True)
class Part:
    """A fifth of the time."""

    pass_s: float  # median of a pass, CPU seconds
    memory_mib: float  # of the process at its end
    rows: float  # that were added for each job that was submitted


def live(folder: Path, days: float, jobs: int) -> list[Part]:
    """Let a deployment work; spot capacity comes and goes, and jobs come at random.

    Args:
        folder: for its store.
        days: of virtual time.
        jobs: that are submitted, evenly spread; none in the last hours, so that all may end.
    """
    rng, clock = random.Random(7), VirtualClock()
    cloud = SimulatedCloud(clock, [_coming_and_going(k) for k in range(OFFERS)])
    url = f"sqlite:///{folder}/store.db"
    with Store.open(url, clock.now(), durable=False) as store:
        settings = SchedulerSettings(period_s=PERIOD_S, ask_again_s=PERIOD_S, budget_usd=1e6)
        scheduler = scheduler_of(store, cloud, OFFERS, settings)
        passes, last = round(days * _DAY_S / PERIOD_S), round(_LAST_S / PERIOD_S)
        parts: list[Part] = []
        submitted, rows, took_s = 0, 0, []
        for done in range(1, passes + 1):
            while submitted < min(jobs, jobs * done / (passes - last)):
                _submit(store, clock.now(), submitted, rng)
                submitted += 1
            began_s = time.process_time()
            scheduler.step()
            took_s.append(time.process_time() - began_s)
            clock.sleep(PERIOD_S)
            # The simulated world remembers all that ever was; the scheduler must not.
            _forget(cloud)
            if done * _PARTS // passes > len(parts):
                before, rows = rows, _rows(url)
                memory_mib = psutil.Process().memory_info().rss / 2**20
                parts.append(Part(statistics.median(took_s), memory_mib, (rows - before) / (jobs / _PARTS)))
                took_s = []
        ended = store.jobs.counts()
        if ended[JobState.SUCCEEDED] < 0.9 * jobs:
            raise ValueError(f"of {jobs} jobs {ended} ended: expected nearly all to succeed")
    return parts


def _coming_and_going(k: int) -> SimulatedOffer:
    made = replace(offer(k), quota=20)
    up_s, down_s = 14_400.0 + 977.0 * k, 1_200.0 + 131.0 * k
    if made.market != "spot":
        return SimulatedOffer(made)
    return SimulatedOffer(made, available=lambda now_s: (now_s + 3_000.0 * k) % (up_s + down_s) < up_s)


def _submit(store: Store, now_s: float, number: int, rng: random.Random) -> None:
    work: SparkBatch | SparkStreaming | Flower
    if number % 10 == 0:
        clients = tuple(FlowerClient(name=f"c{k}") for k in range(3))
        work = Flower(app="app", rounds=5, clients=clients, epoch_s=300.0)
    elif number % 10 == 1:
        work = SparkStreaming(
            script="s.py", period_s=120.0, batch_deadline_s=120.0, batches=15, standard_s=60.0
        )
    else:
        work_s = rng.uniform(600.0, 3_600.0)
        work = SparkBatch(script="b.py", standard_s=work_s, deadline_s=4 * work_s + 1_200.0)
    spec = JobSpec(name=f"job-{number}", work=work, budget_usd=50.0 if number % 5 == 0 else None)
    with store.transaction():
        store.jobs.add(Job(f"job-{number}", spec, JobState.PENDING, now_s, "/nowhere", "me"))


def _forget(cloud: SimulatedCloud) -> None:
    over = [name for name, work in cloud.works.items() if work.assignment.key.job_id not in cloud.remembered]
    for name in over:
        del cloud.works[name]


def _rows(url: str) -> int:
    engine = create_engine(url)
    with engine.connect() as connection:
        counts = [text(f"SELECT count(*) FROM {name}") for name in inspect(connection).get_table_names()]
        return sum(int(connection.execute(count).scalar_one()) for count in counts)


def measure(*, smallest: bool = False) -> Iterator[Measurement]:
    """In a process of its own, whose memory is that of the scheduler and its small world alone."""
    days, jobs = (0.4, 5) if smallest else (DAYS, JOBS)
    parts = [Part(**part) for part in run_alone("benchmarks.month", days, jobs)]
    first, last = parts[1], parts[-1]
    note = f"{jobs} jobs in {days:g} days, a pass each {PERIOD_S:g} s; {1000 * last.pass_s:.1f} ms in the end"
    yield at_most("a pass, last fifth to second", last.pass_s / first.pass_s, "×", SLOWER, note)
    growth_mib = max(0.1, last.memory_mib - first.memory_mib)
    yield at_most("memory, growth since then", growth_mib, "MiB", GROWTH_MIB, note)
    yield at_most("rows per job, last to second", last.rows / first.rows, "×", SLOWER, note)


def alone(days: float, jobs: int) -> list[dict[str, float]]:
    """The parts, in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="spotweave-bench-") as folder:
        return [vars(part) for part in live(Path(folder), days, jobs)]
