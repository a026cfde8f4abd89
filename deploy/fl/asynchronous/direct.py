"""Updates that come to the server itself: on the disk from their arrival until they are in a checkpoint.

So an update that the server has taken in is used once, whatever ends between: its file goes after the
checkpoint of the version that it made, and that checkpoint names it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict

from agents.federated.asynchronous.aggregator import Aggregator
from agents.federated.asynchronous.fed_async import FedAsync
from agents.federated.asynchronous.hp_asgd import HpAsgd
from agents.federated.asynchronous.updates import Update, UpdateError, UpdateId, Vector, check_update
from deploy.fl import checkpoints
from deploy.fl.asynchronous.exchange import Form
from deploy.fl.asynchronous.steps import Step
from deploy.fl.asynchronous.vectors import Arrays, flatten, require_alike
from deploy.fl.checkpoints import Checkpoint
from deploy.model import strategies
from spotweave.files import write_private

_FILE = re.compile(r"([0-9]+)-([0-9]+)-([0-9]+)\.npz")


class _State(BaseModel):
    """What a checkpoint says beside the model.

    Attributes:
        used: updates that this version was made of: client, version, number.
        counts: N_n, used updates of each client so far.
    """

    model_config = ConfigDict(extra="forbid")

    used: list[UpdateId] = []
    counts: list[int] = []


class DirectUpdates:
    """See `Updates`.

    Args of its making:
        strategy: of the job.
        samples: of each client, by its number.
        folder: for updates that wait.
        start: the model to go on from.
    """

    def __init__(
        self,
        strategy: strategies.FedAsync | strategies.HpAsgd,
        samples: Sequence[int],
        folder: Path,
        start: Checkpoint,
    ) -> None:
        self._like = start.arrays
        self._folder = folder
        self._bound = strategy.staleness_most
        self._samples = samples
        state = _State.model_validate_json(start.state) if start.state else _State()
        self._counts = np.array(state.counts or [0] * len(samples), dtype=np.int64)
        self._aggregator = _aggregator(strategy, flatten(start.arrays), samples)
        self._aggregator.version = start.round
        if isinstance(self._aggregator, HpAsgd):
            self._aggregator.used[:] = self._counts
        self._next: Step | None = None
        self._used: list[UpdateId] = state.used
        self._load()

    @property
    def form(self) -> Form:
        """See Updates."""
        return "model" if self._aggregator.uploads == "model" else "difference"

    @property
    def used(self) -> list[int]:
        """See Updates."""
        return [int(count) for count in self._counts]

    def receive(self, client: int, version: int, identity: str, arrays: Arrays | None) -> None:
        """See Updates."""
        if arrays is None:
            raise UpdateError("it holds no arrays: expected those of the model")
        require_alike(arrays, self._like)
        number = int.from_bytes(hashlib.sha256(identity.encode()).digest()[:7])
        values = flatten(arrays)
        check_update(
            Update(client, version, values, self._samples[client]),
            self._aggregator.model,
            self._aggregator.version,
        )
        if isinstance(self._aggregator, HpAsgd):
            # A difference is a step against gradients. Scaled now: fre_n goes on changing.
            values = -self._aggregator.scale(client) * values
        update = Update(client, version, values, self._samples[client], number)
        self._folder.mkdir(parents=True, exist_ok=True)
        write_private(self._file(update.id), checkpoints.encode(Checkpoint(version, {"values": values})))
        self._take(update)

    def step(self) -> Step | None:
        """See Updates."""
        if self._next is not None:
            return self._next
        made = self._aggregator.advance()
        if made is None:
            return None
        self._used = list(made.used)
        np.add.at(self._counts, [update.participant for update in made.used], 1)
        self._next = Step(
            self._aggregator.model,
            {
                "updates": len(made.used),
                "staleness_mean": float(np.mean(made.staleness)),
                "staleness_most": max(made.staleness),
            },
        )
        return self._next

    def state(self) -> str:
        """See Updates."""
        return _State(used=self._used, counts=self.used).model_dump_json()

    def settle(self) -> None:
        """See Updates."""
        self._next = None
        for update in self._used:
            self._file(update).unlink(missing_ok=True)
        if self.form == "difference":
            # The others are used in their turn, however old they are by then: T was asked at their arrival.
            for update in self._waiting():
                if self._aggregator.version - update.base_version > self._bound:
                    self._file(update).unlink(missing_ok=True)

    def _take(self, update: Update) -> None:
        """Hand in an update that is on the disk; one that is too old goes."""
        if self._aggregator.version - update.base_version > self._bound:
            self._file(update.id).unlink(missing_ok=True)
            return
        self._aggregator.receive(update)

    def _load(self) -> None:
        """Take in what waited when the last run ended."""
        used = set(self._used)
        for update in self._waiting():
            kept = checkpoints.decode(self._file(update).read_bytes())
            # The model may be an older one, from a client: what began with a later one is of no use then.
            if update in used or kept is None or update.base_version > self._aggregator.version:
                self._file(update).unlink(missing_ok=True)
                continue
            values: Vector = np.asarray(kept.arrays["values"], dtype=self._aggregator.model.dtype)
            self._take(
                Update(
                    update.participant,
                    update.base_version,
                    values,
                    self._samples[update.participant],
                    update.number,
                )
            )

    def _waiting(self) -> list[UpdateId]:
        """Updates on the disk, in the order of their arrival."""
        paths = sorted(self._folder.glob("*.npz"), key=lambda path: path.stat().st_mtime_ns)
        names = (_FILE.fullmatch(path.name) for path in paths)
        return [UpdateId(int(one[1]), int(one[2]), int(one[3])) for one in names if one]

    def _file(self, update: UpdateId) -> Path:
        return self._folder / f"{update.participant}-{update.base_version}-{update.number}.npz"


def _aggregator(
    strategy: strategies.FedAsync | strategies.HpAsgd, model: Vector, samples: Sequence[int]
) -> Aggregator[Update]:
    if isinstance(strategy, strategies.FedAsync):
        return FedAsync(model, strategy.mixing, strategy.staleness_exponent)
    return HpAsgd(
        model,
        samples,
        strategy.updates_per_round,
        strategy.server_rate,
        # Everybody is always asked, so nothing is drawn.
        np.random.default_rng(0),
        strategy.staleness_most,
    )
