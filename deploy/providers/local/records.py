"""What the local provider knows of its instances: one folder, shared by all that use it."""

from __future__ import annotations

import fcntl
import hashlib
import os
import random
import shutil
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

import spotweave
from spotweave.deploy.node import procfs
from spotweave.deploy.node.config import STATE_FOLDER, STATUS_FILE
from spotweave.deploy.node.processes import NODE_VARIABLE
from spotweave.deploy.security.sandbox import Sandbox
from spotweave.deploy.security.untrusted import open_beneath
from spotweave.deploy.yamlfile import Part
from spotweave.files import write_private

STATE_VARIABLE = "SPOTWEAVE_NODE_STATE"
"""In the environment of everything that runs on an instance: the state folder it belongs to."""
_STATUS_BYTES = 65536


class Fate(Part):
    """When the market takes an instance away; all epoch seconds, None: never, or without.

    From `rebalance_s` on it is recommended to leave it, from `notice_s` on its metadata says that it ends.
    """

    rebalance_s: float | None = None
    notice_s: float | None = None
    kill_s: float | None = None


class Record(Part):
    """One instance that was asked for."""

    instance_id: str
    client_token: str
    offer_id: str
    deployment: str
    job_id: str
    task: str
    node_token: str  # secret of its node agent
    address: str
    requested_s: float
    launch_s: float  # its node agent starts so long after the launch
    cpus: tuple[int, ...]
    imds_poll_s: float
    fate: Fate
    # device files' minor numbers of its GPUs, by their UUIDs
    gpus: dict[str, int] = Field(default_factory=dict)
    certificate: str = ""  # of its node agent, PEM; "": it has none, and is not spoken to
    key: str = ""
    ending_s: float | None = None  # someone began to end it; set before anything is killed
    by_provider: bool = False  # whether that is an interruption
    ended_s: float | None = None  # nothing of it is left since then

    def changed(self, **values: object) -> Record:
        """A copy with other values."""
        return self.model_copy(update=values)


class Init(Part):
    """The process that is the instance, written by itself before anything else."""

    pid: int
    start_ticks: int
    launched_s: float

    @property
    def alive(self) -> bool:
        """Whether the instance runs."""
        return procfs.is_alive(self.pid, self.start_ticks)


class AgentStatus(BaseModel):
    """Status that a node agent reports."""

    port: Annotated[int, Field(ge=0, le=65535)]


class StateError(Exception):
    """The state folder cannot be used; one line."""


_SANDBOX = TypeAdapter(Sandbox)


def box_name(name: str) -> str:
    """Name of an instance's sandbox."""
    return f"instance {name}"


def instance_id(client_token: str) -> str:
    """The same token always gives the same instance."""
    return f"i-{hashlib.sha256(client_token.encode()).hexdigest()[:17]}"


def loopback_address(taken: Collection[str] = ()) -> str:
    """A free address of 127/8, drawn at random so that two deployments rarely get the same one."""
    draw = random.SystemRandom().randrange
    while (address := f"127.{draw(1, 255)}.{draw(256)}.{draw(1, 255)}") in taken:
        pass
    return address


