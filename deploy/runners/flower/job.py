"""One job: its SuperLink, its clients' nodes, its training. A step of it never waits for long."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable
from pathlib import Path

from deploy.model.jobs import JobSpec
from deploy.model.tasks import Assignment
from deploy.node.api import ProcessSpec, ProcessStatus
from deploy.node.client import NodeClient, NodeError, NodeRefused, NodeUnreachable
from deploy.runners.base import RunnerError
from deploy.runners.flower import app
from deploy.runners.flower.identity import Identity
from deploy.runners.flower.keeping import Keeper
from deploy.runners.flower.record import ClientRecord, JobRecord
from deploy.runners.flower.superlink import QUIET, SuperLink, SuperLinkDown, free_port
from deploy.runners.flower.training import Training

_LOOK_S = 0.5
_RESTART_S = 5.0
_MAX_STARTS = 5
_HOPELESS_S = 60.0


class FlowerJob:
    """Everything of one job; not safe to use from several threads.

    Args of its making:
        folder: state, of this job alone.
        job_id: the scheduler's.
        spec: the job.
        workdir: the job's own folder (app, results).
        host: IP address of SuperLinks, as nodes reach it.
        node_python: the Python of nodes; its folder has Flower's programs.
        keeper: of its checkpoints away from this machine; None: they are here only.

    Attributes:
        record: what is known of it.
        training: its runs.
        keeper: as given.
        online: ids of the nodes that were there at the latest look.

    Raises:
        RunnerError: if there is no free port.
    """

    def __init__(
        self,
        folder: Path,
        job_id: str,
        spec: JobSpec,
        workdir: Path,
        host: str,
        node_python: str,
        keeper: Keeper | None = None,
    ) -> None:
        self.job_id = job_id
        self.work = app.flower(spec)
        self._spec = spec
        self._folder = folder
        self._workdir = workdir
        self._node_python = node_python
        self._file = record_file(folder)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        names = [client.name for client in self.work.clients]
        record = JobRecord.load(self._file)
        if record is None:
            try:
                record = JobRecord(port=free_port(host), clients={name: ClientRecord() for name in names})
            except OSError as error:
                raise RunnerError(str(error)) from error
            record.save(self._file)
        self.record = record
        self._identity = Identity(folder / "identity")
        self._identity.make(host, names)
        self.superlink = SuperLink(folder, host, record.port, self._identity)
        self.keeper = keeper
        self.training = Training(
            job_id, self.work, workdir, folder, record, self.save, self.superlink, keeper
        )
        self._next_start_s = 0.0
        self._next_look_s = 0.0
        self.online: set[int] = set()

    @property
    def over(self) -> bool:
        """Whether the training has ended, well or not."""
        return self.record.outcome != ""

    @property
    def runs(self) -> bool:
        """Whether a run is going on, as far as is known."""
        return self.record.run_id != 0 and not self.over

    def save(self) -> None:
        """Put the record on the disk."""
        self.record.save(self._file)

    def want(self, assignment: Assignment) -> None:
        """Note that an attempt should run. A new attempt after a failure makes another run."""
        name, client = self.client(assignment)
        if assignment.attempt < client.attempt or (
            assignment.attempt == client.attempt and not client.wanted
        ):
            raise RunnerError(f"{assignment.attempt_id} was stopped before: only a new attempt can run")
        if assignment.attempt == client.attempt:
            return
        client.set_offline = client.set_offline or client.attempt > 0
        client.attempt = assignment.attempt
        client.instance_id = assignment.nodes[0].instance_id
        client.wanted, client.seen, client.drained = True, False, False
        record = self.record
        if record.outcome == "failed" and assignment.attempt > record.failed_attempts.get(name, 0):
            record.outcome, record.failure, record.failed_attempts = "", "", {}
            record.run_id, record.fruitless = 0, 0
        self.save()
        if client.node_id:
            self.training.write_setup()

    def client(self, assignment: Assignment) -> tuple[str, ClientRecord]:
        """The name and record of a task's client."""
        name = assignment.key.task.removeprefix("client-")
        try:
            return name, self.record.clients[name]
        except KeyError:
            raise RunnerError(f"{assignment.key.task!r} is no task of job {self.job_id}") from None

    def step(self, assignments: Iterable[Assignment]) -> None:
        """Do the next thing that is due: SuperLink, registration, nodes, run.

        Raises:
            RunnerError: if that cannot be done now.
        """
        self.training.keep()
        if self.over or not self._superlink_lives():
            return
        new = [one for one in assignments if one.nodes and not self.client(one)[1].seen]
        if time.monotonic() < self._next_look_s and not new:
            return
        self._next_look_s = time.monotonic() + _LOOK_S
        try:
            self.online = self.superlink.online()
            self._register()
            errors = [self._start_node(assignment) for assignment in new]
            self.training.look(self.online)
        except SuperLinkDown:
            # It is starting, or was just killed: the next step sees to it.
            return
        if self.record.starts:
            self.record.starts = 0
            self.save()
        if first := next((error for error in errors if error), None):
            raise RunnerError(first)

    def mark_lost(self, client: ClientRecord) -> None:
        """Its node is gone: say so to the SuperLink at once, or at the next occasion."""
        if client.seen and not client.set_offline:
            client.set_offline, client.seen = True, False
            self.save()

    def end(self) -> None:
        """End the SuperLink and its run. Raises RunnerError."""
        self.superlink.end()

    def forget(self) -> None:
        """End it for good; logs and results stay, in the job's own folder."""
        self.end()
        self._identity.destroy()
        if self.superlink.log.exists():
            shutil.copyfile(self.superlink.log, self.training.results / "superlink.log")
        shutil.rmtree(self._folder)

    def process_id(self, assignment: Assignment) -> str:
        """Of the attempt's SuperNode."""
        return f"flower.{assignment.attempt_id}"

    def _superlink_lives(self) -> bool:
        """Whether its process does; starts it where it does not, but not too often."""
        record = self.record
        if self.superlink.running():
            return True
        if not any(client.wanted for client in record.clients.values()):
            return False
        hopeless = record.starts >= _MAX_STARTS
        if time.monotonic() < self._next_start_s:
            if hopeless:
                raise RunnerError(f"the SuperLink does not start: {self.superlink.last_line()}")
            return False
        self._next_start_s = time.monotonic() + (_HOPELESS_S if hopeless else _RESTART_S)
        self.training.lost_with_superlink()
        record.starts += 1
        self.save()
        self.superlink.start(self._workdir, self.training.setup_file, self._spec.env)
        return False

    def _register(self) -> None:
        for name, client in self.record.clients.items():
            if not client.node_id:
                client.node_id = self.superlink.register(name)
                self.save()
            if client.set_offline:
                self.superlink.set_offline(name, client.node_id)
                self.online.discard(client.node_id)
                client.set_offline = False
                self.save()
            if client.wanted and not client.seen and client.node_id in self.online:
                client.seen = True
                self.save()

    def _start_node(self, assignment: Assignment) -> str:
        """Start the attempt's SuperNode if it is not known to its node. Returns why it could not."""
        name, client = self.client(assignment)
        if not client.wanted or client.attempt != assignment.attempt or client.seen:
            return ""
        node = assignment.nodes[0]
        folder = f"flower/{self.job_id}.{name}"
        with NodeClient(node.address, node.port, node.token, node.certificate) as agent:
            try:
                status = agent.status()
                known = {process.process_id for process in status.processes}
                if self.process_id(assignment) in known:
                    return ""
                agent.put_file(f"{folder}/authority.pem", self._identity.authority)
                agent.put_file(f"{folder}/client.key", self._identity.client_key(name))
                state = f"{status.workdir}/{folder}"
                agent.start_process(self._node_process(assignment, name, node.address, state))
            except NodeError as error:
                return f"{assignment.key.task} cannot be started on {node.instance_id}: {error}"
        return ""

    def _node_process(self, assignment: Assignment, name: str, address: str, state: str) -> ProcessSpec:
        # Its ClientApps are on the same instance; of several on one machine each has a loopback address.
        own = address if address.startswith("127.") else "127.0.0.1"
        config = next(client.config for client in self.work.clients if client.name == name)
        bin_folder = Path(self._node_python).parent
        return ProcessSpec(
            process_id=self.process_id(assignment),
            argv=(
                self._node_python,
                "-m",
                "deploy.runners.flower.supernode",
                own,
                *("--superlink", self.superlink.address),
                *("--root-certificates", f"{state}/authority.pem"),
                *("--auth-supernode-private-key", f"{state}/client.key"),
                *("--node-config", app.node_config(config, name, f"{state}/state")),
            ),
            env={
                "OMP_NUM_THREADS": str(assignment.nodes[0].vcpus),
                **self._spec.env,
                **QUIET,
                "PATH": f"{bin_folder}:/usr/local/bin:/usr/bin:/bin",
                "FLWR_HOME": f"{state}/home",
            },
            stop_grace_s=5.0,
        )


def process_status(assignment: Assignment, process_id: str) -> ProcessStatus | None:
    """How the attempt's process is on its node; None if the node does not know it.

    Raises:
        NodeUnreachable: if that cannot be asked now.
    """
    node = assignment.nodes[0]
    with NodeClient(node.address, node.port, node.token, node.certificate) as agent:
        try:
            return agent.process(process_id)
        except NodeRefused as error:
            if error.code == 404:
                return None
            raise NodeUnreachable(str(error)) from error


def record_file(folder: Path) -> Path:
    """Of the job with this state folder."""
    return folder / "job.json"
