"""One job: its SuperLink, its clients' nodes, its training. A step of it never waits for long."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from spotweave.deploy.fl.checkpoints import Participation
from spotweave.deploy.model.jobs import SERVER, JobSpec
from spotweave.deploy.model.tasks import Assignment
from spotweave.deploy.node.api import ProcessSpec
from spotweave.deploy.node.client import NodeClient, NodeError
from spotweave.deploy.node.gpus import device_files
from spotweave.deploy.runners.base import RunnerError
from spotweave.deploy.runners.flower import app
from spotweave.deploy.runners.flower.brokers import Brokers, end_brokers
from spotweave.deploy.runners.flower.checkpoints import RESULTS, CheckpointSync, Epochs, read_status
from spotweave.deploy.runners.flower.inspecting import Inspector
from spotweave.deploy.runners.flower.liveness import Liveness, Silence, Take
from spotweave.deploy.runners.flower.server import PlacedServer
from spotweave.deploy.runners.flower.settings import ClientRecord, FlowerSettings, JobFiles, JobRecord
from spotweave.deploy.runners.flower.superlink import QUIET, Identity, SuperLink, SuperLinkDown, free_ports
from spotweave.deploy.runners.flower.training import Training
from spotweave.deploy.runners.jobfolder import JobFolder, PoisonError
from spotweave.deploy.runners.workers import connect, end_process, search_path

_LOOK_S = 0.5
_RESTART_S = 5.0
_MAX_STARTS = 5
_HOPELESS_S = 60.0
_NODES_S = 10.0
"""Time limit of starting nodes in one step; the next step continues."""
_BROKERS, _STATE = "brokers.json", "state"


class FlowerJob:
    """Everything of one job; not safe to use from several threads. Raises RunnerError without a free port.

    `workdir` is the job's own folder (app, results). Without a keeper its checkpoints are on this machine
    only.
    """

    def __init__(
        self,
        state: JobFiles,
        spec: JobSpec,
        workdir: Path,
        settings: FlowerSettings,
        keeper: CheckpointSync | None,
    ) -> None:
        self.job_id = state.job_id
        self.work = app.flower(spec)
        self._spec = spec
        self._state = state
        self._workdir = workdir
        self.settings = settings
        state.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        record = JobRecord.load(state.record)
        if record is None:
            clients = {client.name: ClientRecord() for client in self.work.clients}
            try:
                port, *broker_ports = free_ports(settings.host, 1 + self.work.brokers)
            except OSError as error:
                raise RunnerError(str(error)) from error
            record = JobRecord(
                workdir=str(workdir),
                rounds=self.work.rounds,
                port=port,
                broker_ports=broker_ports,
                clients=clients,
            )
            record.save(state.record)
        self.record = record
        self._identity = Identity(state.keys, state.shown)
        self._identity.make(settings.host)
        self.superlink = SuperLink(state, settings.host, record.port, self._identity)
        self.keeper = keeper
        self.brokers = Brokers(state, settings.host, record.broker_ports, self.work, settings.limits)
        inspector = Inspector(settings.state.resolve(), settings.sandbox)
        self.server = None
        if self.work.server is not None:
            most_bytes, home = settings.checkpoint_most_bytes, record.server_home
            self.server = PlacedServer(state, self.work.rounds, workdir, most_bytes, home)
        self.training = Training(
            self.work,
            workdir,
            state,
            record,
            self.save,
            self.superlink,
            keeper,
            self.brokers,
            inspector,
            self.server,
        )
        self.epochs = Epochs(state.folder / "epochs", settings.epoch_most_bytes)
        self.liveness = Liveness(settings, self.work.epoch_s)
        self._silence = Silence()
        self._next_start_s = 0.0
        self._next_look_s = 0.0
        self._unstarted: dict[str, str] = {}  # why nodes could not be started at the latest try, by client
        self.online: set[int] = set()  # ids of the nodes that were there at the latest look
        self.hopeless = ""  # why its SuperLink is not expected to come up; "" if it is

    @property
    def over(self) -> bool:
        """Whether the training has ended, well or not."""
        return self.record.outcome != ""

    @property
    def runs(self) -> bool:
        """Whether a run is believed to be going on."""
        return self.record.run_id != 0 and not self.over

    def save(self) -> None:
        """Put the record on the disk."""
        self.record.save(self._state.record)

    def want(self, assignment: Assignment) -> None:
        """Note that an attempt should run. A new attempt after a failure makes another run."""
        name, client = self.client(assignment)
        if assignment.attempt < client.attempt or (
            assignment.attempt == client.attempt and not client.wanted
        ):
            raise RunnerError(f"{assignment.attempt_id} was stopped before: only a new attempt can run")
        if assignment.attempt == client.attempt:
            return
        if client is self.record.server:
            self.mark_lost(client)
        else:
            client.set_offline = client.set_offline or client.attempt > 0
        client.attempt = assignment.attempt
        client.wanted, client.seen, client.drained, client.given_up = True, False, False, ""
        self._unstarted.pop(name, None)
        self.liveness.forget(name)
        record = self.record
        if record.outcome == "failed" and assignment.attempt > record.failed_attempts.get(name, 0):
            record.outcome, record.failure, record.failed_attempts = "", "", {}
            record.run_id, record.fruitless = 0, 0
            self._state.process.forget_result()
        if self.hopeless:
            self.hopeless, record.starts = "", 0
        self.save()
        if client.node_id:
            self.training.write_setup()

    def unwant(self, assignment: Assignment) -> None:
        """Note that an attempt was stopped."""
        _, client = self.client(assignment)
        if assignment.attempt == client.attempt:
            client.wanted = False
            self.save()
            self.mark_lost(client)

    def client(self, assignment: Assignment) -> tuple[str, ClientRecord]:
        """The name and record of a task's client, or of the server."""
        name = assignment.key.task.removeprefix("client-")
        if name == SERVER and self.server is not None:
            return name, self.record.server
        try:
            return name, self.record.clients[name]
        except KeyError:
            raise RunnerError(f"{assignment.key.task!r} is no task of job {self.job_id}") from None

    def step(self, assignments: Iterable[Assignment]) -> None:
        """Do the next thing that is due: SuperLink, registration, nodes, run. Raises RunnerError."""
        try:
            self.training.listen()
        except OSError as error:
            raise RunnerError(
                f"job {self.job_id}: what its ServerApp says cannot be read: {error}"
            ) from error
        self.training.keep()
        if self.over or not self._superlink_lives():
            return
        self.brokers.keep_running()
        self.brokers.look(self.settings.superlink_silent_s)
        new = [one for one in assignments if one.nodes and not self.client(one)[1].seen]
        if time.monotonic() < self._next_look_s and not new:
            return
        self._next_look_s = time.monotonic() + _LOOK_S
        try:
            self.online = self.superlink.online()
            self._register()
            self._look_at_clients()
            self._start_nodes(new)
            served = self.server is None or self._server_is_there(self.server, assignments)
            self.training.look(self.online, served=served)
        except SuperLinkDown as down:
            # It is starting, or was just killed: the next step sees to it.
            if self._silence.note(False) > self.settings.superlink_silent_s:
                self._silence.note(True)
                self.superlink.end()
                raise RunnerError(f"the SuperLink of {self.job_id} has hung: {down}") from down
            return
        self._silence.note(True)
        self.hopeless = ""
        self.superlink.trim_log()
        if self.record.starts:
            self.record.starts = 0
            self.save()

    def mark_lost(self, client: ClientRecord) -> None:
        """Report a client's lost node to the SuperLink, now or at the next occasion; of the server: give up
        its run.
        """
        if client is self.record.server:
            if client.seen and self.server is not None:
                if not self.server.problem:
                    self._sync(self.server)
                client.seen = False
                self.training.lost_with("server")
        elif client.seen and not client.set_offline:
            client.set_offline, client.seen = True, False
            self.save()

    def give_up(self, client: ClientRecord, reason: str) -> None:
        """An attempt is lost for a reason that may pass: it is never taken for alive again."""
        client.given_up = reason
        self.mark_lost(client)
        self.save()

    def why_not_started(self, assignment: Assignment) -> str:
        """Why an attempt's SuperNode could not be started at the latest try, "" if it could."""
        name, client = self.client(assignment)
        return self._unstarted.get(name, "") if assignment.attempt == client.attempt else ""

    def taker(self, assignment: Assignment) -> Take | None:
        """Copies an attempt's checkpoint while its node is asked; None for the server."""
        name, client = self.client(assignment)
        if client is self.record.server or assignment.attempt != client.attempt:
            return None
        below = f"{self._below(name)}/{_STATE}"
        return lambda agent, ended: self.epochs.take(agent, name, below, last=ended)

    def _below(self, name: str) -> str:
        return f"flower/{self.job_id}.{name}"

    def participation(self, name: str) -> Participation | None:
        """What the ServerApp of the present run says of a client; None if it says nothing yet."""
        status = self.training.present_status
        if status is None or (name == SERVER and self.server is not None):
            return None
        if self.server is not None and not self.record.run_id:
            # Its round is lost with the server, and what it delivered.
            return Participation()
        return status.clients.get(name, Participation())

    def _superlink_lives(self) -> bool:
        """Whether its process does; starts it where it does not, but not too often."""
        record = self.record
        if self.superlink.running():
            return True
        if not any(client.wanted for client in record.clients.values()):
            return False
        if fault := self.superlink.fault():
            self.training.fail(fault)
            return False
        too_often = record.starts >= _MAX_STARTS
        if too_often:
            self.hopeless = f"the SuperLink does not start: {self.superlink.last_line()}".removesuffix(": ")
        if time.monotonic() < self._next_start_s:
            return False
        self._next_start_s = time.monotonic() + (_HOPELESS_S if too_often else _RESTART_S)
        self.training.lost_with("SuperLink")
        record.starts += 1
        self.save()
        self._silence.note(True)
        self.liveness.superlink_restarted()
        if not self.training.prepare():
            return False
        known = record.runs > 0 or any(client.node_id for client in record.clients.values())
        gpus = self.settings.server_gpus if self._spec.resources.gpu_count else ()
        self.superlink.start(
            self._workdir,
            self._spec.env,
            self.settings.sandbox,
            self.settings.limits,
            fresh=not known,
            devices=device_files(gpus),
            placed=self.server is not None,
        )
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
            if client.wanted and not client.seen and client.node_id in self.online and not client.given_up:
                client.seen = True
                self.liveness.seen(name)
                self.save()

    def _look_at_clients(self) -> None:
        for name, client in self.record.clients.items():
            if client.wanted and not client.left and not client.given_up:
                here, own = client.node_id in self.online, self.participation(name)
                self.liveness.look(name, client, here, own, self.record.runs)
                if own is not None and not own.owes and client.hangs:
                    client.hangs = 0
                    self.save()

        server = self.record.server
        if self.server is not None and server.wanted and not server.given_up:
            self.liveness.look(SERVER, server, True, None, self.record.runs)

    def _server_is_there(self, server: PlacedServer, assignments: Iterable[Assignment]) -> bool:
        """Whether the server runs and its instance answers; takes what it has made."""
        record = self.record.server
        here = (
            one
            for one in assignments
            if one.key.task == SERVER and one.nodes and one.attempt == record.attempt and record.seen
        )
        assignment = next(here, None)
        server.use(assignment, "" if assignment is None else process_id(assignment), self.record.server_home)
        return self._sync(server)

    def _sync(self, server: PlacedServer) -> bool:
        try:
            return server.sync()
        except PoisonError as error:
            self.training.fail(str(error))
        except OSError as error:
            raise RunnerError(f"what the server of {self.job_id} has made cannot be kept: {error}") from error
        return False

    def _start_nodes(self, new: Iterable[Assignment]) -> None:
        until_s = time.monotonic() + _NODES_S
        # Those that failed before come last: they must not take the others' time.
        for assignment in sorted(new, key=lambda one: self.client(one)[0] in self._unstarted):
            name, client = self.client(assignment)
            if not client.wanted or client.attempt != assignment.attempt or client.seen or client.given_up:
                continue
            if time.monotonic() > until_s:
                break
            self._unstarted.pop(name, None)
            if error := self._start_node(assignment, name):
                self._unstarted[name] = error

    def _start_node(self, assignment: Assignment, name: str) -> str:
        """Start the attempt's SuperNode if it is not known to its node. Returns why it could not."""
        node = assignment.nodes[0]
        folder = self._below(name)
        mine = process_id(assignment)
        agent = connect(node)
        try:
            status = agent.status()
            known = {process.process_id: process.state for process in status.processes}
            server = self.server if name == SERVER else None
            # A running server is told again, as its start may not have been written down.
            if mine in known and (server is None or known[mine] != "running"):
                return ""
            for other, state in known.items():
                # An earlier attempt on the same instance.
                earlier = other != mine and other.rpartition(".")[0] == mine.rpartition(".")[0]
                if earlier and state == "running":
                    end_process(agent, other)
            place = f"{status.workdir}/{folder}"
            if server is not None:
                self._start_server(agent, server, assignment, place)
                return ""
            agent.put_file(f"{folder}/authority.pem", self._identity.authority.read_bytes())
            agent.put_file(f"{folder}/client.key", self._identity.client_key(name).read_bytes())
            if self.work.brokers:
                agent.put_file(f"{folder}/{_BROKERS}", self.brokers.places_file(name))
            if (own := self.participation(name)) is None or own.owes:
                self.epochs.give(agent, name, f"{folder}/{_STATE}")
            words = self._supernode(name, node.address, place)
            agent.start_process(self._process(assignment, place, words, {}))
        except (NodeError, RunnerError) as error:
            return f"{assignment.key.task} cannot be started on {node.instance_id}: {error}"
        return ""

    def _start_server(
        self, agent: NodeClient, server: PlacedServer, assignment: Assignment, home: str
    ) -> None:
        for name, content in server.files(self._identity).items():
            agent.put_file(f"{server.below}/{name}", content)
        words, variables = server.words(home, self.superlink.address), server.variables(home)
        agent.start_process(self._process(assignment, home, words, variables))
        self.record.server_home = server.home = home
        self.record.server.seen = True
        self.liveness.seen(SERVER)
        self.save()
        self.training.write_setup()

    def _supernode(self, name: str, address: str, home: str) -> tuple[str, ...]:
        # Its ClientApps are on the same instance; of several on one machine each has a loopback address.
        own = address if address.startswith("127.") else "127.0.0.1"
        config = next(client.config for client in self.work.clients if client.name == name)
        brokers = f"{home}/{_BROKERS}" if self.work.brokers else ""
        return (
            "spotweave.deploy.runners.flower.supernode",
            own,
            *("--superlink", self.superlink.address),
            *("--root-certificates", f"{home}/authority.pem"),
            *("--auth-supernode-private-key", f"{home}/client.key"),
            *("--node-config", app.node_config(config, name, f"{home}/{_STATE}", brokers)),
        )

    def _process(
        self, assignment: Assignment, home: str, words: tuple[str, ...], variables: Mapping[str, str]
    ) -> ProcessSpec:
        python = self.settings.node_python
        return ProcessSpec(
            process_id=process_id(assignment),
            argv=(python, "-m", *words),
            env={
                "OMP_NUM_THREADS": str(assignment.nodes[0].vcpus),
                **self._spec.env,
                **QUIET,
                "PATH": search_path(python),
                "FLWR_HOME": f"{home}/home",
                **variables,
            },
            stop_grace_s=5.0,
        )


