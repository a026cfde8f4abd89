"""What is told of a client's attempt: from the job, the ServerApp's status and the process on the node."""

from __future__ import annotations

from deploy.fl.exchange import Participation
from deploy.model.tasks import Assignment, Phase, TaskReport
from deploy.node.api import ProcessStatus
from deploy.node.client import NodeClient, NodeError, NodeUnreachable
from deploy.runners.flower.failures import last_exception
from deploy.runners.flower.job import FlowerJob

Asked = ProcessStatus | NodeUnreachable | None
"""How the attempt's process is; None: its node does not know it, or there is nobody to ask."""


def report(job: FlowerJob, assignment: Assignment, process: Asked, latest: Phase) -> TaskReport:
    """The report of an attempt.

    Args:
        job: that it is of.
        assignment: the attempt.
        process: on its node.
        latest: phase of the report before, for where a node does not answer.
    """
    name, client = job.client(assignment)
    phase, message = _phase(job, assignment, process, latest)
    status, present = job.training.status(), job.training.present_status()
    rounds = job.work.rounds
    completed = rounds if phase is Phase.SUCCEEDED else status.completed if status else 0
    own = status.clients.get(name) if status else None
    details = {"run": str(job.record.runs), "node_id": str(client.node_id)}
    if status:
        details |= {key: f"{value:.6g}" for key, value in status.metrics.items()}
        if status.resumed_from:
            details["resumed_from"] = status.resumed_from
    if job.keeper is not None:
        details["kept_round"] = str(job.keeper.kept)
        if not phase.ended:
            message = "; ".join(part for part in (message, job.keeper.problem) if part)
    return TaskReport(
        key=assignment.key,
        attempt=assignment.attempt,
        phase=phase,
        progress=completed / rounds,
        saved=completed / rounds,
        message=message,
        executions_done=completed,
        last_execution_s=own.last_epoch_s if own else None,
        round_left_s=present.left_s(name, job.work.epoch_s) if present and job.runs else None,
        details=details,
    )


def _phase(job: FlowerJob, assignment: Assignment, process: Asked, latest: Phase) -> tuple[Phase, str]:
    record = job.record
    name, client = job.client(assignment)
    if record.outcome == "succeeded":
        return Phase.SUCCEEDED, f"{job.work.rounds} rounds done"
    if record.outcome == "failed" and assignment.attempt <= record.failed_attempts.get(name, 0):
        return Phase.FAILED, record.failure
    status = job.training.present_status()
    own = status.clients.get(name, Participation()) if status else None
    if not assignment.nodes:
        if own is None or own.owes:
            return Phase.STARTING, "released, and its result is owed"
        return Phase.WAITING, "released"
    if own is not None and own.error and own.error_attempt == assignment.attempt:
        return Phase.FAILED, _user_error(job, assignment, own.error)
    if assignment.attempt != client.attempt or not client.wanted:
        return Phase.LOST, "stopped"
    if isinstance(process, NodeUnreachable):
        return latest, f"the node does not answer: {process}"
    if process is None:
        if client.seen:
            job.mark_lost(client)
            return Phase.LOST, "the node does not know it any more"
        return Phase.STARTING, "waits for the SuperLink"
    if process.state != "running":
        job.mark_lost(client)
        why = "left on notice" if client.drained else f"the SuperNode ended with {process.exit_code}"
        return Phase.LOST, f"{why}: {_last_words(job, assignment)}".removesuffix(": ")[:300]
    if not client.seen:
        return Phase.STARTING, "the SuperNode is starting"
    if not job.runs and record.runs == 0:
        return Phase.STARTING, "waits for the other clients"
    if own is not None and not own.owes:
        return Phase.WAITING, "has delivered"
    return Phase.RUNNING, "owes a result" if own is not None else ""


def _user_error(job: FlowerJob, assignment: Assignment, error: str) -> str:
    """Flower does not say why an app cannot be loaded; the node's log does."""
    if "attempting to load" not in error:
        return error
    return f"the ClientApp cannot be loaded: {_last_words(job, assignment)}".removesuffix(": ")[:300]


def _last_words(job: FlowerJob, assignment: Assignment) -> str:
    node = assignment.nodes[0]
    with NodeClient(node.address, node.port, node.token, node.certificate) as agent:
        try:
            log = agent.last_log(job.process_id(assignment)).decode(errors="replace")
        except NodeError:
            return ""
    return last_exception(log)
