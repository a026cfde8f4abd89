"""Asynchronous training: a client gets the newest model as soon as it has delivered; a round is a version."""

from __future__ import annotations

import hashlib
import logging
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from pydantic import BaseModel, ConfigDict

from spotweave.agents.federated.asynchronous.aggregator import (
    Aggregator,
    FedAsync,
    Update,
    UpdateError,
    UpdateId,
    Vector,
    check_update,
)
from spotweave.agents.federated.asynchronous.brokers import RingVector, recover
from spotweave.agents.federated.asynchronous.hp_asgd import HpAsgd
from spotweave.deploy.fl import checkpoints
from spotweave.deploy.fl.broker import BrokerError, ComponentHead, Model, Place, Prepared
from spotweave.deploy.fl.checkpoints import Checkpoint, Setup
from spotweave.deploy.fl.records import from_record, to_record
from spotweave.deploy.fl.round import Answer, Round
from spotweave.deploy.fl.training import Training, read_setup
from spotweave.deploy.fl.updates import Arrays, Form, Wish, flatten, require_alike, unflatten
from spotweave.deploy.model import strategies
from spotweave.files import write_private

# Where the next version of the model comes from: updates that the server has, or sums that brokers have.


class Step(NamedTuple):
    """The next version of the model."""

    model: Vector  # (d,)
    metrics: dict[str, float]  # of the updates that it was made of, for people


class Updates(ABC):
    """The updates of one training in one run of its ServerApp."""

    form: Form  # in which clients are asked for updates

    @property
    def used(self) -> list[int]:
        """Updates of each client that were used; empty where brokers know that."""
        return []

    @abstractmethod
    def receive(self, client: int, version: int, identity: str, arrays: Arrays | None) -> None:
        """A client, by its number, has delivered an update to a version (`arrays` None: nothing).

        `identity` is that of the question. Raises UpdateError (one line) if the update cannot be used.
        """

    @abstractmethod
    def step(self) -> Step | None:
        """The next version; None while it has to be waited for. The same again until `settle`."""

    def state(self) -> str:
        """What belongs to the version that `step` gave, to go on from it after a restart; "": nothing."""
        return ""

    @abstractmethod
    def settle(self) -> None:
        """The version that `step` gave is in a checkpoint: let go of what it was made of."""


# Updates that come to the server itself: on the disk from their arrival until they are in a checkpoint.
#
# So an update that the server has taken in is used once, whatever ends between: its file goes after the
# checkpoint of the version that it made, and that checkpoint names it.

_FILE = re.compile(r"([0-9]+)-([0-9]+)-([0-9]+)\.npz")


class _State(BaseModel):
    """Part of a checkpoint beside the model."""

    model_config = ConfigDict(extra="forbid")

    used: list[UpdateId] = []  # updates that this version was made of: client, version, number
    counts: list[int] = []  # N_n, used updates of each client so far


class _DirectUpdates(Updates):
    """Those that wait are in `folder`."""

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
        self.form = "model" if self._aggregator.uploads == "model" else "difference"
        if isinstance(self._aggregator, HpAsgd):
            self._aggregator.used[:] = self._counts
        self._next: Step | None = None
        self._used: list[UpdateId] = state.used
        self._load()

    @property
    def used(self) -> list[int]:
        return [int(count) for count in self._counts]

    def receive(self, client: int, version: int, identity: str, arrays: Arrays | None) -> None:
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
        return _State(used=self._used, counts=self.used).model_dump_json()

    def settle(self) -> None:
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
        """In the order of their arrival."""
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


# Updates that go through brokers: the server sees sums, and not whose updates they are of.

_HEAD_MOST_BYTES = 1000
_log = logging.getLogger(__name__)


