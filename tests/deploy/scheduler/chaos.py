"""A world in which everything that can go wrong does, and what must hold of it nevertheless."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from benchmarks.simulated import SimulatedOffer, SimulatedProvider
from spotweave.deploy.billing import PriceSegment, Usage, bill, micro_usd_hour
from spotweave.deploy.model.instances import InstanceReport, LaunchRequest, Market
from spotweave.deploy.model.jobs import Flower, FlowerClient, JobSpec, JobState, SparkStreaming, TaskKey
from spotweave.deploy.model.tasks import Assignment, TaskReport
from spotweave.deploy.providers.base import CapacityError, ProviderError, QuotaError, ThrottledError
from spotweave.deploy.runners.base import RunnerError
from spotweave.deploy.scheduler.settings import SchedulerSettings
from spotweave.deploy.store.database import Lock
from spotweave.deploy.store.errors import StoreError
from spotweave.deploy.store.store import Store
from tests.deploy.bills import wrong_charges
from tests.deploy.scheduler.worlds import Restless, World, batch, rentable

PASS_S = 10.0
MOST_PASSES = 20_000
REOPEN = 10
"""After this many restarts the database is opened again; a store remembers nothing, so others do without."""
SETTINGS = SchedulerSettings(
    period_s=PASS_S,
    ask_again_s=PASS_S,
    cool_down_s=60.0,
    back_off_most_s=60.0,
    reconsider_s=30.0,
    vanished_after_s=300.0,
)
OFFERS = ("spot-a", "spot-b", "sure")
_IN_A_ROW = re.compile(r"(\d+) attempts in a row (?:(were lost)|came to nothing)")


class ChaoticWorld(World):
    """A scheduler that is killed and moves what runs, and a cloud that fails."""

    def __init__(self, folder: Path, faults: Faults) -> None:
        self.faults = faults  # what goes wrong in calls and commits
        self.down_until = dict.fromkeys(OFFERS, 0.0)  # by offer: no capacity before this epoch second
        self.submitted: list[str] = []  # ids of all jobs that the store took
        self.strangers: set[str] = set()  # machines with our tag that somebody else made
        self.blind_until_s = 0.0  # the cloud says nothing of any machine before this epoch second
        self.behind_s = 0.0  # the scheduler's clock was set back by so much; the cloud's goes on
        self._lead: Lock | None = None
        self._restarts = 0
        super().__init__(folder, self._offers(), Restless(), settings=SETTINGS)

    def _offers(self) -> list[SimulatedOffer]:
        def made(name: str, market: Market = "spot", **facts: Any) -> SimulatedOffer:
            facts["launch_s"] = 20.0
            return rentable(name, market, lambda now_s: now_s >= self.down_until[name], **facts)

        return [
            made("spot-a", price_usd_hour=0.21),
            made("spot-b", price_usd_hour=0.37, free_first_s=300.0),
            made("sure", "on_demand", quota=8),
        ]

    def restart(self) -> None:
        """As after a SIGKILL: nothing is left of the scheduler's memory, and its lead is free."""
        if self._lead is not None:
            self._lead.release()
        self._restarts += 1
        if self._restarts % REOPEN == 1:
            super().restart()
            faulty_transactions(self.store, self.faults)
        else:
            self.anew(self.store)
        self._lead = self.store.lead()
        provider = FaultyProvider(self.provider, self.faults, lambda: self.blind_until_s)
        runner = FaultyRunner(self.runner, self.faults)
        scheduler = self.scheduler
        scheduler.clock = OwnClock(self)
        for part in (scheduler.observer, scheduler.actions):
            part._providers = {"simulated": provider}
            part._runners = dict.fromkeys(self.runner.kinds, runner)

    def close(self) -> None:
        if self._lead is not None:
            self._lead.release()
        self.store.close()

    def step(self) -> None:
        """A pass; who is killed in it is started again."""
        try:
            self.scheduler.step()
        except Killed:
            self.restart()
        self.clock.sleep(PASS_S)

    def send(self, spec: JobSpec) -> None:
        """Submit a job; the kill may come before or after it is taken."""
        job_id = f"{spec.name}-1"
        try:
            self.submit(spec)
        except Killed:
            self.restart()
        if job_id in self.store.jobs.named([job_id]):
            self.submitted.append(job_id)

    def cancel(self, job_id: str) -> None:
        try:
            super().cancel(job_id)
        except Killed:
            self.restart()

    def stray_machine(self) -> None:
        """A machine with our tag that the store does not know: of a store that was restored, say."""
        token = f"stray-{len(self.strangers)}"
        request = LaunchRequest(token, "spot-b", self.store.deployment_id, "gone-1", "main", "x" * 32)
        with suppress(CapacityError, QuotaError):
            self.strangers.add(self.provider.launch(request).instance_id)

    def second_scheduler(self) -> None:
        with Store.open(self.url, self.clock.now(), durable=False) as store, pytest.raises(StoreError):
            store.lead()

    def let_end(self) -> None:
        """Nothing goes wrong any more."""
        self.blind_until_s = 0.0
        self.down_until = dict.fromkeys(OFFERS, 0.0)
        for _ in range(MOST_PASSES):
            if not (self.store.jobs.live() or self.store.instances.live() or self.store.intents.pending()):
                break
            self.step()
        for _ in range(10):
            self.step()

    # What must hold.

    def check_always(self) -> None:
        """None runs twice to its end; the cloud has nothing that the store does not know of."""
        assert set(self.cloud.completions.values()) <= {1}
        assert wrong_charges(self.store) == []
        for name, machine in self.cloud.machines.items():
            if name in self.strangers:
                continue
            assert self.store.instances.by_client_token(machine.report.client_token) is not None

    def check_in_the_end(self) -> None:
        """No job is lost, no machine is left, and the bill is the cloud's own, to the last unit."""
        self.check_always()
        self.check_nothing_is_left()
        jobs = self.store.jobs.named(self.submitted)
        assert set(jobs) == set(self.submitted)
        for job_id, job in jobs.items():
            completed = [key for key in self.cloud.completions if key.job_id == job_id]
            match job.state:
                case JobState.SUCCEEDED:
                    assert completed
                case JobState.FAILED if "budget" in job.reason:
                    assert job.spec.budget_usd is not None
                case JobState.FAILED if (given_up := _IN_A_ROW.match(job.reason)) is not None:
                    limit = SETTINGS.losses_most + 1 if given_up[2] else SETTINGS.failures_most
                    assert int(given_up[1]) == limit, job.reason
                case JobState.FAILED:
                    assert job.user_failures == job.spec.max_user_failures + 1, job.reason
                case JobState.CANCELLED:
                    assert job.reason == "by its owner"
                case _:
                    raise AssertionError(f"{job_id} is lost: {job}")
        assert self.store.costs.total(self.clock.now()).cost == self.ledger()

    def ledger(self) -> int:
        """What the cloud itself would bill: every machine that it ever ran, whoever knew of it."""
        total = 0
        for name, machine in self.cloud.machines.items():
            if name in self.strangers:
                continue
            report = machine.report
            facts = self.cloud.offer(report.offer_id).offer
            usage = Usage(
                launched_s=report.launched_s,
                ended_s=report.ended_s,
                by_provider=report.by_provider,
                segments=(PriceSegment(report.launched_s, micro_usd_hour(facts.price_usd_hour)),),
                on_demand_micro_usd_hour=micro_usd_hour(facts.on_demand_usd_hour),
                minimum_s=facts.billing_minimum_s,
                free_first_s=facts.free_first_s,
            )
            total += bill(usage, self.clock.now()).cost
        return total


