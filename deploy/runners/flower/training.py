"""The runs of one job, one after the other: each goes on from the newest checkpoint, until one ends well."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from spotweave.deploy.fl.broker import SERVER
from spotweave.deploy.fl.checkpoints import LINK_LOST, Expected, Setup, Status
from spotweave.deploy.model.jobs import SERVER as SERVER_TASK
from spotweave.deploy.model.jobs import Flower
from spotweave.deploy.node.client import NodeError
from spotweave.deploy.runners.base import RunnerError
from spotweave.deploy.runners.flower import app
from spotweave.deploy.runners.flower.brokers import Brokers
from spotweave.deploy.runners.flower.checkpoints import RESULTS, CheckpointSync, read_status
from spotweave.deploy.runners.flower.inspecting import App, Inspector
from spotweave.deploy.runners.flower.liveness import Silence
from spotweave.deploy.runners.flower.server import PlacedServer
from spotweave.deploy.runners.flower.settings import JobFiles, JobRecord
from spotweave.deploy.runners.flower.superlink import SuperLink
from spotweave.deploy.runners.jobfolder import JobFolder, PoisonError
from spotweave.files import write_private

_log = logging.getLogger(__name__)
IDLE_WITHIN_S = 3600.0
"""Longest time without a new status while no client owes a result."""
_RAISED = "ServerApp failed with exception: "
MAX_FRUITLESS = 4
"""This many runs in a row may be lost before a round ends; then it is taken for the app's own fault."""
_WAITS = re.compile(r"Waiting for nodes to connect: \d+ connected \(minimum required: (\d{1,9})\)")


