"""Weights with the number of their round, kept so that a broken file is noticed and never chosen."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, FiniteFloat

from spotweave.deploy.fl.broker import Place
from spotweave.deploy.model.strategies import FedAvg, Strategy
from spotweave.deploy.statefile import StateFile
from spotweave.files import write_private

_NAME = re.compile(r"round-([0-9]{6,9})\.npz")
_HASH_BYTES = 32


@dataclass(frozen=True)
class Checkpoint:
    """Aggregated weights."""

    round: int  # how many rounds they come from
    arrays: Mapping[str, NDArray[np.generic]]  # by name, in the model's order
    source: str = "server"  # who kept them: "server" or "client NAME"
    state: str = ""  # what else the server must know to go on from them; "": nothing


def encode(checkpoint: Checkpoint) -> bytes:
    """As bytes: SHA-256 of the rest, then a NumPy archive."""
    body = io.BytesIO()
    # Names of a model's arrays may not be keywords, so they are kept next to the arrays.
    content: dict[str, Any] = {
        f"array_{index}": array for index, array in enumerate(checkpoint.arrays.values())
    }
    content["names"] = np.array(list(checkpoint.arrays), dtype=np.str_)
    if checkpoint.state:
        content["state"] = np.array(checkpoint.state)
    np.savez(body, round=np.int64(checkpoint.round), **content)
    archive = body.getvalue()
    return hashlib.sha256(archive).digest() + archive


def is_whole(content: bytes) -> bool:
    """Whether these bytes are what `encode` gave, by their SHA-256."""
    return hashlib.sha256(content[_HASH_BYTES:]).digest() == content[:_HASH_BYTES]


def decode(content: bytes) -> Checkpoint | None:
    """Decode a checkpoint; None if its bytes are damaged or truncated."""
    if not is_whole(content):
        return None
    with np.load(io.BytesIO(content[_HASH_BYTES:]), allow_pickle=False) as stored:
        names = [str(name) for name in stored["names"]]
        arrays = {name: stored[f"array_{index}"] for index, name in enumerate(names)}
        state = str(stored["state"]) if "state" in stored else ""
        return Checkpoint(int(stored["round"]), arrays, state=state)


def save(folder: Path, checkpoint: Checkpoint, keep: int = 2) -> None:
    """Keep a checkpoint, and the latest ones before it."""
    folder.mkdir(parents=True, exist_ok=True)
    write_private(folder / file_name(checkpoint.round), encode(checkpoint))
    for old in _files(folder)[keep:]:
        old.unlink(missing_ok=True)


def load(folder: Path) -> Checkpoint | None:
    """The newest whole checkpoint of a folder; None if there is none."""
    found = (decode(path.read_bytes()) for path in _files(folder))
    return next((one for one in found if one is not None), None)


def file_name(number: int) -> str:
    """File name of a round's checkpoint."""
    return f"round-{number:06d}.npz"


def rounds_of(names: Iterable[str]) -> list[int]:
    """Rounds of the checkpoint files among these names, the newest first."""
    found = (_NAME.fullmatch(name) for name in names)
    return sorted((int(one[1]) for one in found if one), reverse=True)


def newest(candidates: Iterable[Checkpoint | None]) -> Checkpoint | None:
    """The one of the latest round; of equals the first."""
    found = [candidate for candidate in candidates if candidate is not None]
    return max(found, key=lambda checkpoint: checkpoint.round, default=None)


def _files(folder: Path) -> list[Path]:
    """Newest first."""
    return sorted(folder.glob("round-*.npz"), reverse=True)


# The two small JSON files over which the runner and a job's ServerApp talk; each is written by one side.

SETUP_VARIABLE = "SPOTWEAVE_FL_SETUP"
"""In the ServerApp's environment: path of the setup file."""
NAME_KEY = "client-name"
"""In a node's configuration: the client's name in the job."""
STATE_KEY = "spotweave-state"
"""In a node's configuration: the client's state folder."""
LINK_LOST = "the SuperLink was lost"
"""How a ServerApp's failure begins that is not its own."""
HISTORY_ROUNDS = 1000
"""The metrics of this many rounds are in the status file: what is read at every look must stay small."""

Count = Annotated[int, Field(ge=0, le=10**9)]
Seconds = Annotated[FiniteFloat, Field(ge=0, le=1e10)]
Text = Annotated[str, Field(max_length=1000)]


class Expected(StateFile):
    """A client as the runner knows it."""

    node_id: int  # Flower's name for it, the same for ever
    # of its task; a higher one is another process, perhaps elsewhere. 0: it was never there.
    attempt: int = 0
    number: int = 0  # its place among all clients of the job, from 0; it stays when others leave


class Setup(StateFile):
    """What the runner tells the ServerApp; written again when a client gets another attempt."""

    rounds: int  # of the whole training
    quorum: int | None = None  # a round ends when this many clients have delivered; None: all that take part
    run: int  # number of the run, from 1; later ones resume
    folder: str  # absolute; for checkpoints and the status file
    clients: dict[str, Expected]  # by name
    strategy: Strategy = FedAvg()
    samples: list[int] = Field(default_factory=list)  # of each client of the job, by its number
    brokers: list[Place] = Field(default_factory=list)  # of the job, by number
    # whether the ServerApp moves between instances: clients may have a newer checkpoint than the one it got
    placed: bool = False

    @property
    def updates(self) -> Path:
        """Folder of updates that have not been used yet."""
        return Path(self.folder) / "updates"

    @property
    def status_file(self) -> Path:
        """File in which the ServerApp reports its status."""
        return Path(self.folder) / "status.json"

    @property
    def checkpoints(self) -> Path:
        """Folder of the checkpoints."""
        return Path(self.folder) / "checkpoints"


class Participation(StateFile):
    """A client as the ServerApp knows it."""

    owes: bool = True  # whether it has still to deliver in the present round
    asked_s: Seconds | None = None  # epoch seconds at which it was asked in this round; None: not yet
    delivered: Count = 0  # number of rounds in which it delivered
    last_epoch_s: Seconds | None = None  # seconds from the latest question to the delivery
    error: Text = ""  # its ClientApp's exception in one line, "" for none
    error_attempt: Count = 0  # the attempt that failed so
    version: Count | None = None  # of the model that it was last sent; None where rounds are synchronous
    refused: Count = 0  # number of its updates that could not be used


class Status(StateFile):
    """Status that the ServerApp reports to the runner."""

    run: Count
    completed: Count = 0  # rounds that are aggregated and in a checkpoint
    finished: bool = False  # whether all rounds are
    clients: dict[str, Participation] = Field(default_factory=dict)  # by name
    metrics: dict[str, float] = Field(default_factory=dict)  # of the latest round
    # metrics of the latest `HISTORY_ROUNDS` rounds, by number of the round
    history: dict[Count, dict[str, float]] = Field(default_factory=dict)
    error: Text = ""  # the ServerApp's exception in one line, "" for none
    resumed_from: Text = ""  # "server", "client NAME" or "" for a fresh start
    # updates of each client that were used, by its number; empty where brokers know that
    used: list[Count] = Field(default_factory=list)


def one_line(error: BaseException) -> str:
    """An exception as a person reads it: type and message, without line breaks, at most 300 characters."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:300] if text else type(error).__name__
