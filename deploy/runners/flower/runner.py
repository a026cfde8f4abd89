"""The runner of federated trainings.

A SuperLink per job, not one for all: a SuperLink shows every run all its nodes, so jobs would train on each
other's clients; its database, keys, log and death are one job's matter; and forgetting a job is ending one
process tree. It costs a process and a port for each job that runs.

Nothing here waits: `ensure` and `reports` take the next step that is due (SuperLink up, clients registered,
nodes started, run started, run looked after), so the scheduler's loop has to come by, not to stand still.
What talks to a SuperLink or a node does so in a thread, and a slow job delays its own reports only. A
client's key makes it the same Flower node on every instance. The state folder, the processes' environments
and the node agents tell a new runner what an earlier one had started.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from spotweave.deploy.fl.broker import Standing
from spotweave.deploy.fl.checkpoints import Participation, Status
from spotweave.deploy.model.jobs import SERVER, Flower, JobSpec
from spotweave.deploy.model.tasks import Assignment, Phase, TaskReport
from spotweave.deploy.node.client import NodeUnreachable
from spotweave.deploy.runners.base import Printed, RunnerError
from spotweave.deploy.runners.flower import app
from spotweave.deploy.runners.flower.brokers import end_brokers
from spotweave.deploy.runners.flower.checkpoints import CheckpointSync, StoredRounds
from spotweave.deploy.runners.flower.inspecting import Inspector
from spotweave.deploy.runners.flower.job import SUPERLINK_LOG, FlowerJob, end_job, process_id
from spotweave.deploy.runners.flower.liveness import Probe, Probes, Silence
from spotweave.deploy.runners.flower.settings import FlowerSettings, JobFiles
from spotweave.deploy.runners.flower.superlink import box_name
from spotweave.deploy.runners.jobfolder import kept_log
from spotweave.deploy.runners.workers import (
    AsyncRunner,
    Work,
    WorkerPool,
    connect,
    end_process,
    one_line,
    printed_on_node,
    wait_for,
)
from spotweave.deploy.security.untrusted import part

__all__ = ["FlowerRunner", "FlowerSettings"]
_log = logging.getLogger(__name__)
_STEPS, _ENDS = 64, 32
_LOCK_S = 1.0
_GONE_S = 30.0
"""A node that has not answered a stop for so long is taken for gone: its instance is ended too."""
_METRICS_MOST, _NAME_MOST = 32, 64


class _Held:
    def __init__(self, keeper: CheckpointSync | None) -> None:
        self.keeper = keeper
        self.lock = threading.Lock()  # of whoever works on it
        self.job: FlowerJob | None = None  # None before it is needed, and after it was forgotten
        self.forgotten = False
        self.late = False  # whether it was too slow for the latest look
        self.trouble = Silence()  # how long no step of it has gone well
        self.trouble_s = 0.0
        self.problem = ""  # why the latest step did not, "" if it did
        self.reports: dict[str, TaskReport] = {}  # the latest, by attempt


class FlowerRunner(AsyncRunner):
    """Implements `deploy.runners.base.Runner`; may be used from several threads."""

    kinds: tuple[str, ...] = ("flower",)

    def __init__(self, settings: FlowerSettings) -> None:
        super().__init__("flower-ends", _ENDS, settings.state.resolve())
        self._settings = settings
        self._inspector = Inspector(self._folder, settings.sandbox)
        self._jobs: dict[str, _Held] = {}
        self._steps = WorkerPool("flower-jobs", _STEPS)
        self._probes = Probes()

    def check(self, spec: JobSpec, folder: str) -> None:
        """See Runner."""
        app.check(spec, Path(folder), self._inspector.look)

    def ensure(self, assignment: Assignment) -> None:
        """See Runner. What is not done in a moment goes on, and is seen to by `reports`."""
        if len(assignment.nodes) != 1:
            raise RunnerError(f"{assignment.attempt_id}: {len(assignment.nodes)} nodes, a client has one")
        held = self._held(assignment.key.job_id)
        with self._locked(held, assignment) as job:
            job.want(assignment)
        work = self._begin_step(held, [assignment])
        if self._patience.wait(work):
            self._steps.collect(assignment.key.job_id)
            self._raise(work)
            if why := job.why_not_started(assignment):
                raise RunnerError(why)

    def reports(self, assignments: Sequence[Assignment]) -> Sequence[TaskReport]:
        """See Runner. An assignment without nodes (a released client) is told of its job only: WAITING, or
        STARTING where its result is owed; or how the job ended.
        """
        jobs: dict[str, list[Assignment]] = {}
        for assignment in assignments:
            jobs.setdefault(assignment.key.job_id, []).append(assignment)
        steps = {
            job_id: self._begin_step(self._held(job_id), members)
            for job_id, members in jobs.items()
            if self._known(job_id)
        }
        # Who was late before is not waited for until it has caught up.
        within_s = self._settings.reports_within_s
        wait_for([work for job_id, work in steps.items() if not self._held(job_id).late], within_s)
        for job_id, work in steps.items():
            self._take(job_id, work)
        wait_for([asked for one in assignments if (asked := self._ask(one)) is not None], within_s)
        return [self._report(assignment) for assignment in assignments]

    def drain(self, assignment: Assignment, instance_ids: Sequence[str], within_s: float) -> None:
        """See Runner. A SuperNode that is told to end signs off; what it was training is asked for again."""
        with self._locked(self._held(assignment.key.job_id), assignment) as job:
            _, client = job.client(assignment)
            if assignment.attempt != client.attempt or assignment.nodes[0].instance_id not in instance_ids:
                return
            client.drained = True
            job.save()
        self._signal(assignment, process_id(assignment), "TERM")

    def log(self, assignment: Assignment, offset: int, most_bytes: int) -> Printed:
        """See Runner: of the job's SuperLink with its ServerApps (`server`), or of a client on its node."""
        if assignment.key.task == SERVER and not assignment.nodes:
            link = self._state(assignment.key.job_id).log
            try:
                return Printed(*part(link.parent, link.name, offset, most_bytes))
            except FileNotFoundError:
                return kept_log(assignment, SUPERLINK_LOG, offset, most_bytes)
        found = printed_on_node(assignment, process_id(assignment), offset, most_bytes)
        if found is None:
            raise RunnerError(
                "what a client prints is on its instance only, and that has ended: see `server`"
            )
        return found

    def stop(self, assignment: Assignment) -> None:
        """See Runner. Raises RunnerError while a SuperNode still ends.

        A node that does not answer is gone or will be: its instance is ended too. What it trained is asked
        for again, and its place at the SuperLink is taken by the next attempt.
        """
        name = f"{assignment.attempt_id}:stop"
        work = self._acts.begin(name, lambda: self._stop(assignment))
        if not self._patience.wait(work) and work.took_s < _GONE_S:
            raise RunnerError(f"{assignment.attempt_id} still ends")
        self._acts.collect(name)
        if not work.future.done():
            _log.warning("%s is not told to end: its node has not answered", assignment.attempt_id)
        else:
            self._raise(work)
        self._probes.forget(assignment.attempt_id)
        if (held := self._jobs.get(assignment.key.job_id)) is not None:
            held.reports.pop(assignment.attempt_id, None)

    def leave(self, assignment: Assignment) -> None:
        """See Runner. It is asked for nothing any more; rounds that wait for it go on."""
        with self._locked(self._held(assignment.key.job_id), assignment) as job:
            _, client = job.client(assignment)
            client.left, client.wanted = True, False
            job.save()
            job.training.write_setup()

    def forget(self, job_id: str) -> None:
        """See Runner. Processes and secrets go first. Raises RunnerError while they end, and for a limited
        time while the last checkpoint of a job that succeeded is not kept.
        """
        held = self._held(job_id)
        held.forgotten = True
        self._finish(f"{job_id}:forget", lambda: self._forget(job_id, held), f"job {job_id} still ends")
        with self._lock:
            self._jobs.pop(job_id, None)
        self._steps.collect(job_id)
        for attempt_id in held.reports:
            self._probes.forget(attempt_id)

    def shutdown(self) -> None:
        """See Runner. Nodes' processes end with their instances."""
        self.close()
        for file in self._folder.glob("*/job.json"):
            JobFiles(file.parent).process.end(grace_s=0.0)
            end_brokers(file.parent)

    def close(self) -> None:
        """Begin nothing more; whatever runs goes on and is found by the next runner."""
        with self._lock:
            jobs = list(self._jobs.values())
            self._jobs.clear()
        for held in jobs:
            with held.lock:
                held.forgotten = True

    def _known(self, job_id: str) -> bool:
        held = self._jobs.get(job_id)
        return (held is not None and held.job is not None) or self._state(job_id).record.exists()

    def _state(self, job_id: str) -> JobFiles:
        return JobFiles(self._folder / job_id)

    def _held(self, job_id: str) -> _Held:
        with self._lock:
            if job_id not in self._jobs:
                self._jobs[job_id] = _Held(self._keeper(job_id))
            return self._jobs[job_id]

    def _keeper(self, job_id: str) -> CheckpointSync | None:
        if self._settings.checkpoints is None:
            return None
        rounds = StoredRounds(self._settings.checkpoints, job_id)
        return CheckpointSync(rounds, job_id, self._settings.checkpoint_most_bytes)

    @contextmanager
    def _locked(self, held: _Held, assignment: Assignment) -> Iterator[FlowerJob]:
        """The job, for something short. Raises RunnerError if it is busy: its SuperLink may not answer."""
        job_id = assignment.key.job_id
        if not held.lock.acquire(timeout=0.0 if held.late else _LOCK_S):
            raise RunnerError(f"job {job_id} is being looked after: its SuperLink is slow to answer")
        try:
            yield self._job(held, assignment)
        except RunnerError:
            raise
        except Exception as error:
            raise RunnerError(f"job {job_id}: {one_line(error)}") from error
        finally:
            held.lock.release()

    def _job(self, held: _Held, assignment: Assignment) -> FlowerJob:
        """The job; needs its lock."""
        job_id = assignment.key.job_id
        if held.forgotten:
            raise RunnerError(f"job {job_id} is over")
        if held.job is None:
            state, workdir = self._state(job_id), Path(assignment.workdir)
            held.job = FlowerJob(state, assignment.spec, workdir, self._settings, held.keeper)
        return held.job

    def _begin_step(self, held: _Held, members: Sequence[Assignment]) -> Work:
        def step() -> None:
            with held.lock:
                self._job(held, members[0]).step(members)

        return self._steps.begin(members[0].key.job_id, step)

    def _take(self, job_id: str, work: Work) -> None:
        """Take note of how a step went, or of that it goes on."""
        held = self._held(job_id)
        held.late = not work.future.done()
        if held.late:
            held.problem = f"its SuperLink or nodes have kept the runner waiting for {work.took_s:.0f} s"
            held.trouble_s = held.trouble.note(work.begun_s is None)
            return
        self._steps.collect(job_id)
        error = work.future.exception()
        held.problem = "" if error is None else one_line(error)
        held.trouble_s = held.trouble.note(error is None)
        if error is not None:
            expected = isinstance(error, RunnerError)
            _log.warning("job %s: %s", job_id, held.problem, exc_info=None if expected else error)
            if not expected:
                # It will not pass by waiting.
                held.trouble_s = float("inf")

    def _ask(self, assignment: Assignment) -> Work | None:
        held = self._jobs.get(assignment.key.job_id)
        if held is None or held.job is None or held.late or held.job.over or not assignment.nodes:
            return None
        try:
            name, _ = held.job.client(assignment)
            own = held.job.participation(name)
            words = own is not None and _unexplained(own, assignment)
            take = held.job.taker(assignment)
        except Exception:
            # `_report` says what is wrong.
            return None
        return self._probes.begin(assignment, process_id(assignment), words=words, take=take)

    def _report(self, assignment: Assignment) -> TaskReport:
        """Report one attempt; errors are confined to it."""
        held = self._jobs.get(assignment.key.job_id)
        if held is None or held.forgotten:
            return _plain(assignment, Phase.LOST, "it was never started", None)
        before = held.reports.get(assignment.attempt_id)
        try:
            found = self._find(held, assignment, before)
        except Exception as error:
            _log.warning("%s cannot be looked at", assignment.attempt_id, exc_info=error)
            found = _plain(assignment, Phase.LOST, f"the runner cannot look at it: {one_line(error)}", before)
        held.reports[assignment.attempt_id] = found
        return found

    def _find(self, held: _Held, assignment: Assignment, before: TaskReport | None) -> TaskReport:
        latest = before.phase if before else Phase.STARTING
        # By then a SuperLink that hangs has been started again.
        patience_s = self._settings.superlink_silent_s + self._settings.node_silent_s
        if assignment.nodes and held.trouble_s > patience_s:
            return _plain(assignment, Phase.LOST, held.problem, before)
        if held.late or held.job is None:
            return _plain(assignment, latest, held.problem, before)
        answer: Probe | None = None
        with self._locked(held, assignment) as job:
            name, client = job.client(assignment)
            if assignment.nodes and not job.over:
                answer = self._probes.latest(assignment)
                if assignment.attempt == client.attempt:
                    job.liveness.agent(name, answer)
            return report(job, assignment, answer, latest)

    def _stop(self, assignment: Assignment) -> None:
        if assignment.nodes and assignment.nodes[0].port:
            try:
                end_process(connect(assignment.nodes[0]), process_id(assignment))
            except NodeUnreachable as error:
                _log.warning("%s is not told to end: %s", process_id(assignment), error)
        job_id = assignment.key.job_id
        if self._known(job_id):
            held = self._held(job_id)
            with held.lock:
                if not held.forgotten:
                    self._job(held, assignment).unwant(assignment)

    def _forget(self, job_id: str, held: _Held) -> None:
        state = self._state(job_id)
        # Before the lock: whoever has it may be waiting for the SuperLink.
        state.process.end(grace_s=0.0)
        with held.lock:
            if held.job is not None:
                held.job.superlink.end()
                held.job = None
            self._settings.sandbox.over(box_name(job_id))
            end_job(state, held.keeper, self._settings.keep_within_s)
            self._settings.sandbox.forget(job_id)