def process_id(assignment: Assignment) -> str:
    """Process id of the attempt's SuperNode."""
    return f"flower.{assignment.attempt_id}"


# The end of a job: its processes and secrets go at once, its state once its last checkpoint is kept.

_log = logging.getLogger(__name__)
SUPERLINK_LOG = f"{RESULTS}/superlink.log"
"""Where the SuperLink's log stays once the job is over, below the job's folder."""
_LOG_MOST_BYTES = 64 << 20


def end_job(state: JobFiles, keeper: CheckpointSync | None, keep_within_s: float) -> None:
    """Take the next step to the end of a job; may be repeated, also by another process.

    Its last checkpoint may take `keep_within_s` to be kept. Raises RunnerError while that, or its processes,
    are not done with.
    """
    folder = state.folder
    state.process.end(grace_s=0.0)
    end_brokers(folder)
    record = _record(state.record)
    if record is not None and record.workdir:
        _keep_log(state.log, JobFolder(Path(record.workdir)))
    for path in folder.iterdir() if folder.exists() else ():
        if path == state.record:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    problem = _not_kept(record, keeper) if record is not None and keeper is not None else ""
    if problem and record is not None:
        if not record.forgotten_s:
            record.forgotten_s = time.time()
            record.save(state.record)
        if time.time() - record.forgotten_s < keep_within_s:
            raise RunnerError(f"job {state.job_id}: {problem}")
        _log.warning("job %s: given up after %.0f s: %s", state.job_id, keep_within_s, problem)
    if folder.exists():
        shutil.rmtree(folder)


def _record(file: Path) -> JobRecord | None:
    try:
        return JobRecord.load(file)
    except (OSError, ValueError) as error:
        _log.warning("%s cannot be read: %s", file, error)
        return None


def _keep_log(log: Path, results: JobFolder) -> None:
    try:
        results.copy_tail(log, SUPERLINK_LOG, _LOG_MOST_BYTES)
    except FileNotFoundError:
        return
    except (OSError, PoisonError) as error:
        _log.warning("the SuperLink's log is not kept in %s: %s", results.path, error)


def _not_kept(record: JobRecord, keeper: CheckpointSync) -> str:
    """Why the last checkpoint of a job that succeeded is not kept yet, "" if there is nothing left to do."""
    if record.outcome != "succeeded":
        return ""
    folder = JobFolder(Path(record.workdir))
    try:
        status = read_status(folder, record.rounds)
    except (OSError, PoisonError) as error:
        _log.warning("there is no last checkpoint to keep: %s", error)
        return ""
    if status is None or keeper.keep(folder, record.runs, status.completed, record.rounds):
        return ""
    return keeper.problem or "its last checkpoint is being kept"
