"""How the Flower runner works."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict

from deploy.objects.location import Objects
from deploy.runners.detached import Limits
from deploy.security.sandbox import Sandbox
from spotweave.files import write_private


@dataclass(frozen=True)
class FlowerSettings:
    """Settings of the runner.

    Attributes:
        state: folder of the runner's own; made with mode 0700.
        host: IP address of this machine as nodes reach it; SuperLinks listen there.
        node_python: Python of the nodes, with Flower and spotweave next to it.
        checkpoints: where each round's weights are kept besides this machine; None: nowhere.
        checkpoint_most_bytes: a larger checkpoint is kept on this machine only.
        reports_within_s: a look at all jobs waits so long for those that are slow to answer.
        node_silent_s: a node whose agent does not answer, or whose SuperNode is offline, for so long is given
            up. Flower itself takes up to a minute to find a SuperNode offline.
        superlink_silent_s: a SuperLink that runs and does not answer for so long is started again.
        start_within_s: a SuperNode that is not online so long after its SuperLink was reached is given up.
        hung_factor: a client that owes a result for more than this many times its own latest epoch (before
            there is one: the job's `epoch_s`), and `hung_floor_s`, is given up; after each time twice that.
        hung_floor_s: see there. Where no epoch is known, a client that is online may take for ever.
        keep_within_s: the last checkpoint of a job that is over may take so long to be kept; the clients of a
            run that waits so long for what is kept are given up.
        sandbox: around each SuperLink with its ServerApps; None: none, whoever submits a job has all rights
            of the scheduler.
        limits: of each SuperLink with its ServerApps.
    """

    state: Path
    host: str = "127.0.0.1"
    node_python: str = field(default=sys.executable)
    checkpoints: Objects | None = None
    checkpoint_most_bytes: int = 1 << 30
    reports_within_s: float = 3.0
    node_silent_s: float = 60.0
    superlink_silent_s: float = 60.0
    start_within_s: float = 300.0
    hung_factor: float = 5.0
    hung_floor_s: float = 120.0
    keep_within_s: float = 600.0
    sandbox: Sandbox | None = None
    limits: Limits = field(default_factory=Limits)


# What the runner must know of a job after a restart of the scheduler. On disk before it is acted on.


class ClientRecord(BaseModel):
    """One client.

    Attributes:
        node_id: at the SuperLink; 0 before it is registered.
        attempt: the latest attempt at its task; 0: none yet.
        instance_id: on which that is.
        wanted: whether it should run; False after `stop`.
        seen: whether this attempt was online at the SuperLink.
        set_offline: whether an earlier attempt's presence must still be ended at the SuperLink.
        drained: whether it was told to leave its node.
        left: whether it takes no part any more.
        given_up: why this attempt was given up for lost while its node may still run; "" if it was not.
        hangs: how often in a row it was given up because it did not deliver in time.
    """

    model_config = ConfigDict(extra="forbid")

    node_id: int = 0
    attempt: int = 0
    instance_id: str = ""
    wanted: bool = False
    seen: bool = False
    set_offline: bool = False
    drained: bool = False
    left: bool = False
    given_up: str = ""
    hangs: int = 0


class JobRecord(BaseModel):
    """One job.

    Attributes:
        workdir: the job's own folder.
        rounds: of the whole training.
        port: of its SuperLink, always the same: nodes know it.
        broker_ports: of its brokers, the same.
        starts: how often it was started in a row without having answered.
        run_id: Flower's number of the present run, 0 for none.
        dead_runs: runs whose SuperLink died; Flower takes them for alive for a minute.
        runs: how many runs were started.
        completed_before: rounds that were done when the present run was started.
        fruitless: runs in a row that were lost without having finished a round.
        outcome: "" while it lasts, "succeeded" or "failed" (until a new attempt is made).
        failure: the user's error in one line.
        failed_attempts: the attempt of each client that had failed with it.
        forgotten_s: epoch seconds since when it is only waited for its last checkpoint; 0: it is not over.
        clients: by name.
    """

    model_config = ConfigDict(extra="forbid")

    workdir: str
    rounds: int
    port: int
    broker_ports: list[int] = []
    starts: int = 0
    run_id: int = 0
    dead_runs: list[int] = []
    runs: int = 0
    completed_before: int = 0
    fruitless: int = 0
    outcome: str = ""
    failure: str = ""
    failed_attempts: dict[str, int] = {}
    forgotten_s: float = 0.0
    clients: dict[str, ClientRecord]

    @classmethod
    def load(cls, path: Path) -> Self | None:
        """None if there is none."""
        try:
            return cls.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None

    def save(self, path: Path) -> None:
        """Write it, whole or not at all."""
        write_private(path, self.model_dump_json(indent=1))