class OwnClock:
    """The scheduler's idea of the time."""

    def __init__(self, world: ChaoticWorld) -> None:
        self._world = world

    def now(self) -> float:
        return self._world.clock.now() - self._world.behind_s

    def sleep(self, seconds: float) -> None:
        self._world.clock.sleep(seconds)


def stream(name: str, batches: int) -> JobSpec:
    work = SparkStreaming(script="s.py", period_s=60.0, batch_deadline_s=60.0, batches=batches)
    return JobSpec(name=name, work=work)


def training(name: str, clients: int) -> JobSpec:
    members = tuple(FlowerClient(name=f"c{k}") for k in range(clients))
    return JobSpec(name=name, work=Flower(app="app", rounds=3, clients=members, epoch_s=60.0))


def any_job(name: str, rng: random.Random) -> JobSpec:
    match rng.randrange(10):
        case 0 | 1:
            return stream(name, rng.randint(2, 6))
        case 2 | 3:
            return training(name, rng.randint(2, 4))
        case kind:
            return batch(
                name,
                work_s=rng.uniform(60.0, 600.0),
                instances=rng.randint(1, 3),
                deadline_s=rng.uniform(600.0, 6000.0) if kind < 6 else None,
                budget_usd=rng.choice((0.02, 5.0)) if kind == 9 else None,
            )


