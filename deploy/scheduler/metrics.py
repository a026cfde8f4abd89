"""What Prometheus is told of the scheduler. Times are in seconds, money in USD.

Counters count since the process started, from the event log, whoever wrote it. Gauges are of the latest pass;
money is brought up to date every half a minute.

| name | labels | what |
|---|---|---|
| spotweave_scheduler_pass_seconds | | one pass of the loop |
| spotweave_scheduler_passes_failed_total | | passes that an error ended |
| spotweave_scheduler_decisions_total | policy, choice | decisions written down; choice: offer, none |
| spotweave_scheduler_overruled_total | by | by: net (a deadline), move (not worth it), guide (not valid) |
| spotweave_scheduler_invalid_answers_total | policy, fault | fault: error, index, masked, values |
| spotweave_scheduler_watched_total | policy, agreed | the same of a policy that is watched; agreed: yes, no |
| spotweave_scheduler_watched_difference_usd | policy | sum of estimated differences; < 0: it is cheaper |
| spotweave_scheduler_tasks_waiting | | tasks without a place |
| spotweave_scheduler_instances | market | live instances |
| spotweave_scheduler_launches_total | | instances that were launched |
| spotweave_scheduler_refusals_total | | launches that were refused |
| spotweave_scheduler_interruptions_total | notice | instances that providers took; notice: yes, no |
| spotweave_scheduler_tasks_lost_total | | attempts that were lost |
| spotweave_scheduler_user_failures_total | | attempts that failed by the job's own fault |
| spotweave_scheduler_moves_total | | running tasks that were moved to another offer |
| spotweave_scheduler_clients_left_total | | federated clients whose budget was spent |
| spotweave_scheduler_jobs_ended_total | state | jobs that ended |
| spotweave_scheduler_deadline_misses_total | kind | of jobs that ended; kind: job, batch |
| spotweave_scheduler_deadlines_hopeless_total | | deadlines that nothing can meet any more |
| spotweave_scheduler_cost_usd | | of everything so far |
| spotweave_scheduler_on_demand_usd | | what the same instances would have cost on demand |
| spotweave_scheduler_intents_pending | kind | what is still to be done |
| spotweave_scheduler_intent_oldest_seconds | | age of the oldest of these |
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from spotweave.deploy.model.jobs import JobState, SparkStreaming
from spotweave.deploy.scheduler.decider import Decider
from spotweave.deploy.store.errors import NotFoundError
from spotweave.deploy.store.events import Event
from spotweave.deploy.store.intents import IntentKind
from spotweave.deploy.store.store import Store

_PASS_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_MONEY_S = 30.0
_EVENTS_AT_ONCE = 1000
_PREFIX = "spotweave_scheduler"


class SchedulerMetrics:
    """The metrics of one scheduler."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, what: str, *labels: str) -> Counter:
            return Counter(f"{_PREFIX}_{name}", what, labels, registry=registry)

        def gauge(name: str, what: str, *labels: str) -> Gauge:
            return Gauge(f"{_PREFIX}_{name}", what, labels, registry=registry)

        self.pass_s = Histogram(
            f"{_PREFIX}_pass_seconds", "One pass of the loop.", buckets=_PASS_BUCKETS, registry=registry
        )
        self.failed = counter("passes_failed_total", "Passes that an error ended.")
        self.decisions = counter("decisions_total", "Decisions written down.", "policy", "choice")
        self.overruled = counter("overruled_total", "Choices that were overruled.", "by")
        self.invalid = counter(
            "invalid_answers_total", "Answers of policies that must not be followed.", "policy", "fault"
        )
        self.watched = counter("watched_total", "Choices of a policy that is watched.", "policy", "agreed")
        self.difference = gauge(
            "watched_difference_usd", "Sum of a watched policy's estimated differences.", "policy"
        )
        self.waiting = gauge("tasks_waiting", "Tasks without a place.")
        self.instances = gauge("instances", "Live instances.", "market")
        self.interruptions = counter("interruptions_total", "Instances that providers took.", "notice")
        self.ended = counter("jobs_ended_total", "Jobs that ended.", "state")
        self.misses = counter("deadline_misses_total", "Deadlines missed by jobs that ended.", "kind")
        self.cost = gauge("cost_usd", "Cost of everything so far.")
        self.on_demand = gauge("on_demand_usd", "What the same instances would have cost on demand.")
        self.intents = gauge("intents_pending", "What is still to be done.", "kind")
        self.oldest_s = gauge("intent_oldest_seconds", "Age of the oldest intent that is not done.")
        self._deciders: list[tuple[Decider, dict[tuple[str, str], int]]] = []
        self._after: int | None = None
        self._money_s = 0.0
        self._on: Mapping[str, Callable[[Store, Event], None]] = {
            "task.decided": self._decided,
            "task.caught": lambda store, event: self.overruled.labels("net").inc(),
            "instance.ended": self._instance_ended,
            "instance.vanished": lambda store, event: self.interruptions.labels("no").inc(),
            **{f"job.{state}": self._job_ended for state in JobState if not state.live},
        }
        self._counted = {
            "instance.launched": counter("launches_total", "Instances that were launched."),
            "instance.refused": counter("refusals_total", "Launches that were refused."),
            "task.lost": counter("tasks_lost_total", "Attempts that were lost."),
            "task.failed": counter("user_failures_total", "Attempts that failed by the job's own fault."),
            "task.moved": counter("moves_total", "Running tasks that were moved to another offer."),
            "task.left": counter("clients_left_total", "Federated clients whose budget was spent."),
            "task.hopeless": counter("deadlines_hopeless_total", "Deadlines that nothing can meet any more."),
        }
        """By kind of event: what counts it."""

    def watch(self, *deciders: Decider | None) -> None:
        """Count these deciders' invalid answers from now on."""
        self._deciders = [(one, dict(one.invalid)) for one in deciders if one is not None]

    @contextmanager
    def pass_of(self, store: Store) -> Iterator[None]:
        """Measure one pass; then take in what it wrote."""
        if self._after is None:
            self._after = store.events.last_sequence()
        started = time.perf_counter()
        try:
            yield
        except Exception:
            self.failed.inc()
            raise
        finally:
            self.pass_s.observe(time.perf_counter() - started)
        self._take_in(store)

    def see(self, store: Store, waiting: int, live: Mapping[str, int], now_s: float) -> None:
        """What is there at the end of a pass."""
        for decider, counted in self._deciders:
            for key, times in decider.invalid.items():
                self.invalid.labels(*key).inc(times - counted.get(key, 0))
                counted[key] = times
        self.waiting.set(waiting)
        for market in ("owned", "on_demand", "spot"):
            self.instances.labels(market).set(live.get(market, 0))
        pending = store.intents.pending_counts()
        for kind in IntentKind:
            self.intents.labels(kind.value).set(pending.get(kind, (0, now_s))[0])
        self.oldest_s.set(now_s - min((first_s for _, first_s in pending.values()), default=now_s))
        if now_s - self._money_s >= _MONEY_S:
            self._money_s = now_s
            bill = store.costs.total(now_s)
            self.cost.set(float(bill.usd))
            self.on_demand.set(float(bill.on_demand_usd))

    def _take_in(self, store: Store) -> None:
        assert self._after is not None
        while events := store.events.after(self._after, _EVENTS_AT_ONCE):
            for event in events:
                if event.kind in self._counted:
                    self._counted[event.kind].inc()
                elif event.kind in self._on:
                    self._on[event.kind](store, event)
            self._after = events[-1].sequence

    def _decided(self, store: Store, event: Event) -> None:
        offer, overruled = event.data["offer"], event.data["overruled"]
        self.decisions.labels(event.data["policy"], "none" if offer is None else "offer").inc()
        if overruled:
            # What the net overrules goes somewhere; what is not worth a switch stays.
            by = "guide" if "invalid" in event.data else "move" if offer is None else "net"
            self.overruled.labels(by).inc()
        watched = event.data.get("watched")
        if watched is not None:
            agreed = "yes" if watched["offer"] == offer else "no"
            self.watched.labels(watched["policy"], agreed).inc()
            self.difference.labels(watched["policy"]).inc(watched["difference_usd"])

    def _instance_ended(self, store: Store, event: Event) -> None:
        if not event.data["by_provider"]:
            return
        try:
            noticed = store.instances.get(str(event.instance_id)).notice_s is not None
        except NotFoundError:
            noticed = False
        self.interruptions.labels("yes" if noticed else "no").inc()

    def _job_ended(self, store: Store, event: Event) -> None:
        self.ended.labels(event.kind.removeprefix("job.")).inc()
        try:
            job = store.jobs.get(str(event.job_id))
        except NotFoundError:
            return
        work = job.spec.work
        if isinstance(work, SparkStreaming):
            self.misses.labels("batch").inc(sum(task.misses for task in store.tasks.of_job(job.job_id)))
        elif work.deadline_s is not None and event.time_s > job.submitted_s + work.deadline_s:
            self.misses.labels("job").inc()
