"""Checkpoints within an epoch: an interrupted client resumes from its latest one (Sinha 2025, section III-D).

They are saved in the client's state folder. The runner copies them to the scheduler's machine and from there
to the client's next instance (`deploy.runners.flower.checkpoints`).
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from pydantic import Field

from spotweave.deploy.fl import checkpoints
from spotweave.deploy.fl.checkpoints import STATE_KEY, Checkpoint, Count
from spotweave.deploy.fl.records import from_record, to_record
from spotweave.deploy.statefile import StateFile
from spotweave.files import write_private

SAVED = "epoch.json"
"""In a client's state folder: a `Saved`, which names its checkpoint."""
KEY = "spotweave-epoch"
"""Name of the record in which an answer says what share of the epoch was trained for it."""
_LEAST_SHARE = 0.01


class Saved(StateFile):
    """What a client says about its checkpoint."""

    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]  # of the file
    round: Count  # number of the round that it trains for
    share: Annotated[float, Field(ge=0, le=1)]  # of its epoch that is done

    @property
    def weights(self) -> str:
        """The checkpoint's file, next to this one. Each has its own: a client that is killed between writing
        the two files still has the checkpoint before.
        """
        return f"epoch-{self.sha256}.npz"


class Epoch:
    """A client's training for one round, resumed where an interruption ended it.

    It resumes only if the server asks for the same again: the same weights, and as many steps.

    Args:
        message: the server's request to train.
        context: of the ClientApp.
        steps: length of the epoch, for instance in batches. Their order must not change after an
            interruption: seed it with the round's number, `message.content["config"]["server-round"]`.
        every_s: seconds between two checkpoints.

    Attributes:
        done: steps that `arrays` has been trained for.
        arrays: weights to start from.
    """

    def __init__(self, message: Message, context: Context, steps: int, every_s: float = 10.0) -> None:
        self._folder = state_folder(context)
        self._steps, self._every_s = steps, every_s
        self._saved_s = time.monotonic()
        sent = next(iter(message.content.array_records.values()))
        self._question = f"{steps} {_digest(sent)}"
        numbers = (record.get("server-round") for record in message.content.config_records.values())
        self._round = next((one for one in numbers if isinstance(one, int)), 0)
        self.done, self.arrays = 0, sent
        found = None if self._folder is None else _saved(self._folder)
        if found is not None and found.state == self._question and found.round < steps:
            self.done, self.arrays = found.round, to_record(found.arrays)
        context.state.config_records[KEY] = ConfigRecord({"share": 1.0 - self.done / max(1, steps)})

    def save(self, done: int, arrays: Callable[[], ArrayRecord]) -> None:
        """Save a checkpoint after `done` steps if one is due; only then is `arrays` called for weights."""
        if self._folder is None or done >= self._steps or time.monotonic() - self._saved_s < self._every_s:
            return
        # The number of a checkpoint counts steps here, not rounds.
        content = checkpoints.encode(Checkpoint(done, from_record(arrays()), state=self._question))
        self._folder.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256(content).hexdigest()
        before = Saved.load_whole(self._folder / SAVED)
        saved = Saved(sha256=digest, round=self._round, share=done / self._steps)
        write_private(self._folder / saved.weights, content)
        saved.save(self._folder / SAVED)
        if before is not None and before.weights != saved.weights:
            (self._folder / before.weights).unlink(missing_ok=True)
        self._saved_s = time.monotonic()


def state_folder(context: Context) -> Path | None:
    """Where a client keeps its state; None if spotweave has not started it."""
    folder = context.node_config.get(STATE_KEY)
    return Path(folder) if isinstance(folder, str) else None


def with_share(answer: Message, context: Context) -> Message:
    """Add to an answer what share of the epoch was trained for it, if the ClientApp used an `Epoch`."""
    record = context.state.config_records.pop(KEY, None)
    if record is not None and answer.has_content():
        answer.content.config_records[KEY] = record
    return answer


def share_of(content: RecordDict) -> float:
    """Share of an epoch, in (0, 1], that was trained for an answer; 1 if it does not say."""
    share = content.config_records.get(KEY, ConfigRecord()).get("share", 1.0)
    return min(1.0, max(_LEAST_SHARE, share)) if isinstance(share, float) else 1.0


def _saved(folder: Path) -> Checkpoint | None:
    if (saved := Saved.load_whole(folder / SAVED)) is None:
        return None
    try:
        return checkpoints.decode((folder / saved.weights).read_bytes())
    except FileNotFoundError:
        return None


def _digest(record: ArrayRecord) -> str:
    found = hashlib.sha256()
    for name, array in record.items():
        found.update(f"{name} {array.dtype} {array.shape}".encode())
        found.update(array.data)
    return found.hexdigest()
