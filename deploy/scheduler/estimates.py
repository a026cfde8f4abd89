"""What is expected of tasks: how long they take, and what they still need, from specs and what was seen."""

from __future__ import annotations

from deploy.model.instances import Offer
from deploy.model.jobs import Flower, SparkStreaming
from deploy.model.tasks import Phase
from deploy.scheduler.needs import Kind, Need, Round
from deploy.store.instances import Instance
from deploy.store.jobs import Job
from deploy.store.tasks import Task

DEFAULT_STANDARD_S = 600.0
"""Of a job that says nothing and of which nothing was seen."""
DEFAULT_EPOCH_S = 60.0
SETUP_S = 20.0
"""From ready nodes to work: what runners need to bring a task up."""


def need_of(
    job: Job, task: Task, held: list[Instance], now_s: float, interruptions: int, peers_usd_hour: float
) -> Need:
    """The need of a task, in physical units.

    Args:
        job: it belongs to.
        task: as the store knows it.
        held: its live instances.
        now_s: epoch seconds.
        interruptions: so far.
        peers_usd_hour: price of what the job's other tasks hold.
    """
    work = job.spec.work
    running = task.phase in (Phase.STARTING, Phase.RUNNING)
    here: Offer | None = held[0].offer if held else None
    common = {
        "key": task.key,
        "resources": job.spec.resources,
        "places": job.spec.places,
        "age_s": max(0.0, now_s - job.submitted_s),
        "waited_s": 0.0 if task.waiting_since_s is None else max(0.0, now_s - task.waiting_since_s),
        "restart_s": SETUP_S,
        "interruptions": interruptions,
        "misses": task.misses,
        "running": running,
        "here": None if here is None else here.offer_id,
    }
    if isinstance(work, Flower):
        return Need(**common, **_federated(work, task, peers_usd_hour))  # type: ignore[arg-type]
    if isinstance(work, SparkStreaming):
        return Need(**common, **_streaming(work, task))  # type: ignore[arg-type]
    standard_s = work.standard_s or DEFAULT_STANDARD_S
    kind: Kind = "general" if work.deadline_s is None else "deadline"
    left_s = standard_s * (1 - task.progress) / (here.speed if here is not None else 1.0)
    return Need(
        **common,  # type: ignore[arg-type]
        kind=kind,
        standard_s=standard_s,
        slack_s=None if work.deadline_s is None else job.submitted_s + work.deadline_s - now_s,
        progress=task.progress if running else task.saved,
        left_here_s=max(0.0, left_s),
    )


def _streaming(work: SparkStreaming, task: Task) -> dict[str, object]:
    standard_s = task.last_execution_s or work.standard_s or work.batch_deadline_s / 2
    left = 1000 if work.batches is None else max(1, work.batches - task.executions_done)
    return {
        "kind": "streaming",
        "standard_s": standard_s,
        "executions_left": left,
        "period_s": work.period_s,
        "slack_s": work.batch_deadline_s,
        "progress": 0.0 if work.batches is None else min(1.0, task.executions_done / work.batches),
        "left_here_s": standard_s,
    }


def _federated(work: Flower, task: Task, peers_usd_hour: float) -> dict[str, object]:
    epoch_s = task.last_execution_s or work.epoch_s or DEFAULT_EPOCH_S
    waiting = task.phase is Phase.WAITING
    left_s = task.round_left_s or 0.0
    return {
        "kind": "federated",
        "standard_s": epoch_s,
        "executions_left": max(0, work.rounds - task.executions_done),
        "progress": 0.0,
        "left_here_s": epoch_s,
        "round": Round(
            idle=waiting,
            owes=not waiting,
            round_left_s=left_s,
            round_s=max(epoch_s, left_s),
            cold_s=SETUP_S,
            others_usd_hour=peers_usd_hour,
        ),
    }
