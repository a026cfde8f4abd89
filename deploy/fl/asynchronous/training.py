"""Asynchronous training: a client gets the newest model as soon as it has delivered; a round is a version."""

from __future__ import annotations

import time

from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

from agents.federated.asynchronous.updates import UpdateError
from deploy.fl.asynchronous.brokered import BrokeredUpdates
from deploy.fl.asynchronous.direct import DirectUpdates
from deploy.fl.asynchronous.exchange import Wish
from deploy.fl.asynchronous.steps import Updates
from deploy.fl.asynchronous.vectors import Arrays, unflatten
from deploy.fl.checkpoints import Checkpoint
from deploy.fl.exchange import Setup
from deploy.fl.records import from_record, to_record
from deploy.fl.round import Answer, Round
from deploy.fl.training import Training, read_setup
from deploy.model import strategies

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
    """Raises RuntimeError if the training cannot go on with those who are left."""
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
            return DirectUpdates(setup.strategy, setup.samples, setup.updates, start)
        case strategies.HaleFed() | strategies.FedSuda():
            return BrokeredUpdates(setup.strategy.server_rate, setup.brokers, start)
    raise RuntimeError(f"{setup.strategy.kind} is not asynchronous")


def _arrays(message: Message) -> Arrays | None:
    record = next(iter(message.content.array_records.values()), None)
    return None if record is None else from_record(record)