def _plain(assignment: Assignment, phase: Phase, message: str, before: TaskReport | None) -> TaskReport:
    """A report where nothing new is known."""
    found = before or TaskReport(assignment.key, assignment.attempt, phase)
    return replace(found, phase=phase, message=message)


def asynchronous_details(
    work: Flower, status: Status | None, standing: Sequence[Standing], name: str
) -> dict[str, str]:
    """Tell people of one client, from what its ServerApp and its brokers (`standing`, by client) say.

    Where they are known: `version` of the model that it works on; `staleness` of the update that waits for
    its use, or is used again (`shadow`); `share` of all used updates that are its own; `weight`, its samples'
    share of all.
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


def report(job: FlowerJob, assignment: Assignment, answer: Probe | None, latest: Phase) -> TaskReport:
    """Report an attempt, with its node's latest answer; `latest`: its phase where that does not answer."""
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
    if not job.work.synchronous and client is not job.record.server:
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
        execution_saved=job.epochs.share(name, completed + 1)
        if present is not None and present.owes
        else 0.0,
        details=details,
    )


def _phase(job: FlowerJob, assignment: Assignment, answer: Probe | None, latest: Phase) -> tuple[Phase, str]:
    record = job.record
    name, client = job.client(assignment)
    if record.outcome == "succeeded":
        return Phase.SUCCEEDED, f"{job.work.rounds} rounds done"
    if record.outcome == "failed" and assignment.attempt <= record.failed_attempts.get(name, 0):
        return Phase.FAILED, record.failure
    own = job.participation(name)
    if not assignment.nodes:
        if client is job.record.server:
            return Phase.STARTING, "has no instance"
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
        what = "server" if client is job.record.server else "SuperNode"
        why = "left on notice" if client.drained else f"the {what} ended with {answer.process.exit_code}"
        return Phase.LOST, f"{why}: {answer.words}".removesuffix(": ")
    if not client.seen:
        return Phase.STARTING, "the SuperNode is starting"
    if client is job.record.server:
        problem = job.server.problem if job.server is not None else ""
        return Phase.RUNNING, problem or ("" if job.runs else "waits for the clients")
    if not job.runs and record.runs == 0:
        return Phase.STARTING, "waits for the other clients"
    if own is not None and not own.owes:
        return Phase.WAITING, "has delivered"
    return Phase.RUNNING, "owes a result" if own is not None else ""


def _given_up(job: FlowerJob, assignment: Assignment) -> str:
    name, client = job.client(assignment)
    if job.hopeless:
        return job.hopeless
    if job.keeper is not None and job.keeper.fetching.seconds > job.settings.keep_within_s:
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
