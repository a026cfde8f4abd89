"""What an agent writes down of its processes, for the agent after it."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from deploy.node.api import ProcessStatus, Signal


class Record(BaseModel):
    """A process. Of its command and its environment, which may hold secrets, nothing is kept.

    Attributes:
        process_id: as given.
        stop_signal: as given.
        stop_grace_s: as given.
        pid: 0: it was about to start when the agent ended.
        start_ticks: with its PID, unique.
        state: as in ProcessStatus.
        exit_code: as there.
        started_s: epoch seconds.
        ended_s: epoch seconds, None while it runs.
        kill_at_s: when its grace ends: seconds since the machine's start, which no clock's correction moves.
        asked_to_stop: whether it got its stop signal.
    """

    model_config = ConfigDict(extra="forbid")

    process_id: str
    stop_signal: Signal
    stop_grace_s: float
    pid: int = 0
    start_ticks: int = 0
    state: Literal["running", "exited", "unknown"] = "running"
    exit_code: int | None = None
    started_s: float
    ended_s: float | None = None
    kill_at_s: float | None = None
    asked_to_stop: bool = False

    def status(self) -> ProcessStatus:
        """As it is told of."""
        return ProcessStatus(
            process_id=self.process_id,
            pid=self.pid,
            state=self.state,
            exit_code=self.exit_code,
            started_s=self.started_s,
            ended_s=self.ended_s,
        )


class State(BaseModel):
    """All of a node."""

    model_config = ConfigDict(extra="forbid")

    draining: bool = False
    processes: list[Record] = []
