"""The demo: real Spark and Flower jobs on this machine, interrupted as recorded spot instances were.

`make demo`, or: spotweave demo. It starts a deployment of its own, submits the examples over HTTP,
shows what happens until all jobs have ended, and says what that took and cost. On a machine that is slower
than two idle cores, clock and deadlines are stretched; --quick runs two Spark jobs in about two minutes.
With --config configs/deploy/demo_aws.yaml (`make demo-aws`) it does so through boto3 and an emulated AWS,
whose instances are processes of this machine.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from spotweave.deploy import logs
from spotweave.deploy.cli.client import Client
from spotweave.deploy.cli.queries import event_line
from spotweave.deploy.cli.tables import console as terminal
from spotweave.deploy.cli.tables import share, span, table, usd
from spotweave.deploy.config import DeploymentConfig
from spotweave.deploy.jobfile import read_files, read_job
from spotweave.deploy.model.jobs import JobSpec, JobState
from spotweave.deploy.providers.config import ProviderConfig
from spotweave.deploy.providers.local.config import LocalConfig
from spotweave.deploy.runners.spark.settings import find_spark
from spotweave.deploy.scheduler.retries import end_job
from spotweave.deploy.service import Service
from spotweave.deploy.serving import Serving
from spotweave.deploy.store.events import Event
from spotweave.deploy.yamlfile import ConfigError
from spotweave.mistakes import EXIT_FAILED, EXIT_INTERRUPTED, say

ROOT = Path(__file__).resolve().parents[1]
CONFIG = ROOT / "configs" / "deploy" / "demo.yaml"
JOBS = tuple(
    ROOT / "examples" / name
    for name in (
        "wordcount.yaml",
        "pi.yaml",
        "streaming.yaml",
        "federated_mnist.yaml",
        "bag.yaml",
        "wordcount_steps.yaml",
    )
)
QUICK_JOBS = JOBS[:2]
WITHIN_S = 600.0  # seconds after which a demo gives up on a machine of the reference's speed
LOG = "demo.log"  # also tells a demo's state folder, which the next demo deletes, from anybody else's
MOST_SLOW = 6.0
"""How many times slower than the reference a machine may be; on a slower one the demo refuses to start."""
_REFERENCE_S = 0.6  # what `slowness` measures on two idle cores of a cloud machine of 2024
_FASTER = 2.0
_POLL_S = 0.5
_EVENTS_SHOWN = 12
_ENDING_S = 90.0
_LINE_S = 10.0


def slowness() -> float:
    """Measure how many times as long as on two idle cores work takes here now, what else runs included."""
    text = bytes(random.Random(0).choices(b"spotweave ", k=1 << 16))

    def work(_number: int) -> None:
        for _ in range(120):
            zlib.compress(text, 9)

    began_s = time.perf_counter()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, range(2)))
    return (time.perf_counter() - began_s) / _REFERENCE_S


def paced(spec: JobSpec, pace: float) -> JobSpec:
    """The same job, whose expected times and deadlines are `pace` times as long."""
    names = ("standard_s", "deadline_s", "period_s", "batch_deadline_s", "epoch_s")
    given = {name: getattr(spec.work, name, None) for name in names}
    changes: dict[str, Any] = {name: value * pace for name, value in given.items() if value is not None}
    for parts in ("tasks", "steps"):
        if own := getattr(spec.work, parts, ()):
            changes[parts] = tuple(one.model_copy(update={"minutes": one.minutes * pace}) for one in own)
    return spec.model_copy(update={"work": spec.work.model_copy(update=changes)})


class DemoConfig(DeploymentConfig):
    """A deployment whose recorded markets pass more slowly on a slow machine."""

    pace: float = 1.0  # how many times as slowly

    def rented(self) -> dict[str, ProviderConfig]:
        """Its providers by name (see `DeploymentConfig.rented`), local markets and notices at this pace."""
        return {name: self._paced(one) for name, one in super().rented().items()}

    def _paced(self, provider: ProviderConfig) -> ProviderConfig:
        if not isinstance(provider, LocalConfig):
            return provider
        longer = max(1.0, self.pace)
        offers = tuple(
            one.model_copy(
                update={"notice_s": one.notice_s * longer, "rebalance_s": one.rebalance_s * longer}
            )
            for one in provider.offers
        )
        return provider.model_copy(update={"offers": offers, "time_factor": provider.time_factor / self.pace})


class Demo:
    """A served deployment, the jobs that were sent to it, and what has been seen of them."""

    def __init__(self, serving: Serving) -> None:
        self.serving = serving
        self.store = serving.service.store
        self.began_s = time.time()
        self.jobs: list[str] = []
        self._seen = 0
        self._events: list[Event] = []

    def submit(self, jobs: Mapping[Path, JobSpec]) -> None:
        """Send jobs, by the files that they are from. Raises ValueError (one line)."""
        with Client(self.serving.url) as client:
            for file, spec in jobs.items():
                sent = client.submit(spec.model_dump(mode="json"), read_files(spec, file.parent))
                self.jobs.append(sent["job_id"])

    def over(self) -> bool:
        """Whether all jobs have ended and everything is given back."""
        return self.serving.service.idle()

    def new_events(self) -> list[Event]:
        """Events since the last call."""
        found = list(self.store.events.after(self._seen, 1000))
        if found:
            self._seen = found[-1].sequence
            self._events = (self._events + found)[-_EVENTS_SHOWN:]
        return found

    def picture(self) -> Group:
        """Jobs and the latest events, for a terminal."""
        passed = Text(f"{span(time.time() - self.began_s)}   dashboard: {self.serving.url}", style="bold")
        lines = [Text(line(event), no_wrap=True, overflow="ellipsis") for event in self._events]
        return Group(passed, table(*self._jobs_now(), wrap=True), Text(), *lines)

    def waits_for(self) -> str:
        """One line: what has not ended yet, and how far it is."""
        rows = [row for row in self._jobs_now()[1] if self.store.jobs.get(row[0]).ended_s is None]
        ended = "the instances to end" if not rows else ""
        waits = ", ".join(f"{job} ({state}, {done}, {where})" for job, state, done, _, where in rows)
        return f"{span(time.time() - self.began_s)}: waiting for {waits or ended}"

    def _jobs_now(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        rows: list[tuple[str, ...]] = []
        for job_id in self.jobs:
            job = self.store.jobs.get(job_id)
            tasks = self.store.tasks.of_job(job_id)
            held = [one for one in self.store.instances.of_job(job_id) if one.ended_s is None]
            offers = sorted({one.offer.zone or one.offer.market for one in held})
            progress = sum(task.progress for task in tasks) / len(tasks)
            rows.append(
                (
                    job_id,
                    str(job.state),
                    f"{100 * (1.0 if job.state is JobState.SUCCEEDED else progress):.0f} %",
                    str(self._interrupted(job_id)),
                    f"{len(held)} in {', '.join(offers)}" if held else "-",
                )
            )
        return ("JOB", "STATE", "DONE>", "CUT OFF>", "INSTANCES*"), rows

    def _interrupted(self, job_id: str) -> int:
        """Instances that their provider took, or that were left because it said that it would."""
        instances = self.store.instances.of_job(job_id)
        return sum(one.by_provider or one.notice_s is not None for one in instances)

    def cancel(self) -> None:
        """End what still runs."""
        with Client(self.serving.url) as client:
            for job in self.store.jobs.live():
                client.cancel(job.job_id)

    def report(self, console: Console) -> bool:
        """Print what became of the jobs. Returns whether all succeeded."""
        now_s = time.time()
        rows, cost, on_demand, interrupted, good = [], 0.0, 0.0, 0, True
        for job_id in self.jobs:
            job = self.store.jobs.get(job_id)
            bill = self.store.costs.of_job(job_id, now_s)
            taken = self._interrupted(job_id)
            good = good and job.state is JobState.SUCCEEDED
            cost, on_demand, interrupted = (
                cost + float(bill.usd),
                on_demand + float(bill.on_demand_usd),
                interrupted + taken,
            )
            rows.append(
                (
                    job_id,
                    str(job.state),
                    span((job.ended_s or now_s) - job.submitted_s),
                    self._deadline(job_id),
                    f"{taken} of {len(self.store.instances.of_job(job_id))}",
                    usd(float(bill.usd)),
                    usd(float(bill.on_demand_usd)),
                    share(float(bill.usd), float(bill.on_demand_usd)),
                )
            )
        headings = ("JOB", "STATE", "TOOK>", "DEADLINE", "CUT OFF>", "USD>", "ON DEMAND>", "SAVED>")
        console.print()
        console.print(table(headings, rows, wrap=console.is_terminal))
        for job_id in self.jobs:
            if reason := self.store.jobs.get(job_id).reason:
                console.print(f"{job_id}: {reason}", markup=False)
        console.print(
            f"{span(now_s - self.began_s)}; {interrupted} instances were interrupted; {usd(cost)} USD, "
            f"{share(cost, on_demand)} less than {usd(on_demand)} USD for the same instances on demand.",
            highlight=False,
        )
        return good

    def _deadline(self, job_id: str) -> str:
        """Whether it was kept: of the job, or how many of a stream's batches missed theirs."""
        job = self.store.jobs.get(job_id)
        work: Any = job.spec.work
        if job.spec.work.kind == "spark-streaming":
            task = self.store.tasks.of_job(job_id)[0]
            return f"{task.misses} of {task.executions_done} batches late"
        if work.deadline_s is None:
            return "-"
        if job.ended_s is None or job.state is not JobState.SUCCEEDED:
            return "missed"
        left_s = job.submitted_s + work.deadline_s - job.ended_s
        return f"met, {span(left_s)} left" if left_s >= 0 else f"missed by {span(-left_s)}"


