"""A cloud and its jobs in virtual time: the same interfaces, no processes. For benchmarks and tests.

`SimulatedCloud` is the world: it goes on while schedulers die and come back. `SimulatedProvider` and
`SimulatedRunner` are a scheduler's views of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from spotweave.deploy.model.clock import VirtualClock
from spotweave.deploy.model.instances import InstanceReport, InstanceState, LaunchRequest, Offer
from spotweave.deploy.model.jobs import Flower, JobSpec, SparkStreaming, TaskKey
from spotweave.deploy.model.tasks import Assignment, Phase, TaskReport
from spotweave.deploy.model.workflows import Workflow
from spotweave.deploy.providers.base import CapacityError, QuotaError
from spotweave.deploy.runners.base import Printed
from spotweave.deploy.store.instances import Instance

DEFAULT_WORK_S = 600.0
CHECKPOINT_S = 60.0
KEPT_S = 3600.0  # terminated instances are reported for so long


@dataclass
class SimulatedOffer:
    """An offer over time."""

    offer: Offer  # its fixed facts
    # whether it can be rented at an epoch second; where it stops, what runs is interrupted
    available: Callable[[float], bool] = lambda _: True
    price_usd_hour: Callable[[float], float] | None = None  # at an epoch second; None: the offer's own


@dataclass
class _Machine:
    report: InstanceReport
    ready_s: float
    speed: float


@dataclass
class _Work:
    """One attempt as it really is on its machines."""

    assignment: Assignment
    machines: tuple[str, ...]
    began_s: float
    saved_before: float
    share_per_s: float
    stopped: bool = False
    lost: bool = False
    failed: bool = False
    done_s: float | None = None

    @property
    def active(self) -> bool:
        return not (self.stopped or self.lost or self.failed or self.done_s is not None)

    def progress(self, now_s: float) -> float:
        return self.saved_before + max(0.0, now_s - self.began_s) * self.share_per_s


@dataclass
class SimulatedCloud:
    """The world. `settle` brings it up to the clock's time; every view calls it first."""

    clock: VirtualClock  # the time
    offers: Sequence[SimulatedOffer]  # what can be rented
    # how often attempts of a job (by name) fail by their own fault before one succeeds
    fails: dict[str, int] = field(default_factory=dict)
    completions: dict[TaskKey, int] = field(default_factory=dict)  # how often each task was run to its end
    machines: dict[str, _Machine] = field(default_factory=dict)
    works: dict[str, _Work] = field(default_factory=dict)
    saved: dict[TaskKey, float] = field(default_factory=dict)
    # attempts whose driver lives. It does not run on the job's machines, and outlives them: only who stops
    # it, or its work's end, ends it
    drivers: set[str] = field(default_factory=set)
    # jobs of which the runner still keeps something, with its secrets
    remembered: set[str] = field(default_factory=set)
    # since when the agents of machines do not answer, by the machine's name
    hung_s: dict[str, float] = field(default_factory=dict)
    launches: int = 0
    _by_token: dict[str, str] = field(default_factory=dict)
    _by_own_id: dict[str, str] = field(default_factory=dict)
    _live: dict[str, _Machine] = field(default_factory=dict)
    _shown: dict[str, _Machine] = field(default_factory=dict)
    _active: dict[TaskKey, _Work] = field(default_factory=dict)
    _settled_s: float | None = None

    def offer(self, offer_id: str) -> SimulatedOffer:
        """By id."""
        return next(item for item in self.offers if item.offer.offer_id == offer_id)

    def live(self, offer_id: str | None = None) -> list[str]:
        """Provider ids of machines that run (on an offer)."""
        return [
            name
            for name, machine in self._live.items()
            if offer_id is None or machine.report.offer_id == offer_id
        ]

    def state_of(self, client_token: str) -> InstanceState | None:
        """What the machine with this token does now; None if there is none."""
        self.settle()
        name = self._by_token.get(client_token)
        return None if name is None else self.machines[name].report.state

    def kill(self, name: str, *, by_provider: bool) -> None:
        """A machine ends now."""
        machine = self._live.pop(name, None)
        if machine is not None:
            machine.report = replace(
                machine.report,
                state=InstanceState.TERMINATED,
                ended_s=self.clock.now(),
                by_provider=by_provider,
            )
            self._settled_s = None

    def notice(self, name: str, ends_s: float) -> None:
        """The provider says that it will end a machine at that time, and does."""
        machine = self._live[name]
        machine.report = replace(machine.report, notice_s=ends_s)

    def settle(self) -> None:
        """Interrupt what has lost its capacity; end work whose machines are gone, or that is done."""
        now_s = self.clock.now()
        if now_s == self._settled_s:
            return
        down = {item.offer.offer_id for item in self.offers if not item.available(now_s)}
        for name, machine in list(self._live.items()):
            report = machine.report
            if report.offer_id in down or (report.notice_s is not None and report.notice_s <= now_s):
                self.kill(name, by_provider=True)
            elif report.state is InstanceState.LAUNCHING and machine.ready_s <= now_s:
                machine.report = replace(report, state=InstanceState.RUNNING)
        for work in list(self._active.values()):
            self._settle_work(work, now_s)
        self._settled_s = now_s

    def _settle_work(self, work: _Work, now_s: float) -> None:
        dead = [
            self.machines[name].report.ended_s
            for name in work.machines
            if self.machines[name].report.state is InstanceState.TERMINATED
        ]
        until_s = min([now_s, *(ended_s for ended_s in dead if ended_s is not None)])
        progress = work.progress(until_s)
        key, name = work.assignment.key, work.assignment.spec.name
        if progress >= 1.0 and self.fails.get(name, 0) > 0:
            self.fails[name] -= 1
            work.failed = True
            self.drivers.discard(work.assignment.attempt_id)
        elif progress >= 1.0:
            work.done_s = now_s
            self.drivers.discard(work.assignment.attempt_id)
            self.completions[key] = self.completions.get(key, 0) + 1
            self.saved[key] = 1.0
        elif dead:
            work.lost = True
            self._save(work, until_s)
        if not work.active:
            del self._active[key]

    def _save(self, work: _Work, until_s: float) -> None:
        """What the latest periodic checkpoint holds."""
        whole_s = (until_s - work.began_s) // CHECKPOINT_S * CHECKPOINT_S
        kept = min(0.99, work.progress(work.began_s + whole_s))
        self.saved[work.assignment.key] = max(kept, self.saved.get(work.assignment.key, 0.0))