class StateFolder:
    """Folder with `instances/ID/` for each instance and `ended/ID.json` for those of long ago."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._instances = path / "instances"
        self._ended = path / "ended"

    def create(self) -> None:
        """Make it. Raises StateError."""
        try:
            for folder in (self.path, self._instances, self._ended):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StateError(f"state folder {self.path}: {error.strerror}") from error

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Alone among all threads and processes. A process that dies lets go."""
        handle = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def origin_s(self) -> float:
        """Epoch seconds of the provider's first moment; now, if this is it. Call it locked."""
        path = self.path / "origin"
        if not path.exists():
            write_private(path, repr(time.time()))
        return float(path.read_text())

    def folder(self, name: str) -> Path:
        """Folder of one instance."""
        return self._instances / name

    def workdir(self, name: str) -> Path:
        """Working folder of its node."""
        return self.folder(name) / "node"

    def environment(self, name: str, home: Path) -> dict[str, str]:
        """Variables of an instance. Ours may hold secrets: it gets none of them."""
        env = {variable: os.environ[variable] for variable in ("PATH", "TMPDIR") if variable in os.environ}
        return env | {
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "PYTHONPATH": str(Path(spotweave.__file__).parents[1]),
            NODE_VARIABLE: name,
            STATE_VARIABLE: str(self.path),
        }

    def find(self, name: str) -> Record | None:
        """A record, however old."""
        for path in (self.folder(name) / "instance.json", self._ended / f"{name}.json"):
            try:
                return Record.model_validate_json(path.read_bytes())
            except FileNotFoundError:
                continue
            except ValidationError as error:
                raise StateError(f"{path} cannot be understood: restore it from a backup") from error
        return None

    def records(self) -> list[Record]:
        """All but those of long ago, in the order in which they were asked for."""
        found = (self.find(path.name) for path in self._instances.iterdir())
        return sorted((record for record in found if record), key=lambda record: record.requested_s)

    def save(self, record: Record) -> None:
        """Write a record. Call it locked."""
        self.folder(record.instance_id).mkdir(mode=0o700, exist_ok=True)
        write_private(self.folder(record.instance_id) / "instance.json", record.model_dump_json())

    def archive(self, record: Record) -> None:
        """Keep the record alone, so that its token is never used twice. Call it locked."""
        write_private(self._ended / f"{record.instance_id}.json", record.model_dump_json())
        shutil.rmtree(self.folder(record.instance_id), ignore_errors=True)

    def init(self, name: str) -> Init | None:
        """The process of an instance; None: none was started yet."""
        try:
            return Init.model_validate_json((self.folder(name) / "init.json").read_bytes())
        except FileNotFoundError:
            return None

    def agent_port(self, name: str) -> int:
        """Port of the node agent; 0 before it listens, or if its own report is malformed.

        Jobs on the instance can write there too.
        """
        try:
            handle = open_beneath(self.workdir(name), f"{STATE_FOLDER}/{STATUS_FILE}", os.O_RDONLY)
            with os.fdopen(handle, "rb") as file:
                return AgentStatus.model_validate_json(file.read(_STATUS_BYTES)).port
        except (OSError, ValidationError):
            return 0

    def save_sandbox(self, name: str, sandbox: Sandbox) -> None:
        """For the instance's init: what to put around the node agent."""
        write_private(self.folder(name) / "sandbox.json", _SANDBOX.dump_json(sandbox))

    def sandbox(self, name: str) -> Sandbox | None:
        """As saved; None: none."""
        try:
            return _SANDBOX.validate_json((self.folder(name) / "sandbox.json").read_bytes())
        except FileNotFoundError:
            return None

    def save_group(self, name: str, group: int | None) -> None:
        """To which all belongs that runs on the instance."""
        write_private(self.folder(name) / "group", "" if group is None else str(group))

    def _group(self, name: str) -> int | None:
        try:
            return int((self.folder(name) / "group").read_text() or 0) or None
        except FileNotFoundError:
            return None

    def last_sign_s(self, name: str) -> float | None:
        """Epoch seconds of an instance's latest sign of life, one a second."""
        try:
            return (self.folder(name) / "alive").stat().st_mtime
        except FileNotFoundError:
            return None

    def processes(self, seen: list[procfs.Process]) -> Mapping[str, list[procfs.Process]]:
        """Running processes of this folder's instances, by instance."""
        found: dict[str, list[procfs.Process]] = {}
        for process in seen:
            if process.alive:
                tags = procfs.environment(process.pid)
                if tags.get(STATE_VARIABLE) == str(self.path) and NODE_VARIABLE in tags:
                    found.setdefault(tags[NODE_VARIABLE], []).append(process)
        return found

    def members(self, name: str, seen: list[procfs.Process]) -> list[procfs.Process]:
        """Everything of an instance: what bears its tag or has its group, and all below its init."""
        init = self.init(name)
        below: set[int] = set()
        if init is not None and init.alive:
            below = procfs.descendants({init.pid}, seen)
        tagged = {process.pid for process in self.processes(seen).get(name, [])}
        group = self._group(name)
        return [
            process
            for process in seen
            if process.alive
            and (process.pid in below | tagged or (group is not None and group in procfs.groups(process.pid)))
        ]