class BrokeredUpdates(Updates):
    """See `Updates`.

    What brokers have is on their disks, and stays until they know of a version that was made of it. So
    nothing has to be remembered here.
    """

    form: Form = "shards"

    def __init__(self, server_rate: float, brokers: list[Place], start: Checkpoint) -> None:
        self._rate = server_rate
        self._brokers = brokers
        self._version = start.round
        self._model = flatten(start.arrays)
        self._untold = set(range(len(brokers)))
        self._next: Step | None = None

    def receive(self, client: int, version: int, identity: str, arrays: Arrays | None) -> None:
        """See Updates. What was delivered is with the brokers."""
        if arrays is not None:
            raise UpdateError("it came to the server: expected its shards at the brokers only")

    def step(self) -> Step | None:
        """See Updates."""
        if self._next is None:
            try:
                self._next = self._ask()
            except BrokerError as error:
                # The runner starts it again.
                _log.warning("%s", error)
        return self._next

    def settle(self) -> None:
        """See Updates. Brokers are told by the next `step`, or by that of the next run."""
        assert self._next is not None
        self._model, self._next = self._next.model, None
        self._version += 1
        self._untold = set(range(len(self._brokers)))

    def _ask(self) -> Step | None:
        told = Model(version=self._version, size=self._model.size)
        for number in sorted(self._untold):
            # Algorithm 6: the success message of the version before.
            self._brokers[number].post("/v1/model", told.model_dump())
            self._untold.remove(number)
        prepared = Prepared.model_validate(self._brokers[0].post("/v1/prepare", told.model_dump()))
        if not prepared.updates:
            return None
        most_bytes = 8 * self._model.size + _HEAD_MOST_BYTES
        request = told.model_dump_json().encode()
        answers = [
            _parsed(one.ask("POST", "/v1/component", request, most_bytes), self._model.size)
            for one in self._brokers
        ]
        if len({head.model_dump_json() for head, _ in answers}) != 1:
            raise BrokerError("the brokers' sums are of different lists")
        sums = {number: values for number, (_, values) in enumerate(answers)}
        mean = recover(sums, len(self._brokers), answers[0][0].samples)
        model = self._model + (self._rate * mean).astype(self._model.dtype)
        return Step(model, {name: float(value) for name, value in prepared.model_dump().items()})


def _parsed(content: bytes, size: int) -> tuple[ComponentHead, RingVector]:
    head, _, values = content.partition(b"\n")
    if len(values) != 8 * size:
        raise BrokerError(f"a broker's sum has {len(values)} bytes: expected {8 * size}")
    return ComponentHead.model_validate_json(head), np.frombuffer(values, np.uint64)


_POLL_S = 1.0


class Asynchronous(Training):
    """See Training."""

    _updates: Updates
    _like: Arrays
    _questions: Round | None = None

    def _resume(self) -> Checkpoint | None:
        found = super()._resume()
        start = found or Checkpoint(0, from_record(self._initial))
        self._like = start.arrays
        self._updates = _updates(self._setup, start)
        return found

    def _round(self, number: int, arrays: ArrayRecord) -> ArrayRecord:
        questions = self._ask_for(number - 1, arrays)
        while (step := self._updates.step()) is None:
            self._setup = read_setup()
            _require_members(self._setup)
            if questions.step(self._setup):
                for answer in questions.take():
                    self._receive(questions, answer)
                for name, asked in questions.open().items():
                    wish = Wish.of(asked.content)
                    self._status.clients[name].version = wish.version if wish else None
                self._save_status()
            else:
                time.sleep(_POLL_S)
        made = to_record(unflatten(step.model, self._like))
        self._status.used = self._updates.used
        self._keep(number, made, step.metrics, self._updates.state())
        self._updates.settle()
        return made

    def _ask_for(self, version: int, arrays: ArrayRecord) -> Round:
        """Whoever is asked from now on is sent this version."""
        content = RecordDict(
            {"config": ConfigRecord({**self._config, "server-round": version + 1}), "arrays": arrays}
        )
        Wish(self._updates.form, version).into(content)
        if self._questions is None:
            clients = read_setup().clients
            asked = {name: Message(content, client.node_id, "train") for name, client in clients.items()}
            self._questions = Round(1, asked, self._status, self._grid)
            self._save_status()
        else:
            self._questions.renew(content)
        return self._questions

    def _receive(self, questions: Round, answer: Answer) -> None:
        wish, said = Wish.of(answer.asked.content), Wish.of(answer.message.content)
        client = self._setup.clients.get(answer.name)
        if wish is None or client is None:
            # It has left the training meanwhile.
            return
        try:
            if said != wish and wish.form != "model":
                raise UpdateError("its ClientApp is none of `checkpointing_client_app`: make it one")
            self._updates.receive(
                client.number,
                wish.version,
                answer.message.metadata.reply_to_message_id,
                _arrays(answer.message),
            )
        except UpdateError as error:
            questions.refuse(answer, str(error))


def _require_members(setup: Setup) -> None:
    if not setup.clients:
        raise RuntimeError("all clients have left")
    if isinstance(setup.strategy, strategies.FedSuda) and len(setup.clients) < len(setup.samples):
        raise RuntimeError(
            "a client has left, and in fed_suda each takes part in every episode: submit the job without it, "
            "or with hale_fed"
        )


def _updates(setup: Setup, start: Checkpoint) -> Updates:
    match setup.strategy:
        case strategies.FedAsync() | strategies.HpAsgd():
            return _DirectUpdates(setup.strategy, setup.samples, setup.updates, start)
        case strategies.HaleFed() | strategies.FedSuda():
            return BrokeredUpdates(setup.strategy.server_rate, setup.brokers, start)
    raise RuntimeError(f"{setup.strategy.kind} is not asynchronous")


def _arrays(message: Message) -> Arrays | None:
    record = next(iter(message.content.array_records.values()), None)
    return None if record is None else from_record(record)