def batches(spec: JobSpec) -> int:
    """Batches of a stream, 10 if it is endless; 0 for other jobs."""
    return spec.work.batches or 10 if isinstance(spec.work, SparkStreaming) else 0


def work_s(spec: JobSpec, task: str) -> float:
    """Seconds of work of a task at speed 1."""
    work = spec.work
    if isinstance(work, SparkStreaming):
        return work.period_s * batches(spec)
    if isinstance(work, Flower):
        return work.rounds * (work.epoch_s or DEFAULT_WORK_S)
    return work.standard_s_of(task) or DEFAULT_WORK_S


class SimulatedProvider:
    """Rents machines of a simulated cloud."""

    name = "simulated"

    def __init__(self, cloud: SimulatedCloud) -> None:
        self.cloud = cloud

    def offers(self) -> Sequence[Offer]:
        """Everything, as it is now."""
        now_s = self.cloud.clock.now()
        found = []
        for item in self.cloud.offers:
            price = item.offer.price_usd_hour if item.price_usd_hour is None else item.price_usd_hour(now_s)
            up = item.available(now_s)
            reason = "" if up else "no capacity"
            found.append(replace(item.offer, price_usd_hour=price, available=up, reason=reason))
        return found

    def launch(self, request: LaunchRequest) -> InstanceReport:
        """Rent a machine, once for each token."""
        self.cloud.settle()
        earlier = self.cloud._by_token.get(request.client_token)
        if earlier is not None:
            return self.cloud.machines[earlier].report
        item, now_s = self.cloud.offer(request.offer_id), self.cloud.clock.now()
        if not item.available(now_s):
            raise CapacityError(f"no capacity on {request.offer_id}")
        if len(self.cloud.live(request.offer_id)) >= item.offer.quota:
            raise QuotaError(f"{item.offer.quota} instances run on {request.offer_id}, which is its quota")
        self.cloud.launches += 1
        name = f"sim-{self.cloud.launches}"
        report = InstanceReport(
            instance_id=name,
            client_token=request.client_token,
            offer_id=request.offer_id,
            address="127.0.0.1",
            node_port=1,
            state=InstanceState.LAUNCHING,
            launched_s=now_s,
            tags={"deployment": request.deployment, "job_id": request.job_id, "task": request.task},
        )
        own_id = request.client_token.removeprefix(f"{request.deployment}-")
        machine = _Machine(report, now_s + item.offer.launch_s, item.offer.speed)
        for shelf in (self.cloud.machines, self.cloud._live, self.cloud._shown):
            shelf[name] = machine
        self.cloud._by_token[request.client_token] = name
        self.cloud._by_own_id[own_id] = name
        return report

    def describe(self, deployment: str) -> Sequence[InstanceReport]:
        """All machines of a deployment."""
        self.cloud.settle()
        now_s = self.cloud.clock.now()
        shown = self.cloud._shown
        for name, machine in list(shown.items()):
            if machine.report.ended_s is not None and now_s - machine.report.ended_s >= KEPT_S:
                del shown[name]
        return [one.report for one in shown.values() if one.report.tags["deployment"] == deployment]

    def terminate(self, instance_ids: Sequence[str]) -> None:
        """End machines."""
        self.cloud.settle()
        for name in instance_ids:
            if name in self.cloud.machines:
                self.cloud.kill(name, by_provider=False)

    def close(self) -> None:
        """Do nothing: no resource is held."""


