"""A client's part of a round in pieces, so that an interruption costs the latest of them and not the whole.

FedCostAware (Sinha 2025, section III-D): an interrupted client goes on from its latest checkpoint. What is
saved lies in the client's state folder; the runner copies it to the scheduler's machine and to the client's
next instance (`deploy.runners.flower.epochs`).
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from pydantic import Field

from deploy.fl import checkpoints
from deploy.fl.checkpoints import STATE_KEY, Checkpoint, Count
from deploy.fl.records import from_record, to_record
from deploy.statefile import StateFile
from spotweave.files import write_private

WEIGHTS, SAVED = "epoch.npz", "epoch.json"
"""In a client's state folder: weights in the midst of an epoch, and a `Saved` that tells of them."""
KEY = "spotweave-epoch"
"""A record of the client's answer: the share of its epoch that it trained since it was asked."""
_LEAST_SHARE = 0.01


class Saved(StateFile):
    """What a client says of the weights that it has saved."""

    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]  # of the file
    round: Count  # of the round's number
    share: Annotated[float, Field(ge=0, le=1)]  # of its epoch that is done


class Epoch:
    """One client's part of a round: what is to be done, and how to save what is done.

    What was saved counts only if the same is asked again: with the same weights, for as many steps.

    Args:
        message: that asks for it.
        context: of the ClientApp.
        steps: how many it has, such as batches. Their order must be the same after an interruption: draw it
            from the round's number, `message.content["config"]["server-round"]`.
        every_s: seconds between two saves.

    Attributes:
        done: steps that are in `arrays`.
        arrays: weights to go on from.
    """

    def __init__(self, message: Message, context: Context, steps: int, every_s: float = 10.0) -> None:
        folder = context.node_config.get(STATE_KEY)
        self._folder = Path(folder) if isinstance(folder, str) else None
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
        """So many steps are done; `arrays` gives the weights after them, and is called when a save is due."""
        if self._folder is None or done >= self._steps or time.monotonic() - self._saved_s < self._every_s:
            return
        # The number of a checkpoint counts steps here, not rounds.
        content = checkpoints.encode(Checkpoint(done, from_record(arrays()), state=self._question))
        self._folder.mkdir(parents=True, exist_ok=True)
        write_private(self._folder / WEIGHTS, content)
        digest = hashlib.sha256(content).hexdigest()
        Saved(sha256=digest, round=self._round, share=done / self._steps).save(self._folder / SAVED)
        self._saved_s = time.monotonic()


def told(answer: Message, context: Context) -> Message:
    """An answer with the share of the epoch that was trained for it, where the ClientApp made an `Epoch`."""
    record = context.state.config_records.pop(KEY, None)
    if record is not None and answer.has_content():
        answer.content.config_records[KEY] = record
    return answer


def share_of(content: RecordDict) -> float:
    """The share of an epoch, in (0, 1], that was trained for an answer; 1 where it does not say."""
    share = content.config_records.get(KEY, ConfigRecord()).get("share", 1.0)
    return min(1.0, max(_LEAST_SHARE, share)) if isinstance(share, float) else 1.0


def _saved(folder: Path) -> Checkpoint | None:
    try:
        return checkpoints.decode((folder / WEIGHTS).read_bytes())
    except FileNotFoundError:
        return None


def _digest(record: ArrayRecord) -> str:
    found = hashlib.sha256()
    for name, array in record.items():
        found.update(f"{name} {array.dtype} {array.shape}".encode())
        found.update(array.data)
    return found.hexdigest()
