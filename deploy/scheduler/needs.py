"""A task that awaits a decision, in physical units: what the encoder is told about it."""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Literal

from spotweave.deploy.billing import Move
from spotweave.deploy.model.instances import Offer, slowness
from spotweave.deploy.model.jobs import (
    Bag,
    Flower,
    JobState,
    Places,
    Resources,
    SparkBatch,
    SparkStreaming,
    TaskKey,
    ban,
)
from spotweave.deploy.model.tasks import Phase
from spotweave.deploy.model.workflows import Workflow
from spotweave.deploy.scheduler.placing import loads
from spotweave.deploy.scheduler.settings import SchedulerSettings
from spotweave.deploy.store.instances import Instance
from spotweave.deploy.store.jobs import Job
from spotweave.deploy.store.store import Store
from spotweave.deploy.store.tasks import Task

Kind = Literal["general", "deadline", "streaming", "federated"]


@dataclass(frozen=True)
class Round:
    """What is particular to a task that trains in rounds; times as measured so far."""

    idle: bool = False  # it holds its instances and waits for others
    is_server: bool = False
    owes: bool = True  # whether its result of the current round is still to come
    round_left_s: float = 0.0  # expected seconds until all others of its round have delivered
    round_s: float = 0.0  # expected seconds of a whole round
    cold_s: float = 0.0  # what its first execution on new instances takes longer
    budget_left_usd: float | None = None  # None without a budget
    others_usd_hour: float = 0.0  # price of all instances that its application holds besides its own
    time_error_s: float = 0.0  # by how much such expectations were off lately
    aggregation_s: float = 0.0  # expected seconds of an aggregation, which `round_s` includes


@dataclass(frozen=True, kw_only=True)
class Membership(Round):
    """The place of a client, or the server, in its application: its round, and what more a need tells."""

    rounds_left: int  # for which it has not delivered
    epoch_s: float  # its part of a round at speed 1, on an instance that has trained before
    idle_s: float = 0.0  # since when its instance has nothing to do; 0 if that is not so
    warm: bool = True  # whether it has trained on the instance that it holds


@dataclass(frozen=True)
class Need:
    """One task that awaits a decision."""

    key: TaskKey
    kind: Kind
    resources: Resources  # of each instance, and how many it needs at once
    places: Places
    standard_s: float  # seconds of one execution (batch, epoch), or of all the work, at its reference speed
    age_s: float = 0.0  # since it was submitted
    waited_s: float = 0.0  # since it entered, or re-entered, the buffer; 0 while it runs
    slack_s: float | None = None  # until its next deadline, negative when late; None without one
    executions_left: int = 1  # batches or rounds left; of a step: itself and all that wait for it; else 1
    period_s: float = 0.0  # between two batches; 0 for others
    # share of the work that is done and saved, 0..1; of a federated client that owes a result: of its epoch
    progress: float = 0.0
    execution_saved: float = 0.0  # streaming: share of the next batch that is done and saved
    restart_s: float = 0.0  # to set up on fresh instances
    checkpoint_s: float = 0.0  # between two periodic checkpoints; 0 without
    save_s: float = 0.0  # what saving one takes
    data_gb: float = 0.0  # to be read where it starts
    checkpoint_gb: float = 0.0  # to be restored where it starts
    interruptions: int = 0
    misses: int = 0
    backlog: int = 0  # batches that are due and not finished
    running: bool = False  # it runs now and may be moved; "none" leaves it
    here: str | None = None  # id of the offer on which it runs or waits, None for none
    left_here_s: float = 0.0  # until the end of the current execution there
    reference_speed: float = 1.0  # that `standard_s` refers to
    sensitivity: float | None = None  # how far other speeds count (see `Profile`); None: all the way
    # by region: what putting it there takes; none for regions that are left out
    moves: Mapping[str, Move] = field(default_factory=dict)
    budget_left_usd: float = math.inf  # what its job's budget, and the deployment's, still pay
    # by offer: for how much longer it is left alone, since the task came to nothing there
    cooling_s: Mapping[str, float] = field(default_factory=dict)
    least_s: float = 0.0  # every instance is paid for at least so long: ending it takes a while
    round: Round = field(default_factory=Round)  # of tasks of kind "federated"
    # of a step of a workflow: the region in which its plan puts it; None: wherever it may run
    planned: str | None = None
    # by instance type: how many times as fast as configured earlier runs of its name were there
    faster: Mapping[str, float] = field(default_factory=dict)

    def speed_on(self, offer: Offer) -> float:
        """Speed of an offer's instances for this task."""
        return offer.speed * self.faster.get(offer.instance_type, 1.0)

    def execution_s(self, speed: float) -> float:
        """Whole seconds of one execution (of all the work of a task that has only one) at a speed."""
        # The simulated markets count in whole seconds too; rounding first keeps noise from adding one.
        return math.ceil(round(self.standard_s * self._slowness(speed), 6))

    def measured(self, took_s: float, speed: float) -> Need:
        """The same task, of which it is known how long an execution took at a speed."""
        return replace(self, standard_s=took_s / self._slowness(speed))

    def _slowness(self, speed: float) -> float:
        return slowness(speed, self.reference_speed, self.sensitivity)

    def left_s(self, speed: float) -> float:
        """Expected seconds of work left (streaming: of its next batch) at a speed, once it has started."""
        done = self.execution_saved if self.kind == "streaming" else self.progress
        work_s = max(1, math.ceil((1.0 - done) * self.execution_s(speed)))
        if self.kind == "streaming" or self.checkpoint_s <= 0:
            return work_s
        return work_s + self.save_s * ((work_s - 1) // self.checkpoint_s)

    def finish_s(self, offer: Offer) -> float:
        """Expected seconds until its work (of a stream: its next batch) ends on an offer, from now."""
        if offer.offer_id == self.here:
            return self.left_here_s
        move = self.moves.get(offer.region)
        moved_s = 0.0 if move is None else move.seconds
        saves_s = self.save_s if self.running else 0.0
        start_s = offer.launch_s + self.restart_s + moved_s + saves_s
        return start_s + self.fresh_s(offer)

    def fresh_s(self, offer: Offer) -> float:
        """Expected seconds of work left on fresh instances of an offer, once it has started."""
        speed = self.speed_on(offer)
        return self.left_s(speed) + self.round.cold_s / speed

    @property
    def allowed_s(self) -> float:
        """Seconds allowed for the next execution: what later rounds need is not; 0 without a deadline."""
        if self.slack_s is None:
            return 0.0
        if self.kind != "federated":
            return self.slack_s
        later = max(0, self.executions_left - 1)
        return self.slack_s - int(later * self.round.round_s) - self.round.aggregation_s

    def refusal(self, offer: Offer) -> str | None:
        """Why this task may not run on such an offer, whatever is free; None if it may."""
        return self.ban(offer) or self._elsewhere(offer) or self._cools(offer) or self.unpaid(offer)

    def unpaid(self, offer: Offer) -> str | None:
        """Why budgets do not pay this task on such an offer; None if they do."""
        return self._too_dear(offer) or self._beyond_budget(offer)

    def start_usd(self, offer: Offer) -> float:
        """The least that a start on an offer costs: its instances, their disks, and moving its data there."""
        return self.resources.instances * offer.least_usd(self.least_s) + self.egress_usd(offer)

    def egress_usd(self, offer: Offer) -> float:
        """What moving its data to an offer costs when it starts there."""
        move = self.moves.get(offer.region)
        return 0.0 if move is None else move.usd

    def ban(self, offer: Offer) -> str | None:
        """Why this task may never run on such an offer, whatever it costs; None if it may."""
        return ban(self.resources, self.places, offer)

    def _elsewhere(self, offer: Offer) -> str | None:
        if self.planned is None or offer.region == self.planned:
            return None
        return f"its plan puts it in {self.planned}"

    def _cools(self, offer: Offer) -> str | None:
        left_s = self.cooling_s.get(offer.offer_id, 0.0)
        return f"it came to nothing there; left alone for {left_s:.0f} s more" if left_s > 0 else None

    def _too_dear(self, offer: Offer) -> str | None:
        left_usd = self.round.budget_left_usd
        if left_usd is None or offer.offer_id == self.here:
            return None
        seconds = offer.launch_s + self.restart_s + self.fresh_s(offer)
        usd = self.resources.instances * offer.least_usd(seconds)
        if usd <= left_usd:
            return None
        return f"its budget leaves {max(0.0, left_usd):.4f} USD, a round there costs {usd:.4f}"

    def _beyond_budget(self, offer: Offer) -> str | None:
        if offer.offer_id == self.here or self.start_usd(offer) <= self.budget_left_usd:
            return None
        left_usd = max(0.0, self.budget_left_usd)
        return (
            f"the budget leaves {left_usd:.4f} USD, a start there costs at least {self.start_usd(offer):.4f}"
        )


# What tasks need, from specs and what was seen.


DEFAULT_STANDARD_S = 600.0  # default duration of a job without a profile and without history


def need_of(
    job: Job,
    task: Task,
    held: Sequence[Instance],
    now_s: float,
    settings: SchedulerSettings,
    member: Membership | None = None,
    budget_left_usd: float = math.inf,
    written_in: Mapping[str, str] | None = None,
    start_s: float = 0.0,
    faster: Mapping[str, float] | None = None,
) -> Need:
    """The need of a task, in physical units.

    Args:
        job: it belongs to.
        task: as the store knows it.
        held: its live instances.
        now_s: epoch seconds.
        settings: with what set-up and transfers take.
        member: of a federated client: its place in its application.
        budget_left_usd: what its job's budget, and the deployment's, still pay.
        written_in: of a workflow: by step, the region where its files are.
        start_s: of a workflow: what each of the steps that follow takes until it works.
        faster: see `Need`.
    """
    work, profile = job.spec.work, job.spec.profile
    running = task.phase is Phase.RUNNING
    here: Offer | None = held[0].offer if held else None
    common = {
        "key": task.key,
        "resources": job.spec.resources_of(task.key.task),
        "places": job.spec.places_of(task.key.task),
        "age_s": max(0.0, now_s - job.submitted_s),
        "waited_s": 0.0 if task.waiting_since_s is None else max(0.0, now_s - task.waiting_since_s),
        "restart_s": settings.set_up_s,
        "budget_left_usd": budget_left_usd,
        "least_s": 2 * settings.period_s,
        "interruptions": task.interruptions,
        "misses": missed(job, task, now_s),
        "running": running,
        "here": None if here is None else here.offer_id,
        "faster": faster or {},
    }
    if isinstance(work, Flower):
        assert member is not None
        idle = task.phase is Phase.WAITING
        common |= {
            "kind": "federated",
            "standard_s": member.epoch_s,
            "executions_left": member.rounds_left,
            "progress": task.execution_saved if member.owes else 0.0,
            "round": replace(member, idle=idle),
        }
        if idle:
            common["waited_s"] = member.idle_s
        need = Need(**common | {"slack_s": _until_end_s(job, work, now_s)})  # type: ignore[arg-type]
        if here is None:
            return need
        cold_s = 0.0 if member.warm else member.cold_s / need.speed_on(here)
        return replace(need, left_here_s=need.left_s(need.speed_on(here)) + cold_s)
    saved_in = here.region if running and here is not None else task.saved_region
    loaded = loads(job.spec, task.key.task, saved_in, written_in or {})
    common |= {
        "reference_speed": profile.reference_speed,
        "sensitivity": profile.sensitivity,
        "checkpoint_s": profile.checkpoint_interval_s,
        "save_s": profile.checkpoint_s,
        # A step reads its files and has no checkpoint.
        "data_gb": sum(gb for _, gb in loaded) if isinstance(work, Workflow) else profile.data_gb,
        "checkpoint_gb": profile.checkpoint_gb,
        "moves": settings.transfers.moves(loaded),
    }
    if isinstance(work, SparkStreaming):
        need = Need(**common, **_streaming(job, work, task, now_s))  # type: ignore[arg-type]
        if here is None:
            return need
        if task.last_execution_s is not None:
            need = need.measured(task.last_execution_s, need.speed_on(here))
        return replace(need, left_here_s=need.left_s(need.speed_on(here)))
    # The steps that follow must end in time too.
    later_s, steps = 0.0, 1
    if isinstance(work, Workflow):
        later_s, steps = work.after_s(task.key.task, start_s), 1 + work.waiting_for(task.key.task)
    need = Need(
        **common,  # type: ignore[arg-type]
        kind="general" if work.deadline_s is None else "deadline",
        standard_s=work.standard_s_of(task.key.task) or DEFAULT_STANDARD_S,
        slack_s=_until_end_s(job, work, now_s, later_s),
        executions_left=steps,
        progress=task.progress if running else task.saved,
    )
    return need if here is None else replace(need, left_here_s=need.left_s(need.speed_on(here)))


def missed(job: Job, task: Task, now_s: float) -> int:
    """Deadlines that a task has missed so far, those of work that is not finished yet among them."""
    work = job.spec.work
    if isinstance(work, SparkStreaming):
        due_s = _next_due_s(job, work, task)
        late = 0 if due_s is None else _passed(work, task, now_s - due_s - work.batch_deadline_s)
        return task.misses + late
    if work.deadline_s is None:
        return task.misses
    return max(task.misses, int(now_s >= job.submitted_s + work.deadline_s))


def _next_due_s(job: Job, work: SparkStreaming, task: Task) -> float | None:
    """When the data of the first unfinished batch are complete; None where its runner does not say."""
    if task.next_due_s is None and task.executions_done == 0:
        return job.submitted_s + work.period_s
    return task.next_due_s


def _passed(work: SparkStreaming, task: Task, since_s: float) -> int:
    """How many unfinished batches had a moment that, of the first of them, was `since_s` ago."""
    if since_s < 0:
        return 0
    return min(_left(work, task), int(since_s // work.period_s) + 1)


def _left(work: SparkStreaming, task: Task) -> int:
    """Batches left; a job without an end is taken for a long one."""
    return 1000 if work.batches is None else max(1, work.batches - task.executions_done)


def _streaming(job: Job, work: SparkStreaming, task: Task, now_s: float) -> dict[str, object]:
    standard_s = task.last_execution_s or work.standard_s or work.batch_deadline_s / 2
    due_s = _next_due_s(job, work, task)
    return {
        "kind": "streaming",
        "standard_s": standard_s,
        "executions_left": _left(work, task),
        "period_s": work.period_s,
        "slack_s": work.batch_deadline_s + (0.0 if due_s is None else due_s - now_s),
        "progress": 0.0 if work.batches is None else min(1.0, task.executions_done / work.batches),
        "execution_saved": task.execution_saved,
        "backlog": 0 if due_s is None else _passed(work, task, now_s - due_s),
    }


def _until_end_s(
    job: Job, work: SparkBatch | Flower | Bag | Workflow, now_s: float, later_s: float = 0.0
) -> float | None:
    return None if work.deadline_s is None else job.submitted_s + work.deadline_s - later_s - now_s


# How long jobs of a name took before: the standard time of those that do not say theirs.

LOOK_S = 60.0  # interval of looking for jobs that have ended
LOOK_BACK = 200  # this many of the latest jobs that succeeded are looked at
NAMES = 10_000  # this many names are remembered: those whose jobs succeeded last
RUNS = 20  # the median is that of this many latest runs
RUNS_OF_TYPE = 2  # runs on an instance type from which on they say how fast it is
MOST_FASTER = 8.0  # how many times as fast or slow as configured a type may seem


class Learned:
    """Times by submitter, name of the job, kind of its work and name of the task, from runs that succeeded.

    Of a batch job a run counts if its only attempt was not interrupted: the seconds from its ready nodes to
    its end. Of a stream and of a federated client the latest batch or epoch of each run counts. All are
    multiplied by the configured speed of the instances they ran on. Where the results differ between instance
    types, that speed is wrong for tasks of this name.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._seen: deque[str] = deque(maxlen=2 * LOOK_BACK)
        self._runs: dict[tuple[str, str, str, str], deque[tuple[str, float]]] = {}
        """Instance types and seconds; the name that was heard of last comes last."""
        self._next_s = 0.0

    def look(self, now_s: float) -> None:
        """Take in the jobs that have succeeded since the last look, if that was long enough ago."""
        if now_s < self._next_s:
            return
        self._next_s = now_s + LOOK_S
        latest = self._store.jobs.latest(LOOK_BACK, {JobState.SUCCEEDED})
        for job in reversed([job for job in latest if job.job_id not in self._seen]):
            self._seen.append(job.job_id)
            held: dict[str, list[Instance]] = {}
            for instance in self._store.instances.of_job(job.job_id):
                held.setdefault(instance.key.task, []).append(instance)
            for task in self._store.tasks.of_job(job.job_id):
                mine = held.get(task.key.task, [])
                took_s = reference_s(job, task, mine)
                if took_s is not None:
                    runs = self._runs.pop(_name(job, task.key), deque(maxlen=RUNS))
                    runs.append((mine[-1].offer.instance_type, took_s))
                    self._runs[_name(job, task.key)] = runs
        while len(self._runs) > NAMES:
            del self._runs[next(iter(self._runs))]

    def told(self, job: Job, key: TaskKey) -> Job:
        """The job as it would be if it said what earlier runs of its name took, where it does not."""
        work = job.spec.work
        said = work.epoch_s if isinstance(work, Flower) else work.standard_s
        learned_s = None if said is not None else self.standard_s(*_name(job, key))
        if learned_s is None:
            return job
        name = "epoch_s" if isinstance(work, Flower) else "standard_s"
        changed = job.spec.model_copy(update={"work": work.model_copy(update={name: learned_s})})
        return replace(job, spec=changed)

    def standard_s(self, submitter: str, name: str, kind: str, task: str) -> float | None:
        """Median of the earlier runs, in seconds at speed 1; None where there is none."""
        runs = self._runs.get((submitter, name, kind, task))
        return median(took_s for _, took_s in runs) if runs else None

    def faster(self, job: Job, key: TaskKey) -> Mapping[str, float]:
        """By instance type with enough runs: how many times as fast as configured it is for this task.

        Nothing for a federated client, whose training measures its epochs while it runs.
        """
        if isinstance(job.spec.work, Flower):
            return {}
        by_type: defaultdict[str, list[float]] = defaultdict(list)
        for instance_type, took_s in self._runs.get(_name(job, key), ()):
            by_type[instance_type].append(took_s)
        whole_s = self.standard_s(*_name(job, key))
        return {
            instance_type: min(MOST_FASTER, max(1.0 / MOST_FASTER, whole_s / median(took)))
            for instance_type, took in by_type.items()
            if whole_s is not None and len(by_type) > 1 and len(took) >= RUNS_OF_TYPE
        }


def reference_s(job: Job, task: Task, held: list[Instance]) -> float | None:
    """What a finished task says about the next one of its name; None where it says nothing.

    `held` are all instances that the task ever had.
    """
    if not isinstance(job.spec.work, SparkBatch):
        if task.last_execution_s is None or not held:
            return None
        return task.last_execution_s * held[-1].offer.speed
    ready = [one.ready_s for one in held if one.ready_s is not None]
    if task.attempt != 1 or job.ended_s is None or len(ready) != job.spec.resources.instances:
        return None
    return max(1.0, (job.ended_s - max(ready)) * held[0].offer.speed)


def _name(job: Job, key: TaskKey) -> tuple[str, str, str, str]:
    return job.submitter, job.spec.name, job.spec.work.kind, key.task


# Deadlines missed on each offer, which snapshots show.


class Lateness:
    """Counts, for each offer, the deadlines that passed while a task was there."""

    def __init__(self) -> None:
        self.by_offer: Counter[str] = Counter()
        self._known: dict[TaskKey, int] = {}

    def start(self, key: TaskKey, misses: int) -> None:
        """A task that has missed this many deadlines is put somewhere."""
        self._known[key] = misses

    def see(self, key: TaskKey, offer_id: str, misses: int) -> None:
        """A task that is on an offer has missed this many by now."""
        self.by_offer[offer_id] += max(0, misses - self._known.get(key, misses))
        self._known[key] = misses

    def keep_only(self, keys: Collection[TaskKey]) -> None:
        """Forget all other tasks; what they missed stays counted."""
        self._known = {key: misses for key, misses in self._known.items() if key in keys}