class SimulatedNodes:
    """The agents on machines of a simulated cloud."""

    def __init__(self, cloud: SimulatedCloud) -> None:
        self.cloud = cloud

    def answers(self, instance: Instance) -> bool:
        """Whether a machine is up, and its agent does not hang."""
        name = self.cloud._by_token.get(instance.client_token)
        up = self.cloud.state_of(instance.client_token) is InstanceState.RUNNING
        return up and name not in self.cloud.hung_s

    def lacks(self, instance_id: str) -> str:
        """Nothing: machines are what their offers promise."""
        return ""

    def silent_s(self, instance_id: str, now_s: float) -> float:
        """Since when it hangs, or has ended."""
        name = self.cloud._by_own_id.get(instance_id)
        if name is None:
            return 0.0
        report = self.cloud.machines[name].report
        since_s = [one for one in (self.cloud.hung_s.get(name), report.ended_s) if one is not None]
        return max(0.0, self.cloud.clock.now() - min(since_s)) if since_s else 0.0


class SimulatedRunner:
    """Runs tasks of any kind on machines of a simulated cloud; a task's tasks do not wait for each other."""

    kinds = ("spark-batch", "spark-streaming", "flower", "bag", "workflow")

    def __init__(self, cloud: SimulatedCloud) -> None:
        self.cloud = cloud

    def check(self, spec: JobSpec, folder: str) -> None:
        """Anything runs here."""

    def start(self) -> None:
        """No services."""

    def ensure(self, assignment: Assignment) -> None:
        """Start an attempt, once; earlier ones are stopped first."""
        self.cloud.settle()
        if assignment.attempt_id in self.cloud.works:
            return
        earlier = self.cloud._active.get(assignment.key)
        self._end_drivers(f"{assignment.key.job_id}.{assignment.key.task}.")
        self.cloud.remembered.add(assignment.key.job_id)
        if earlier is not None:
            earlier.stopped = True
        machines = tuple(self.cloud._by_own_id[node.instance_id] for node in assignment.nodes)
        speed = self.cloud.machines[machines[0]].speed
        work = _Work(
            assignment,
            machines,
            self.cloud.clock.now(),
            self.cloud.saved.get(assignment.key, 0.0),
            speed / work_s(assignment.spec, assignment.key.task),
        )
        self.cloud.works[assignment.attempt_id] = work
        if assignment.key in self.cloud.completions:
            # As every runner must: an earlier attempt came to its end meanwhile.
            work.done_s = work.began_s
            return
        self.cloud._active[assignment.key] = work
        self.cloud.drivers.add(assignment.attempt_id)
        self.cloud._settled_s = None

    def _end_drivers(self, of: str) -> None:
        self.cloud.drivers -= {one for one in self.cloud.drivers if one.startswith(of)}

    def reports(self, assignments: Sequence[Assignment]) -> Sequence[TaskReport]:
        """How the attempts are."""
        self.cloud.settle()
        return [self._report(assignment) for assignment in assignments]

    def _report(self, assignment: Assignment) -> TaskReport:
        work = self.cloud.works.get(assignment.attempt_id)
        saved = self.cloud.saved.get(assignment.key, 0.0)
        if work is None or work.stopped or work.lost:
            phase, message, progress = Phase.LOST, "its machines are gone", saved
        elif work.failed:
            phase, message, progress = Phase.FAILED, "exit code 1", saved
        elif work.done_s is not None:
            phase, message, progress = Phase.SUCCEEDED, "", 1.0
        else:
            now_s = self.cloud.clock.now()
            self.cloud._save(work, now_s)
            saved = self.cloud.saved[assignment.key]
            progress = min(0.999, work.progress(now_s))
            phase, message = Phase.RUNNING, ""
        done = int(progress * batches(assignment.spec))
        writes = isinstance(assignment.spec.work, Workflow) and phase is Phase.SUCCEEDED
        return TaskReport(
            assignment.key,
            assignment.attempt,
            phase,
            progress,
            saved,
            message,
            executions_done=done,
            saved_region=assignment.nodes[0].region if writes else "",
        )

    def drain(self, assignment: Assignment, instance_ids: Sequence[str], within_s: float) -> None:
        """Save what has been done."""
        self.cloud.settle()
        work = self.cloud.works.get(assignment.attempt_id)
        if work is not None and work.active:
            self.cloud.saved[assignment.key] = min(0.99, work.progress(self.cloud.clock.now()))

    def stop(self, assignment: Assignment) -> None:
        """End an attempt; what its latest checkpoint holds is kept."""
        self.cloud.settle()
        self.cloud.drivers.discard(assignment.attempt_id)
        work = self.cloud.works.get(assignment.attempt_id)
        if work is not None and work.active:
            self.cloud._save(work, self.cloud.clock.now())
            work.stopped = True
            del self.cloud._active[assignment.key]

    def log(self, assignment: Assignment, offset: int, most_bytes: int) -> Printed:
        """Nothing is printed."""
        return Printed(b"", 0)

    def leave(self, assignment: Assignment) -> None:
        """The others do not wait for it."""

    def forget(self, job_id: str) -> None:
        """End what is left of it, and keep nothing."""
        self._end_drivers(f"{job_id}.")
        self.cloud.remembered.discard(job_id)

    def shutdown(self) -> None:
        """No services."""