@dataclass(eq=False, repr=False)
class Training:
    """One job's training; not thread-safe."""

    work: Flower
    workdir: Path  # the job's own folder (app, results)
    state: JobFiles
    record: JobRecord
    save: Callable[[], None]  # puts the record on the disk
    superlink: SuperLink  # where runs run
    keeper: CheckpointSync | None  # of checkpoints away from this machine; None: they are here only
    brokers: Brokers  # none, unless its strategy has some
    inspector: Inspector  # of its app
    server: PlacedServer | None  # its instance, if it has one of its own
    # what the ServerApp said last, in this run or an earlier one, as of the latest `listen`
    status: Status | None = None
    _told: Status | None = None
    _idle: Silence = field(default_factory=Silence)

    def __post_init__(self) -> None:
        self.folder = JobFolder(self.workdir)

    @property
    def present_status(self) -> Status | None:
        """What the ServerApp of the present (or last) run said."""
        return self.status if self.status is not None and self.status.run == self.record.runs else None

    def listen(self) -> None:
        """Take note of what the ServerApp says; the job has failed if that cannot be used. Raises OSError."""
        try:
            self.status = read_status(self.folder, self.work.rounds)
        except PoisonError as error:
            self.status = None
            if not self.record.outcome:
                # It goes on and would spoil the next run too.
                self.record.dead_runs += [self.record.run_id] if self.record.run_id else []
                self.fail(str(error))

    def prepare(self) -> bool:
        """Make what the ServerApp expects. Returns whether it could be; the job has failed if not."""
        try:
            self._app()
            self.folder.make(RESULTS)
        # PoisonError is one too.
        except ValueError as error:
            self.fail(str(error))
            return False
        self.write_setup()
        return True

    def keep(self) -> None:
        """Take the newest checkpoint away from this machine, if that is not done; does not wait."""
        status = self.present_status
        if self.keeper is not None and status is not None and status.completed:
            self.keeper.keep(self.folder, status.run, status.completed, self.work.rounds)

    def look(self, online: set[int], *, served: bool = True) -> None:
        """Follow the present run; start one where there is none and `online` nodes suffice.

        Without its server (`served`) runs that are lost are ended, and that is all. Raises SuperLinkDown.
        """
        record = self.record
        runs = self.superlink.runs()
        for run in runs:
            if run.run_id in record.dead_runs and not run.finished:
                self.superlink.stop_run(run.run_id)
        if not served:
            return
        runs = [run for run in runs if run.run_id not in record.dead_runs]
        present = next((run for run in runs if run.run_id == record.run_id), None)
        if present is None:
            # One that was started when the scheduler died before it could write that down.
            unknown = [run for run in runs if not run.finished]
            if unknown:
                record.run_id = unknown[-1].run_id
                self.save()
                return
        if present is not None and not present.finished:
            if why := self._waits_in_vain():
                record.dead_runs.append(record.run_id)
                self.fail(why)
            return
        if present is not None and present.completed:
            # Its last checkpoint may be on its instance only.
            if self.server is not None and not self.server.sync():
                return
            record.outcome = "succeeded"
            self.save()
            return
        if present is not None:
            if failure := server_failure(present.details, self.status, record.runs):
                self.fail(failure)
                return
            _log.warning("run %d of %s was lost: %s", record.run_id, self.state.job_id, present.details)
            self._lost(blame=True)
        if not record.outcome and self._may_start(online) and self._has_newest():
            self._start()

    def _waits_in_vain(self) -> str:
        """Why the current run will never end; "" if it may.

        flwr waits forever for as many clients as a strategy wants, and logs that every second.
        """
        clients = len(self.work.clients) - sum(one.left for one in self.record.clients.values())
        line = self.superlink.last_line() if self.server is None else self.server.last_line
        waits = _WAITS.search(line)
        if waits is not None and int(waits[1]) > clients:
            return f"its ServerApp waits for {int(waits[1])} clients, and the job has {clients} left"
        status = self.present_status
        owed = status is not None and any(own.owes for own in status.clients.values())
        told = status is None or owed or status != self._told
        self._told = status
        if self._idle.note(told) > IDLE_WITHIN_S:
            return (
                f"its ServerApp has made no progress for {IDLE_WITHIN_S:.0f} s while no client owed it a "
                "result: see superlink.log"
            )
        return ""

    def lost_with(self, what: str) -> None:
        """The SuperLink or the server died, and the present run with it; the next one resumes."""
        record = self.record
        if record.run_id:
            _log.warning("the %s of %s is gone, and run %d with it", what, self.state.job_id, record.run_id)
            record.dead_runs.append(record.run_id)
            self._lost(blame=False)

    def write_setup(self) -> None:
        """Tell the ServerApp who takes part."""
        number = {client.name: place for place, client in enumerate(self.work.clients)}
        clients = {
            name: Expected(node_id=client.node_id, attempt=client.attempt, number=number[name])
            for name, client in self.record.clients.items()
            if not client.left
        }
        setup = Setup(
            rounds=self.work.rounds,
            quorum=self._quorum(),
            run=self.record.runs,
            folder=str(self.workdir.resolve() / RESULTS) if self.server is None else self.server.results,
            placed=self.server is not None,
            clients=clients,
            strategy=self.work.strategy,
            samples=[client.samples for client in self.work.clients],
            brokers=self.brokers.places(SERVER),
        )
        file = self.state.setup
        file.parent.mkdir(mode=0o700, exist_ok=True)
        JobFolder(file.parent).write(file.name, setup.model_dump_json(indent=1).encode())

    def _may_start(self, online: set[int]) -> bool:
        """A first run waits for its clients; a later one has a state to save and waits for them itself."""
        members = [client for client in self.record.clients.values() if not client.left]
        here = sum(client.node_id in online for client in members)
        return here >= (self._quorum() or len(members)) or (self.record.runs > 0 and here > 0)

    def _has_newest(self) -> bool:
        """Whether this machine has the newest checkpoint: it may be another one than that of the last run."""
        if self.keeper is None:
            return True
        latest = self.keeper.fetched(self.folder)
        if latest is None:
            if self.keeper.poison:
                self.fail(self.keeper.poison)
            return False
        # Its record may be lost with its machine; what it has kept is not to be in the way of the next run.
        self.record.runs = max(self.record.runs, latest)
        return True

    def _start(self) -> None:
        record = self.record
        record.completed_before = self.status.completed if self.status else 0
        record.runs += 1
        self.save()
        self.write_setup()
        try:
            if self.server is not None:
                self.server.hand_over()
            built = self._app()
            record.run_id = self.superlink.start_run(
                self.work.app, built.content, app.overrides(self.work, built.declared)
            )
        except NodeError as error:
            raise RunnerError(f"the server of {self.state.job_id} is not told of its run: {error}") from error
        except ValueError as error:
            self.fail(str(error))
            return
        self.save()
        _log.info("run %d of %s started, number %d", record.run_id, self.state.job_id, record.runs)

    def _app(self) -> App:
        """The app as it was before anything of the job ran: its code may change its own folder.

        Raises ValueError if it cannot be used, RunnerError if it cannot be inspected now.
        """
        declared, built = self.state.folder / "app.json", self.state.folder / "app.fab"
        try:
            return App(json.loads(declared.read_bytes()), built.read_bytes())
        except FileNotFoundError:
            try:
                found = self.inspector.look(self.workdir, self.work.app)
            except OSError as error:
                raise RunnerError(f"the app of {self.state.job_id} cannot be inspected: {error}") from error
            write_private(declared, json.dumps(found.declared))
            write_private(built, found.content)
            return found

    def _lost(self, *, blame: bool) -> None:
        """The present run is over; `blame`: that counts against the app if it happens all the time."""
        record = self.record
        status = self.status
        if status is not None and status.completed > record.completed_before:
            record.fruitless = 0
        elif blame:
            record.fruitless += 1
        record.run_id = 0
        if record.fruitless >= MAX_FRUITLESS:
            self.fail(f"the ServerApp ended {record.fruitless} times before a round did: out of memory?")
        self.save()

    def fail(self, failure: str) -> None:
        """The job has failed, and no other run is made of this attempt."""
        record = self.record
        record.outcome, record.failure = "failed", failure
        everyone = record.clients if self.server is None else {**record.clients, SERVER_TASK: record.server}
        record.failed_attempts = {name: client.attempt for name, client in everyone.items()}
        self.save()
        _log.warning("job %s failed: %s", self.state.job_id, failure)

    def _quorum(self) -> int | None:
        if not self.work.synchronous:
            return 1
        value = app.typed(self.work.run_config.get(app.QUORUM_KEY, ""))
        return min(value, len(self.work.clients)) if isinstance(value, int) and value > 0 else None


def server_failure(details: str, status: Status | None, run: int) -> str:
    """The user's error in one line if a run failed by an exception of its own, else "".

    `details` is what Flower says of the run, `status` what the ServerApp said last, if it uses `deploy.fl`.
    """
    if status is not None and status.run == run and status.error:
        return status.error
    text = " ".join(details.split())
    if not text.startswith(_RAISED) or LINK_LOST in text:
        return ""
    return f"the ServerApp failed: {text.removeprefix(_RAISED)}"[:300]
