"""What the node agent is asked and what it answers: HTTPS with a bearer token, JSON bodies.

The agent shows one certificate, its own; the scheduler talks to that one and to no other.

    GET    /v1/node                          NodeStatus
    PUT    /v1/processes/{process_id}        ProcessSpec -> ProcessStatus; the same id again changes nothing
    GET    /v1/processes/{process_id}        ProcessStatus
    POST   /v1/processes/{process_id}/signal SignalRequest -> ProcessStatus
    DELETE /v1/processes/{process_id}        stop signal, grace, then SIGKILL of its whole session
                                             -> ProcessStatus at once: ask again until it has ended
    GET    /v1/processes/{process_id}/log    ?offset=N -> bytes of its output from there on (1 MiB at most);
                                             N < 0: its last -N bytes
    GET    /v1/files/{path}                  ?offset=N -> bytes of a plain file there, as of a log
    PUT    /v1/files/{path}                  body into the node's working folder, atomically

Refusals: {"error": one line} with 400 (malformed), 401, 404 (unknown), 409 (draining), 411, 413, 422 (the
command cannot be run), 429 (too many processes), 507 (no space). Signals go to the process itself: its
children would die of a SIGPWR that only it understands. They are its own to look after, and end with it.

The agent outlives the scheduler and never acts on its own but for the drain on an interruption notice.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

from spotweave.deploy.model.gpus import MOST_GPUS

Signal = Literal["TERM", "INT", "PWR", "HUP", "USR1"]
MOST_PROCESSES = 1000  # most processes that a node knows, ended ones included
_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,120}$")]
_Time = Annotated[FiniteFloat, Field(ge=0, le=4e9)]
_Pid = Annotated[int, Field(ge=0, le=1 << 22)]
_Path = Annotated[str, Field(pattern=r"^/[^\x00-\x1f]*$", max_length=4096)]


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ProcessSpec(_Message):
    """A process to run on the node, in a session of its own. Never passed through a shell."""

    process_id: _Name  # chosen by the caller; unique on the node for ever
    argv: Annotated[tuple[str, ...], Field(min_length=1, max_length=400)]
    env: dict[str, str] = Field(default_factory=dict)  # added to a minimal environment (PATH, HOME, LANG)
    stop_signal: Signal = "TERM"  # what it is asked to end with, on DELETE and on a drain
    stop_grace_s: Annotated[FiniteFloat, Field(ge=0, le=600)] = 10.0  # before SIGKILL


class ProcessStatus(_Message):
    """A process as the agent knows it; ended ones until the node ends. Times are epoch seconds."""

    process_id: _Name
    pid: _Pid
    # "unknown" after an agent's restart when its end was not seen
    state: Literal["running", "exited", "unknown"]
    # negative for a signal; None while it runs
    exit_code: Annotated[int, Field(ge=-128, le=255)] | None = None
    started_s: _Time
    ended_s: _Time | None = None


class GpuStatus(_Message):
    """A GPU that works."""

    uuid: _Name  # the driver's name of this one, as CUDA_VISIBLE_DEVICES takes it
    name: Annotated[str, Field(max_length=100)]  # of its model, as the driver says it
    minor: Annotated[int, Field(ge=0, le=1 << 20)]  # its device file is /dev/nvidiaMINOR
    driver: Annotated[str, Field(max_length=100)]  # version
    memory_gib: Annotated[FiniteFloat, Field(ge=0, le=1e5)]  # all of it
    used_gib: Annotated[FiniteFloat, Field(ge=0, le=1e5)]  # what of it is taken
    busy: Annotated[FiniteFloat, Field(ge=0, le=1)]  # share of the latest moments in which it computed


class NodeStatus(_Message):
    """The node's heartbeat."""

    instance_id: _Name
    # its own IP address; processes must listen on this address only
    address: Annotated[str, Field(max_length=64)]
    workdir: _Path  # absolute path of the node's working folder (current folder of its processes)
    now_s: _Time  # the node's clock, epoch seconds
    notice_s: _Time | None = None  # epoch seconds at which the provider ends it; None without notice
    rebalance: bool = False  # whether the provider recommends to leave it
    draining: bool = False  # whether it refuses new processes
    processes: Annotated[tuple[ProcessStatus, ...], Field(max_length=MOST_PROCESSES)] = ()
    # its GPUs; None before it has looked for them
    gpus: Annotated[tuple[GpuStatus, ...], Field(max_length=MOST_GPUS)] | None = None
    no_gpus: Annotated[str, Field(max_length=1000)] = ""  # why there are not more


class RefusalError(Exception):
    """What is asked for is not done: an HTTP status, and why in one line."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class SignalRequest(_Message):
    """A signal for one process, not for what it started."""

    signal: Signal
