"""The ServerApp of a job that has an instance of its own: what it is given there, and what is taken from it.

Its SuperLink stays on the scheduler's machine, so clients keep their connections and Flower's names for them
when the server moves. On the instance runs Flower's SuperExec, which asks that SuperLink for the ServerApp of
the present run. Status and checkpoints are copied to the job's folder, as if it ran here, and from there to
the next instance. Each checkpoint is copied before the status that names it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from spotweave.deploy.fl import checkpoints
from spotweave.deploy.fl.checkpoints import SETUP_VARIABLE
from spotweave.deploy.model.jobs import SERVER
from spotweave.deploy.model.tasks import Assignment
from spotweave.deploy.node.client import NodeClient, NodeError
from spotweave.deploy.runners.flower.checkpoints import (
    CHECKPOINTS,
    FILES_MOST,
    RESULTS,
    STATUS,
    STATUS_MOST_BYTES,
    newest_whole,
    parsed_status,
)
from spotweave.deploy.runners.flower.guarded import TOKEN_FILE_VARIABLE
from spotweave.deploy.runners.flower.settings import JobFiles
from spotweave.deploy.runners.flower.superlink import Identity
from spotweave.deploy.runners.jobfolder import JobFolder, PoisonError
from spotweave.deploy.runners.workers import connect, file_of
from spotweave.deploy.security.untrusted import unlink_beneath

_KEEP = 2
_LAST_LINES_BYTES = 4096
_SETUP, _TOKEN, _AUTHORITY = "setup.json", "runtime.token", "authority.pem"
_log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class PlacedServer:
    """The ServerApp's instance of one job; not thread-safe."""

    state: JobFiles
    rounds: int  # of the whole training
    workdir: Path  # the job's own folder here
    most_bytes: int  # larger checkpoints stay on the instance (clients have them too)
    home: str  # its folder on the instance, absolute; "" before it had one
    last_line: str = ""  # the end of its log
    problem: str = ""  # why the instance could not be asked at the latest try; "" if it could
    _assignment: Assignment | None = None
    _process: str = ""
    _told: bytes = b""
    _taken: bytes | None = None

    def __post_init__(self) -> None:
        self.below = f"flower/{self.state.job_id}.{SERVER}"
        self._results = JobFolder(self.workdir)

    @property
    def results(self) -> str:
        """Folder of its results on the instance."""
        return f"{self.home}/{RESULTS}"

    def use(self, assignment: Assignment | None, process_id: str, home: str) -> None:
        """Note which attempt runs, and its folder on its instance; None: none does."""
        before = self._assignment
        if assignment is None or before is None or before.attempt != assignment.attempt:
            self._told, self._taken, self.last_line = b"", None, ""
        self._assignment, self._process, self.home = assignment, process_id, home

    def files(self, identity: Identity) -> dict[str, bytes]:
        """What its instance needs before it is started, by name below `below`."""
        return {_AUTHORITY: identity.authority.read_bytes(), _TOKEN: identity.runtime_token().encode()}

    def words(self, home: str, superlink: str) -> tuple[str, ...]:
        """Module and arguments of Flower's SuperExec, which starts the ServerApp of each run."""
        return (
            "spotweave.deploy.runners.flower.superexec",
            *("--runtime-api-address", superlink),
            *("--root-certificates", f"{home}/{_AUTHORITY}"),
        )

    def variables(self, home: str) -> dict[str, str]:
        """Environment variables of the SuperExec."""
        return {SETUP_VARIABLE: f"{home}/{_SETUP}", TOKEN_FILE_VARIABLE: f"{home}/{_TOKEN}"}

    def sync(self) -> bool:
        """Tell it what has changed, and take what it has made. Returns whether its instance answers.

        Raises PoisonError, OSError.
        """
        if self._assignment is None:
            return False
        try:
            agent = connect(self._assignment.nodes[0])
            self._tell(agent)
            self._take(agent)
        except NodeError as error:
            self.problem = f"the server's instance does not answer: {error}"
            return False
        self.problem = ""
        return True

    def hand_over(self) -> None:
        """Before a run: give it the newest checkpoint, if it has none, and what it is told. Raises NodeError,
        PoisonError, OSError.
        """
        assert self._assignment is not None
        agent = connect(self._assignment.nodes[0])
        newest = None if self._taken is not None else newest_whole(self._results, self.most_bytes)
        if newest is not None:
            number, content = newest
            agent.put_file(f"{self.below}/{CHECKPOINTS}/{checkpoints.file_name(number)}", content)
            status = self._results.read(STATUS, STATUS_MOST_BYTES)
            if status is not None:
                agent.put_file(f"{self.below}/{STATUS}", status)
        self._tell(agent)

    def _tell(self, agent: NodeClient) -> None:
        if (setup := self.state.setup.read_bytes()) != self._told:
            agent.put_file(f"{self.below}/{_SETUP}", setup)
            self._told = setup

    def _take(self, agent: NodeClient) -> None:
        lines = agent.last_log(self._process, _LAST_LINES_BYTES).decode(errors="replace").splitlines()
        self.last_line = lines[-1][:300] if lines else ""
        content = file_of(agent, f"{self.below}/{STATUS}", STATUS_MOST_BYTES + 1)
        if content is None or content == self._taken:
            return
        try:
            completed = parsed_status(content, self.rounds).completed
        except PoisonError:
            # Whoever reads it next says why the job has failed.
            completed = 0
        if completed and not self._take_checkpoint(agent, completed):
            return
        self._results.write(STATUS, content)
        self._taken = content

    def _take_checkpoint(self, agent: NodeClient, number: int) -> bool:
        """Copy a round's checkpoint, if it is not here yet. Returns False to be asked for again."""
        name = f"{CHECKPOINTS}/{checkpoints.file_name(number)}"
        here = self._results.names(CHECKPOINTS, FILES_MOST)
        if checkpoints.file_name(number) in here:
            return True
        content = file_of(agent, f"{self.below}/{name}", self.most_bytes + 1)
        if content is not None and len(content) > self.most_bytes:
            _log.warning("%s has more than %d bytes: it stays on its instance", name, self.most_bytes)
            return True
        if content is None or not checkpoints.is_whole(content):
            # A later one has taken its place meanwhile.
            return False
        self._results.write(name, content)
        for old in checkpoints.rounds_of(here)[_KEEP - 1 :]:
            unlink_beneath(self.workdir, f"{CHECKPOINTS}/{checkpoints.file_name(old)}")
        return True