# Incidents between two passes; `which` picks what is hit, `share` in [0, 1] how hard or how long.


def _end(by_provider: bool) -> Incident:
    def end(world: ChaoticWorld, which: int, share: float) -> None:
        world.cloud.settle()
        if running := world.cloud.live():
            world.cloud.kill(running[which % len(running)], by_provider=by_provider)

    return end


def _notice(world: ChaoticWorld, which: int, share: float) -> None:
    world.cloud.settle()
    if running := world.cloud.live():
        world.cloud.notice(running[which % len(running)], world.clock.now() + 1.0 + share * 119.0)


def _no_capacity(world: ChaoticWorld, which: int, share: float) -> None:
    world.down_until[OFFERS[which % len(OFFERS)]] = world.clock.now() + 10.0 + share * 590.0


def _set_back(world: ChaoticWorld, which: int, share: float) -> None:
    world.behind_s = share * 60.0


def _go_blind(world: ChaoticWorld, which: int, share: float) -> None:
    # One silence at a time: the cloud reports ended instances for an hour only.
    if world.blind_until_s <= world.clock.now():
        world.blind_until_s = world.clock.now() + 10.0 + share * 890.0


def _cancel(world: ChaoticWorld, which: int, share: float) -> None:
    if live := world.store.jobs.live():
        world.cancel(live[which % len(live)].job_id)


Incident = Callable[[ChaoticWorld, int, float], None]
INCIDENTS: dict[str, Incident] = {
    "a machine is taken": _end(True),
    "a machine breaks": _end(False),
    "a machine is to be taken": _notice,
    "an offer has no capacity": _no_capacity,
    "the clock is set back": _set_back,
    "the scheduler is away": lambda world, which, share: world.clock.sleep(share * 600.0),
    "another scheduler starts": lambda world, which, share: world.second_scheduler(),
    "a job is cancelled": _cancel,
    "a stray machine appears": lambda world, which, share: world.stray_machine(),
    "the cloud says nothing": _go_blind,
}


# Things that go wrong: kills between two effects, errors, machines that vanish; at random or when told.


# The first of each is what a time-out raises. The last ones are what nothing should raise.
PROVIDER_ERRORS = (ProviderError, ThrottledError, CapacityError, KeyError, OSError)
RUNNER_ERRORS = (RunnerError, ValueError, ZeroDivisionError)


class Killed(BaseException):
    """The scheduler's process ends here: nothing after this point happens."""


class Faults:
    """Decides what goes wrong: at random, at this rate of all calls, and nothing after `most` faults.

    `left` counts down, and `counts` says how often what did.
    """

    def __init__(self, seed: int = 0, rate: float = 0.0, most: int = 0) -> None:
        self.rng = random.Random(seed)
        self.rate = rate
        self.left = most
        self.counts: Counter[str] = Counter()

    def strikes(self, kind: str) -> bool:
        if self.left <= 0 or self.rng.random() >= self.rate:
            return False
        self.left -= 1
        self.counts[kind] += 1
        return True

    def one_of(self, errors: tuple[type[Exception], ...]) -> type[Exception]:
        return self.rng.choice(errors)


