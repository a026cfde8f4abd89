"""Settings of the Flower runner."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from spotweave.deploy.objects.location import Objects
from spotweave.deploy.runners.detached import Detached, Limits
from spotweave.deploy.security.sandbox import NO_SANDBOX, Sandbox
from spotweave.deploy.statefile import StateFile


@dataclass(frozen=True)
class FlowerSettings:
    """Settings of the runner."""

    state: Path  # folder of the runner's own; made with mode 0700
    host: str = "127.0.0.1"  # IP address of this machine as nodes reach it; SuperLinks listen there
    # Python of the nodes, with Flower and spotweave next to it
    node_python: str = field(default=sys.executable)
    # where each round's weights are kept besides this machine; None: nowhere
    checkpoints: Objects | None = None
    checkpoint_most_bytes: int = 1 << 30  # a larger checkpoint is kept on this machine only
    # larger checkpoints within epochs are not kept: they pass through the scheduler's memory
    epoch_most_bytes: int = 256 << 20
    reports_within_s: float = 3.0  # a look at all jobs waits so long for those that are slow to answer
    # a node whose agent does not answer, or whose SuperNode is offline, for so long is given up. Flower
    # itself takes up to a minute to find a SuperNode offline.
    node_silent_s: float = 60.0
    superlink_silent_s: float = 60.0  # a SuperLink that runs and does not answer for so long is started again
    # a SuperNode that is not online so long after its SuperLink was reached is given up
    start_within_s: float = 300.0
    # a client that owes a result for more than this many times its own latest epoch (before there is one: the
    # job's `epoch_s`), and `hung_floor_s`, is given up; after each time twice that
    hung_factor: float = 5.0
    # see `hung_factor`. Where no epoch is known, a client that is online may take for ever.
    hung_floor_s: float = 120.0
    # the last checkpoint of a job that is over may take so long to be kept; the clients of a run that waits
    # so long for what is kept are given up
    keep_within_s: float = 600.0
    sandbox: Sandbox = NO_SANDBOX  # around each SuperLink with its ServerApps
    limits: Limits = field(default_factory=Limits)  # of each SuperLink with its ServerApps
    # /dev/nvidiaN that ServerApps may use, by N, where their job asks for GPUs
    server_gpus: tuple[int, ...] = ()


class JobFiles:
    """Paths of a job's state, below its own folder. Its SuperLink and ServerApps see only `shown`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.job_id = folder.name
        self.record = self.folder / "job.json"  # a JobRecord
        self.keys = self.folder / "keys"  # a folder, readable by the scheduler alone
        self.shown = self.folder / "superlink"
        self.setup = self.shown / "setup.json"  # what its ServerApp is told
        self.log = self.folder / "superlink.log"  # of its SuperLink and ServerApps
        self.process = Detached(self.folder / "process")  # its SuperLink


# What the runner must know of a job after a restart of the scheduler. On disk before it is acted on.


class ClientRecord(BaseModel):
    """One client, or the server."""

    model_config = ConfigDict(extra="forbid")

    node_id: int = 0  # at the SuperLink; 0 before it is registered
    attempt: int = 0  # the latest attempt at its task; 0: none yet
    wanted: bool = False  # whether it should run; False after `stop`
    seen: bool = False  # whether this attempt was online at the SuperLink
    set_offline: bool = False  # whether an earlier attempt's presence must still be ended at the SuperLink
    drained: bool = False  # whether it was told to leave its node
    left: bool = False  # whether it takes no part any more
    # why this attempt was given up for lost while its node may still run; "" if it was not
    given_up: str = ""
    hangs: int = 0  # how often in a row it was given up because it did not deliver in time


class JobRecord(StateFile):
    """One job."""

    workdir: str  # the job's own folder
    rounds: int  # of the whole training
    port: int  # of its SuperLink, always the same: nodes know it
    broker_ports: list[int] = Field(default_factory=list)  # of its brokers, the same
    starts: int = 0  # how often it was started in a row without having answered
    run_id: int = 0  # Flower's number of the present run, 0 for none
    # runs whose SuperLink died; Flower takes them for alive for a minute
    dead_runs: list[int] = Field(default_factory=list)
    runs: int = 0  # how many runs were started
    completed_before: int = 0  # rounds that were done when the present run was started
    fruitless: int = 0  # runs in a row that were lost without having finished a round
    outcome: str = ""  # "" while it lasts, "succeeded" or "failed" (until a new attempt is made)
    failure: str = ""  # the user's error in one line
    # the attempt of each client that had failed with it
    failed_attempts: dict[str, int] = Field(default_factory=dict)
    # epoch seconds since when it is only waited for its last checkpoint; 0: it is not over
    forgotten_s: float = 0.0
    clients: dict[str, ClientRecord]  # by name
    # the server where it has a place of its own; "seen": its process was started
    server: ClientRecord = Field(default_factory=ClientRecord)
    server_home: str = ""  # its folder on its instance