def line(event: Event) -> str:
    """One event for people."""
    return event_line(vars(event))


def clear(config: DeploymentConfig) -> None:
    """End and forget what an earlier demo, one that was killed perhaps, left behind."""
    if not config.state_folder.exists():
        return
    if not (config.state_folder / LOG).exists():
        raise ConfigError(
            f"{config.state_folder} is not a demo's, and would be deleted: give a configuration with another "
            "state"
        )
    with closing(Service(config)) as service:
        now_s = service.clock.now()
        for job in service.store.jobs.live():
            end_job(service.store, job.job_id, JobState.CANCELLED, now_s, "a new demo begins")
        end_s = time.monotonic() + _ENDING_S
        while not service.idle():
            if time.monotonic() > end_s:
                raise ConfigError(
                    f"what an earlier demo left in {config.state_folder} does not end: see its processes"
                )
            service.scheduler.step()
            time.sleep(_POLL_S)
        service.shutdown()
    shutil.rmtree(config.state_folder)


@contextmanager
def emulated(config: DeploymentConfig) -> Iterator[dict[str, Callable[[], float]]]:
    """The clouds that the deployment names as its `emulators`, and no others, until the end.

    Yields:
        What tells each one's own bill in USD, by its name.

    Raises:
        ValueError: one line, if one of them cannot be used.
    """
    bills: dict[str, Callable[[], float]] = {}
    with ExitStack() as opened:
        for cloud, file in config.emulators.items():
            from spotweave.deploy.emulator.server import Server, load

            emulator = load(cloud, config.folder / file)
            server = Server(emulator)
            for name, value in emulator.environment(server.url).items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
            server.start()
            opened.callback(server.close)
            bills[cloud] = emulator.total_usd
        yield bills


