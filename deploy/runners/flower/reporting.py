"""What is told of a client's attempt: from the job, the ServerApp's status and the process on the node."""

from __future__ import annotations

from collections.abc import Sequence

from deploy.fl.brokers.messages import Standing
from deploy.fl.checkpoints import Participation, Status
from deploy.model.jobs import Flower
from deploy.model.tasks import Assignment, Phase, TaskReport
from deploy.runners.flower.job import FlowerJob
from deploy.runners.flower.liveness import Probe

# What is told of a client of an asynchronous training: whether it counts for as much as it should.


def asynchronous_details(
    work: Flower, status: Status | None, standing: Sequence[Standing], name: str
) -> dict[str, str]:
    """For people.

    Args:
        work: of the job.
        status: what its ServerApp says; None: nothing yet.
        standing: what its brokers say, by client; empty: nothing, or it has none.
        name: of the client.

    Returns:
        Where they are known: `version` of the model that it works on; `staleness` of the update that waits
        for its use, or is used again (`shadow`); `share` of all used updates that are its own; `weight`, its
        samples' share of all.
    """
    number = [client.name for client in work.clients].index(name)
    samples = [client.samples for client in work.clients]
    found = {"weight": f"{samples[number] / sum(samples):.3g}"}
    own = status.clients.get(name) if status else None
    if own is not None and own.version is not None:
        found["version"] = str(own.version)
    used = [one.used for one in standing] if standing else (status.used if status else [])
    if len(used) == len(samples) and sum(used) > 0:
        found["share"] = f"{used[number] / sum(used):.3g}"
    if standing and standing[number].staleness is not None:
        found["staleness"] = str(standing[number].staleness)
        found["shadow"] = "yes" if standing[number].slow else "no"
    return found


_METRICS_MOST = 32
_NAME_MOST = 64


def report(job: FlowerJob, assignment: Assignment, answer: Probe | None, latest: Phase) -> TaskReport:
    """The report of an attempt.

    Args:
        job: that it is of.
        assignment: the attempt.
        answer: the latest of its node; None: there is none yet, or nobody to ask.
        latest: phase of the report before, for where a node does not answer.
    """
    name, client = job.client(assignment)
    phase, message = _phase(job, assignment, answer, latest)
    status, present = job.training.status, job.participation(name)
    rounds = job.work.rounds
    completed = rounds if phase is Phase.SUCCEEDED else status.completed if status else 0
    own = status.clients.get(name) if status else None
    details = {}
    if status:
        first = list(status.metrics.items())[:_METRICS_MOST]
        details = {key[:_NAME_MOST]: f"{value:.6g}" for key, value in first}
        if status.resumed_from:
            details["resumed_from"] = status.resumed_from[:_NAME_MOST]
    details |= {"run": str(job.record.runs), "node_id": str(client.node_id)}
    if not job.work.synchronous:
        details |= asynchronous_details(job.work, status, job.brokers.standing, name)
    if job.keeper is not None:
        details["kept_round"] = str(job.keeper.kept)
        if not phase.ended:
            message = "; ".join(part for part in (message, job.keeper.problem) if part)
    if not phase.ended:
        message = "; ".join(part for part in (message, job.brokers.problem) if part)
    return TaskReport(
        key=assignment.key,
        attempt=assignment.attempt,
        phase=phase,
        progress=completed / rounds,
        saved=completed / rounds,
        message=" ".join(message.split())[:300],
        executions_done=completed,
        last_execution_s=own.last_epoch_s if own else None,
        delivered=present is not None and not present.owes,
        execution_since_s=present.asked_s if present and present.owes and phase is Phase.RUNNING else None,
        details=details,
    )


def wants_words(job: FlowerJob, assignment: Assignment) -> bool:
    """Whether the log of an attempt that runs says what is to be reported of it."""
    name, _ = job.client(assignment)
    own = job.participation(name)
    return own is not None and _unexplained(own, assignment)


def _phase(job: FlowerJob, assignment: Assignment, answer: Probe | None, latest: Phase) -> tuple[Phase, str]:
    record = job.record
    name, client = job.client(assignment)
    if record.outcome == "succeeded":
        return Phase.SUCCEEDED, f"{job.work.rounds} rounds done"
    if record.outcome == "failed" and assignment.attempt <= record.failed_attempts.get(name, 0):
        return Phase.FAILED, record.failure
    own = job.participation(name)
    if not assignment.nodes:
        if own is None or own.owes:
            return Phase.STARTING, "released, and its result is owed"
        return Phase.WAITING, "released"
    if own is not None and own.error and own.error_attempt == assignment.attempt:
        return Phase.FAILED, _user_error(own, assignment, answer)
    if assignment.attempt != client.attempt or not client.wanted:
        return Phase.LOST, "stopped"
    if not client.given_up and (reason := _given_up(job, assignment)):
        job.give_up(client, reason)
    if client.given_up:
        return Phase.LOST, client.given_up
    if answer is None or answer.unreachable:
        return latest, f"the node does not answer: {answer.unreachable}" if answer else "the node is asked"
    if answer.process is None:
        if client.seen and answer.asked_s > job.liveness.seen_s(name):
            job.mark_lost(client)
            return Phase.LOST, "the node does not know it any more"
        return Phase.STARTING, job.why_not_started(assignment) or "waits for the SuperLink"
    if answer.process.state != "running":
        job.mark_lost(client)
        why = "left on notice" if client.drained else f"the SuperNode ended with {answer.process.exit_code}"
        return Phase.LOST, f"{why}: {answer.words}".removesuffix(": ")
    if not client.seen:
        return Phase.STARTING, "the SuperNode is starting"
    if not job.runs and record.runs == 0:
        return Phase.STARTING, "waits for the other clients"
    if own is not None and not own.owes:
        return Phase.WAITING, "has delivered"
    return Phase.RUNNING, "owes a result" if own is not None else ""


def _given_up(job: FlowerJob, assignment: Assignment) -> str:
    """Why an attempt is to be given up though nothing is known of its end, "" if it is not."""
    name, client = job.client(assignment)
    if job.hopeless:
        return job.hopeless
    if job.keeper is not None and job.keeper.fetching_s > job.settings.keep_within_s:
        return job.keeper.problem or "its checkpoints are not fetched"
    reason, hangs = job.liveness.verdict(name, client)
    client.hangs += hangs
    why = job.why_not_started(assignment)
    return f"{reason}: {why}" if reason and why and not client.seen else reason


def _unexplained(own: Participation, assignment: Assignment) -> bool:
    """Flower does not say why an app cannot be loaded; the node's log does."""
    return own.error_attempt == assignment.attempt and "attempting to load" in own.error


def _user_error(own: Participation, assignment: Assignment, answer: Probe | None) -> str:
    if not _unexplained(own, assignment):
        return own.error
    words = answer.words if answer else ""
    return f"the ClientApp cannot be loaded: {words}".removesuffix(": ")