class Armed(Faults):
    """One fault at a time, at the n-th point from now at which something can go wrong."""

    _points = _error = 0

    def arm(self, points: int, error: int = 0) -> None:
        """Strike at the `points`-th point from now, with the `error`-th of the errors that fit there."""
        self._points, self._error = points, error

    def disarm(self) -> None:
        self._points = 0

    def strikes(self, kind: str) -> bool:
        if self._points == 0:
            return False
        self._points -= 1
        return self._points == 0

    def one_of(self, errors: tuple[type[Exception], ...]) -> type[Exception]:
        return errors[self._error % len(errors)]


class Faulty:
    """An object whose methods are killed before or after their effect, or fail with one of its errors."""

    def __init__(self, inner: Any, faults: Faults, errors: tuple[type[Exception], ...]) -> None:
        self._inner = inner
        self._faults = faults
        self._errors = errors

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        return self._wrap(name, value) if callable(value) else value

    def _wrap(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **keywords: Any) -> Any:
            if self._faults.strikes(f"killed before {name}"):
                raise Killed
            if self._faults.strikes(f"{name} fails"):
                raise self._faults.one_of(self._errors)("it cannot be done now")
            result = call(*args, **keywords)
            if self._faults.strikes(f"killed after {name}"):
                raise Killed
            if self._faults.strikes(f"{name} was done and said it failed"):
                raise self._errors[0]("time-out")
            return result

        return wrapped


class FaultyProvider(Faulty):
    """A cloud whose answers are also late or leave things out, and which at times knows of no machine."""

    def __init__(self, inner: SimulatedProvider, faults: Faults, blind_until_s: Callable[[], float]) -> None:
        super().__init__(inner, faults, PROVIDER_ERRORS)
        self._describe = self._wrap("describe", inner.describe)
        self._launch = self._wrap("launch", inner.launch)
        self._earlier: Sequence[InstanceReport] = ()
        self._unsure: set[str] = set()
        self._blind_until_s = blind_until_s

    def describe(self, deployment: str) -> Sequence[InstanceReport]:
        """All machines; as they were a while ago, without the newest, or none at all."""
        told: Sequence[InstanceReport] = self._describe(deployment)
        if self._inner.cloud.clock.now() < self._blind_until_s():
            return ()
        if self._faults.strikes("describe answers with what was before"):
            return self._earlier
        if self._faults.strikes("describe does not know the newest yet"):
            return [one for one in told if one in self._earlier]
        self._earlier = told
        return told

    def launch(self, request: LaunchRequest) -> InstanceReport:
        """A machine; if the answer to the first try was lost, the second may be refused."""
        if request.client_token in self._unsure and self._faults.strikes("a launch is refused when repeated"):
            raise CapacityError("no capacity any more")
        self._unsure.add(request.client_token)
        report: InstanceReport = self._launch(request)
        self._unsure.discard(request.client_token)
        return report


class FaultyRunner(Faulty):
    """A runner whose reports may be those of the look before."""

    def __init__(self, inner: Any, faults: Faults) -> None:
        super().__init__(inner, faults, RUNNER_ERRORS)
        self._reports = self._wrap("reports", inner.reports)
        self._earlier: dict[TaskKey, TaskReport] = {}

    def reports(self, assignments: Sequence[Assignment]) -> Sequence[TaskReport]:
        """One for each; late ones are about earlier attempts, or from before the end."""
        told: list[TaskReport] = list(self._reports(assignments))
        late = self._faults.strikes("reports are late")
        found = [self._earlier.get(one.key, one) if late else one for one in told]
        self._earlier = {one.key: one for one in told}
        return found


def faulty_transactions(store: Store, faults: Faults) -> None:
    """Kill the process right before a commit (nothing is written) or right after it."""
    original = store.transaction

    @contextmanager
    def transaction() -> Iterator[None]:
        with original():
            yield
            if faults.strikes("killed before a commit"):
                raise Killed
        if faults.strikes("killed after a commit"):
            raise Killed

    store.transaction = transaction  # type: ignore[method-assign]
