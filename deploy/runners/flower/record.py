"""What the runner must know of a job after a restart of the scheduler. On disk before it is acted on."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict

from spotweave.files import write_private


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