def run(config: DeploymentConfig, jobs: Mapping[Path, JobSpec], within_s: float, console: Console) -> int:
    """Returns the exit code: 0 if all jobs succeeded in time."""
    for file, spec in jobs.items():
        read_files(spec, file.parent)
    find_spark()
    clear(config)
    config.state_folder.mkdir(mode=0o700, parents=True)
    with (config.state_folder / LOG).open("a", encoding="utf-8") as log:
        logs.configure("json", "info", log)
        with Serving(config) as serving:
            demo = Demo(serving)
            console.print(f"dashboard: {serving.url}   log: {log.name}", highlight=False)
            demo.submit(jobs)
            try:
                in_time = _watch(demo, console, within_s)
            finally:
                demo.cancel()
                _give_back(demo)
            return 0 if demo.report(console) and in_time else EXIT_FAILED


def _watch(demo: Demo, console: Console, within_s: float) -> bool:
    """Show what happens until all is over, or it takes too long."""
    end_s = time.monotonic() + within_s
    if not console.is_terminal:
        told_s = time.monotonic()
        while not demo.over() and time.monotonic() < end_s:
            for event in demo.new_events():
                console.print(line(event), markup=False, soft_wrap=True)
                told_s = time.monotonic()
            if time.monotonic() - told_s > _LINE_S:
                console.print(demo.waits_for(), markup=False, soft_wrap=True)
                told_s = time.monotonic()
            time.sleep(_POLL_S)
        return demo.over()
    with Live(demo.picture(), console=console, refresh_per_second=4, transient=True) as live:
        while not demo.over() and time.monotonic() < end_s:
            demo.new_events()
            live.update(demo.picture())
            time.sleep(_POLL_S)
    return demo.over()


def _give_back(demo: Demo) -> None:
    """Wait until nothing runs any more: the loop ends what no job needs."""
    end_s = time.monotonic() + _ENDING_S
    while not demo.over() and time.monotonic() < end_s:
        time.sleep(_POLL_S)


def main(file: Path, within_s: float | None, files: Sequence[Path], *, faster: bool) -> int:
    """Run a demo.

    Args:
        file: the deployment's; its state is deleted first.
        within_s: then it gives up; None: `WITHIN_S`, longer on a slow machine; a very slow one is refused.
        files: of the jobs.
        faster: the recorded markets pass twice as fast.

    Returns:
        The exit code.

    Raises:
        ValueError: one line.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        config, specs = DemoConfig.load(file), [read_job(file) for file in files]
        pace = _pace(within_s)
        config = config.model_copy(update={"pace": pace / _FASTER if faster else pace})
        jobs = {file: paced(spec, pace) for file, spec in zip(files, specs, strict=True)}
        console = terminal()
        if pace > 1.0:
            console.print(
                f"{pace:.1f} times as slow as two idle cores: clock and deadlines are stretched as much.",
                highlight=False,
            )
        with emulated(config) as bills:
            code = run(config, jobs, within_s or WITHIN_S * pace, console)
            for cloud, billed_usd in bills.items():
                console.print(f"The emulated {cloud} bills {usd(billed_usd())} USD for it.", highlight=False)
            return code
    except KeyboardInterrupt:
        say("interrupted: everything was given back")
        return EXIT_INTERRUPTED


def _pace(within_s: float | None) -> float:
    """How much longer all takes on this machine, at least 1. Raises ConfigError if it is too slow."""
    slow = slowness()
    if slow > MOST_SLOW and within_s is None:
        raise ConfigError(
            f"this machine is {slow:.0f} times as slow as two idle cores (load {os.getloadavg()[0]:.0f}), so "
            "the demo would miss its deadlines: end what else runs, or give --within SECONDS to try it"
        )
    # A little noise is no reason for other deadlines than those of the examples.
    return slow if slow > 1.25 else 1.0


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt
