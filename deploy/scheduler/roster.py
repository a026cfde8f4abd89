"""The tasks of a pass: waiting ones, idle ones, and running ones that are due for reconsideration."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from heapq import nsmallest
from typing import NamedTuple

from spotweave.deploy.model.instances import Offer
from spotweave.deploy.model.jobs import Flower, SparkStreaming, TaskKey
from spotweave.deploy.model.tasks import Phase, TaskReport
from spotweave.deploy.model.workflows import Workflow
from spotweave.deploy.scheduler.guards import Budgets, Standing, standing_of
from spotweave.deploy.scheduler.needs import DEFAULT_STANDARD_S, Lateness, Learned, Need, missed, need_of
from spotweave.deploy.scheduler.placing import moves, regions_of
from spotweave.deploy.scheduler.plans import Plans, stands_of
from spotweave.deploy.scheduler.retries import Cooldowns, Quarantine
from spotweave.deploy.scheduler.rounds import DEFAULT_EPOCH_S, Memberships, Pass
from spotweave.deploy.scheduler.settings import SchedulerSettings
from spotweave.deploy.store.instances import Instance, all_have_notice
from spotweave.deploy.store.intents import Intent
from spotweave.deploy.store.jobs import Job
from spotweave.deploy.store.store import Store
from spotweave.deploy.store.tasks import Task, Waiting
from spotweave.envs.simulation.guards import reconsidered, spare_s
from spotweave.envs.simulation.round_estimates import ASK_AGAIN_MOST_S


class Questions:
    """When each task is asked about next. A scheduler that was restarted asks all who wait at once.

    Tasks that are reconsidered while they run are asked about every `reconsider_s` (0: never), streams at
    the end of a batch then; and at once when their provider advises to leave or announces the end of an
    instance, which no training does.
    """

    def __init__(self, reconsider_s: float) -> None:
        self._reconsider_s = reconsider_s
        self._next_s: dict[TaskKey, float] = {}
        self._running_s: dict[TaskKey, float] = {}
        self._batches: dict[TaskKey, int] = {}
        self._warned: dict[TaskKey, frozenset[str]] = {}

    def waits_due(self, key: TaskKey, not_before_s: float, now_s: float) -> bool:
        """Whether a task without a place, or that waits for others, is asked about now."""
        self._stopped(key)
        self._warned.pop(key, None)
        return not_before_s <= now_s and self._next_s.get(key, -math.inf) <= now_s

    def runs_due(
        self, task: Task, held: Sequence[Instance], reconsidered: bool, streams: bool, now_s: float
    ) -> bool:
        """Whether a task that runs, and is reconsidered now and then or not, is asked about now."""
        if task.phase is not Phase.RUNNING or not held:
            self._stopped(task.key)
            return False
        batches = self._batches.get(task.key, task.executions_done)
        self._batches[task.key] = task.executions_done
        if all_have_notice(held):
            return self._next_s.get(task.key, -math.inf) <= now_s
        warned = _warned(held)
        if warned - self._warned.get(task.key, frozenset()):
            self._warned[task.key] = warned
            return True
        if self._reconsider_s <= 0 or not reconsidered:
            return False
        if self._running_s.setdefault(task.key, now_s + self._reconsider_s) > now_s:
            return False
        return not streams or task.executions_done > batches

    def _stopped(self, key: TaskKey) -> None:
        if self._running_s.pop(key, None) is not None:
            self._next_s.pop(key, None)
        self._batches.pop(key, None)

    def again(self, key: TaskKey, now_s: float, wait_s: float) -> None:
        """Set when a task that was asked about is asked again, if it waits then."""
        self._next_s[key] = now_s + wait_s
        if key in self._running_s:
            self._running_s[key] = now_s + self._reconsider_s

    def last_due_s(self, key: TaskKey) -> float:
        """Since when it may be asked about; the earliest time for one that never was."""
        return self._next_s.get(key, -math.inf)

    def placed(self, key: TaskKey) -> None:
        """Note a placement: when the task loses its place, it is asked about at once."""
        self._next_s.pop(key, None)

    def keep_only(self, keys: Collection[TaskKey]) -> None:
        """Forget all others."""
        for known in (self._next_s, self._running_s, self._batches, self._warned):
            for key in known.keys() - keys:
                del known[key]


def _warned(held: Sequence[Instance]) -> frozenset[str]:
    return frozenset(
        f"{one.instance_id}:{one.notice_s is not None}"
        for one in held
        if one.rebalance or one.notice_s is not None
    )


# Which waiting tasks have a deadline that the safety net may have to see to now.


class Urgency:
    """Finds them among ten thousand without reading a spec twice."""

    def __init__(
        self, store: Store, settings: SchedulerSettings, learned: Learned, quarantine: Quarantine
    ) -> None:
        self._store, self._settings = store, settings
        self._learned, self._quarantine = learned, quarantine
        self._ends: dict[str, tuple[float, float] | None] = {}
        """By job: when its deadline is, and its standard time; None without a deadline."""
        self._safe_for = (0.0, 0.0)
        self._safe_s: dict[str, float] = {}
        """By job: until when it cannot be urgent while on-demand capacity starts so soon and is so fast."""
        self._patient: set[TaskKey] = set()
        """Tasks that had time left in the previous pass and are not due yet."""

    def urgent(self, rows: Sequence[Waiting], offers: Sequence[Offer], now_s: float) -> list[Waiting]:
        """Tasks whose last safe moment has come, the nearest deadline first."""
        self._look_up_ends({row.key.job_id for row in rows} - self._ends.keys())
        sure = [offer for offer in offers if offer.market != "spot"]
        start_s = max((offer.launch_s for offer in sure), default=0.0) + self._settings.set_up_s
        slowest = min((offer.speed for offer in sure), default=1.0)
        found = []
        for row in self._may_be_urgent(rows, start_s, slowest, now_s):
            end = self._ends[row.key.job_id]
            if end is not None and self._spare_s(end, row.saved, start_s, slowest, now_s) <= 0:
                found.append((end[0], row))
        return [row for _, row in sorted(found)]

    def cannot_wait(
        self, backing_off: Sequence[Waiting], offers: Sequence[Offer], now_s: float
    ) -> list[Waiting]:
        """Tasks whose last safe moment precedes the end of their back-off: they are tried at that moment.

        If that fails too they wait like all others, lest a fault that lasts uses up all their attempts.
        """
        urgent = self.urgent(backing_off, offers, now_s) if backing_off else []
        found = [row for row in urgent if row.key in self._patient]
        self._patient = {row.key for row in backing_off} - {row.key for row in urgent}
        return found

    def keep_only(self, job_ids: Collection[str]) -> None:
        """Forget all others."""
        for job_id in self._ends.keys() - job_ids:
            del self._ends[job_id]
            self._safe_s.pop(job_id, None)

    def _may_be_urgent(
        self, rows: Sequence[Waiting], start_s: float, slowest: float, now_s: float
    ) -> list[Waiting]:
        if self._safe_for != (start_s, slowest):
            self._safe_for, self._safe_s = (start_s, slowest), {}
        for job_id in self._ends.keys() - self._safe_s.keys():
            end = self._ends[job_id]
            safe_s = math.inf if end is None else self._spare_s(end, 0.0, start_s, slowest, 0.0)
            self._safe_s[job_id] = safe_s - 1.0  # sooner by more than all rounding
        return [row for row in rows if self._safe_s[row.key.job_id] <= now_s]

    def _spare_s(
        self, end: tuple[float, float], saved: float, start_s: float, slowest: float, now_s: float
    ) -> float:
        """Seconds for which a task whose job ends so can be left to later passes."""
        needs_s = start_s + end[1] * (1 - saved) / slowest
        spare = spare_s(end[0] - now_s, needs_s, self._settings.guards.rules())
        return spare - 2 * self._settings.period_s

    def _look_up_ends(self, job_ids: Collection[str]) -> None:
        """Load the ends of new jobs at once: there may be ten thousand."""
        for job_id, submitter, submitted_s, spec in self._store.jobs.specs(job_ids):
            self._ends[job_id] = None
            with self._quarantine.guard(job_id, "looking up its deadline"):
                self._ends[job_id] = self._end_of(submitter, submitted_s, spec)

    def _end_of(self, submitter: str, submitted_s: float, text: str) -> tuple[float, float] | None:
        # Not as a `JobSpec`: that takes ten times as long.
        spec = json.loads(text)
        work = spec["work"]
        if work.get("deadline_s") is None:
            return None
        if work["kind"] == "flower":
            took_s = work["rounds"] * (work["epoch_s"] or DEFAULT_EPOCH_S)
        elif work["kind"] == "bag":
            took_s = 60.0 * max(task["minutes"] for task in work["tasks"])
        elif work["kind"] == "workflow":
            took_s = Workflow.model_validate_json(json.dumps(work)).standard_s
        else:
            learned_s = self._learned.standard_s(submitter, spec["name"], work["kind"], "main")
            took_s = work["standard_s"] or learned_s or DEFAULT_STANDARD_S
        return submitted_s + work["deadline_s"], took_s


_SPARE = 8
"""This many more tasks are looked at than decisions are taken: for what else a policy's window holds."""


@dataclass(frozen=True)
class Asked:
    """A task that may be decided about."""

    need: Need
    task: Task
    # what it has where it runs; None: it waits, is idle, or its place is as good as lost
    standing: Standing | None = None

    @cached_property
    def fallback(self) -> Need:
        """The need as far as a move would have to make up for it: what was not saved is not done."""
        if self.standing is None or self.standing.unsaved == 0:
            return self.need
        return replace(self.need, progress=self.task.saved)


class _Entry(NamedTuple):
    """A task with the instances that count as its place."""

    task: Task
    held: Sequence[Instance]
    standing: Standing | None = None


@dataclass(frozen=True)
class Roll:
    """The tasks of a pass."""

    # those to be decided about, by arrival; the most urgent first where there are too many
    asked: list[Asked]
    at_risk: list[Asked]  # those on spot capacity with a deadline, which are the safety net's business
    waiting: int  # how many wait for a place, asked about or not
    live: set[TaskKey]  # all that have a place or wait for one


class Roster:
    """Calls the roll of each pass."""

    def __init__(
        self,
        store: Store,
        settings: SchedulerSettings,
        budgets: Budgets,
        cooldowns: Cooldowns,
        quarantine: Quarantine,
        plans: Plans | None,
    ) -> None:
        self._store, self._plans = store, plans
        self._planned: dict[str, Mapping[str, str]] = {}
        """Planned region in this pass, by job and step."""
        self._offers: Sequence[Offer] = ()
        self._held: Sequence[Instance] = ()
        self._budgets, self._cooldowns, self._quarantine = budgets, cooldowns, quarantine
        self._settings = settings
        self._learned = Learned(store)
        self._urgency = Urgency(store, settings, self._learned, quarantine)
        self.questions = Questions(settings.reconsider_s)
        self.memberships = Memberships(store, settings.set_up_s)
        self._start_s = settings.set_up_s
        """What a task takes on capacity that stays until it works, at most."""
        self._entries: dict[TaskKey, _Entry] = {}
        """Tasks that are asked about in this pass."""
        self._jobs: dict[str, Job] = {}
        self.lateness = Lateness()

    def call(
        self,
        offers: Sequence[Offer],
        held: Sequence[Instance],
        told: Mapping[TaskKey, TaskReport],
        now_s: float,
    ) -> Roll:
        """Select the tasks to decide about now."""
        self._learned.look(now_s)
        self._offers, self._held, self._planned = offers, held, {}
        launch_s = max((offer.launch_s for offer in offers if offer.market != "spot"), default=0.0)
        self._start_s = launch_s + self._settings.set_up_s
        with self._store.snapshot():
            placed = self._store.tasks.placed()
            waiting = self._store.tasks.waiting()
            jobs = dict(self._store.jobs.named({key.job_id for key in (*[one.key for one in placed], *told)}))
            under_way = moves(self._store)
        by_task: dict[TaskKey, list[Instance]] = defaultdict(list)
        for instance in held:
            by_task[instance.key].append(instance)
        for job_id, news in self.memberships.see(jobs, placed, Pass(now_s, offers, by_task, told)).items():
            for name in news.came_up:
                self.questions.again(TaskKey(job_id, name), now_s, ASK_AGAIN_MOST_S)
            for name in news.asked:
                self.questions.placed(TaskKey(job_id, name))
        asked = self._who_wait(waiting, under_way.keys(), offers, now_s)
        jobs |= self._store.jobs.named({entry.task.key.job_id for entry in asked} - jobs.keys())
        self._budgets.know(jobs.values())
        at_risk: list[_Entry] = []
        for task in placed:
            job = jobs[task.key.job_id]
            if self._quarantine.holds(job.job_id, now_s):
                continue
            with self._quarantine.guard(job.job_id, "looking at a task with a place"):
                move = under_way.get(task.key)
                ask, risk = self._look_at_placed(job, task, by_task[task.key], move, now_s)
                asked += [] if ask is None else [ask]
                at_risk += [] if risk is None else [risk]
        asked.sort(key=lambda entry: self._arrival(jobs[entry.task.key.job_id], entry.task.key))
        federated = {
            entry.task.key.job_id
            for entry in (*asked, *at_risk)
            if isinstance(jobs[entry.task.key.job_id].spec.work, Flower)
        }
        for job_id in sorted(federated):
            with self._quarantine.guard(job_id, "looking at the rounds of a training"):
                self.memberships.look(jobs[job_id])
        self._entries, self._jobs = {entry.task.key: entry for entry in asked}, jobs
        live = {task.key for task in placed} | {row.key for row in waiting}
        self.questions.keep_only(live)
        self._cooldowns.keep_only(live, now_s)
        self.lateness.keep_only(live)
        ids = {key.job_id for key in live}
        self.memberships.keep_only(ids)
        self._urgency.keep_only(ids)
        return Roll(
            self._all_asked(jobs, asked, now_s), self._all_asked(jobs, at_risk, now_s), len(waiting), live
        )

    def _arrival(self, job: Job, key: TaskKey) -> tuple[float, str, int]:
        """By which tasks are asked about; those of a job in their order, whether they have a place or not."""
        position = self.memberships.position(job, key) if isinstance(job.spec.work, Flower) else 0
        return job.submitted_s, job.job_id, position

    def _look_at_placed(
        self, job: Job, task: Task, held: Sequence[Instance], move: Intent | None, now_s: float
    ) -> tuple[_Entry | None, _Entry | None]:
        """A task that has a place, as one to be asked about and as one at risk; None: it is not."""
        mine = [one for one in held if one.instance_id in task.instances]
        if mine:
            self.lateness.see(task.key, mine[0].offer.offer_id, missed(job, task, now_s))
        if task.phase is Phase.WAITING:
            due = self.questions.waits_due(task.key, task.not_before_s, now_s)
            return (_Entry(task, mine) if due else None), None
        at_risk = None
        if _at_risk(job, task, mine) and (move is None or move.payload["market"] == "spot"):
            at_risk = _Entry(task, mine, standing_of(task, mine, now_s))
        streams = isinstance(job.spec.work, SparkStreaming)
        asked = bool(mine) and reconsidered(mine[0].offer.market == "spot", mine[0].offer.queues, streams)
        if move is not None or not self.questions.runs_due(task, mine, asked, streams, now_s):
            return None, at_risk
        if all_have_notice(mine):
            return _Entry(task, []), at_risk
        if isinstance(job.spec.work, Flower):
            return None, at_risk
        return _Entry(task, mine, standing_of(task, mine, now_s)), at_risk

    def _all_asked(self, jobs: Mapping[str, Job], entries: Sequence[_Entry], now_s: float) -> list[Asked]:
        found = []
        for entry in entries:
            job_id = entry.task.key.job_id
            if not self._quarantine.holds(job_id, now_s):
                with self._quarantine.guard(job_id, "estimating what a task needs"):
                    found.append(self._asked(jobs, entry, now_s))
        return found

    def look_again(self, asked: list[Asked], job_id: str, window: int, now_s: float) -> None:
        """One client of a training was decided about: show the next ones how it stands now."""
        for k, one in enumerate(asked[:window]):
            if one.need.key.job_id == job_id:
                with self._quarantine.guard(job_id, "estimating what a task needs"):
                    asked[k] = self._asked(self._jobs, self._entries[one.need.key], now_s)

    def _asked(self, jobs: Mapping[str, Job], entry: _Entry, now_s: float) -> Asked:
        task = entry.task
        job = self._learned.told(jobs[task.key.job_id], task.key)
        # A place that is as good as lost is none; the task itself stays on it as long as it can.
        shown = task if entry.held else replace(task, phase=None)
        left_usd = self._budgets.pay(job.job_id)
        member = self.memberships.member(task.key)
        written_in = regions_of(self._store, job.job_id, job.spec)
        faster = self._learned.faster(job, task.key)
        need = need_of(
            job, shown, entry.held, now_s, self._settings, member, left_usd, written_in, self._start_s, faster
        )
        cooling = self._cooldowns.of_task(task.key, now_s)
        need = replace(need, cooling_s=cooling) if cooling else need
        return Asked(need if entry.held else self._as_planned(need, job), task, entry.standing)

    def _as_planned(self, need: Need, job: Job) -> Need:
        """A step that waits, with the region of its plan, if it may start there and its deadline is safe."""
        if self._plans is None or not isinstance(job.spec.work, Workflow):
            return need
        if job.job_id not in self._planned:
            own = [one for one in self._held if one.key.job_id == job.job_id]
            used = Counter(one.offer.offer_id for one in self._held if one.key.job_id != job.job_id)
            stands = stands_of(self._store.tasks.of_job(job.job_id), own)
            self._planned[job.job_id] = self._plans.regions(job.spec, stands, self._offers, used)
        planned = replace(need, planned=self._planned[job.job_id].get(need.key.task))
        # The safety net must have a place that stays.
        sure = need.slack_s is not None
        may = any(planned.refusal(one) is None for one in self._offers if not sure or one.market != "spot")
        return planned if may else need

    def _who_wait(
        self, waiting: Sequence[Waiting], moving: Collection[TaskKey], offers: Sequence[Offer], now_s: float
    ) -> list[_Entry]:
        """Tasks without a place that are asked about now, no more than can be decided."""
        mine = [
            row
            for row in waiting
            if row.key not in moving and not self._quarantine.holds(row.key.job_id, now_s)
        ]
        due = [row for row in mine if self.questions.waits_due(row.key, row.not_before_s, now_s)]
        # A step whose inputs are not there waits without end, however late it is.
        backing_off = [row for row in mine if now_s < row.not_before_s < math.inf]
        due += self._urgency.cannot_wait(backing_off, offers, now_s)
        most = self._settings.decisions_per_pass + _SPARE
        if len(due) > most:
            urgent = self._urgency.urgent(due, offers, now_s)
            # Who came first, and, so that nobody is forgotten, who was asked longest ago.
            first = {row.key for row in urgent}
            others = [row for row in due if row.key not in first] if first else due
            half = max(0, most - len(urgent)) // 2
            turn = nsmallest(half, others[half:], key=lambda row: self.questions.last_due_s(row.key))
            due = [*urgent, *others[:half], *turn]
        tasks = self._store.tasks.named([row.key for row in due])
        return [_Entry(tasks[row.key], []) for row in due]


def _at_risk(job: Job, task: Task, held: Sequence[Instance]) -> bool:
    """Whether a task that runs is the net's business: it has a deadline and sits on spot capacity."""
    on_spot = any(instance.offer.market == "spot" for instance in held)
    deadline = getattr(job.spec.work, "deadline_s", None) is not None
    return on_spot and deadline and task.phase in (Phase.STARTING, Phase.RUNNING)
