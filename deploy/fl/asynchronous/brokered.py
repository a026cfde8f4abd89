"""Updates that go through brokers: the server sees sums, and not whose updates they are of."""

from __future__ import annotations

import logging

import numpy as np

from agents.federated.asynchronous.shards import RingVector, recover
from agents.federated.asynchronous.updates import UpdateError
from deploy.fl.asynchronous.exchange import Form
from deploy.fl.asynchronous.steps import Step
from deploy.fl.asynchronous.vectors import Arrays, flatten
from deploy.fl.brokers.messages import ComponentHead, Model, Prepared
from deploy.fl.brokers.places import BrokerError, Place
from deploy.fl.checkpoints import Checkpoint

_HEAD_MOST_BYTES = 1000
_log = logging.getLogger(__name__)


class BrokeredUpdates:
    """See `Updates`.

    What brokers have is on their disks, and stays until they know of a version that was made of it. So
    nothing has to be remembered here.

    Args of its making:
        server_rate: eta.
        brokers: of the job, by number.
        start: the model to go on from.
    """

    def __init__(self, server_rate: float, brokers: list[Place], start: Checkpoint) -> None:
        self._rate = server_rate
        self._brokers = brokers
        self._version = start.round
        self._model = flatten(start.arrays)
        self._untold = set(range(len(brokers)))
        self._next: Step | None = None

    @property
    def form(self) -> Form:
        """See Updates."""
        return "shards"

    @property
    def used(self) -> list[int]:
        """See Updates."""
        return []

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

    def state(self) -> str:
        """See Updates."""
        return ""

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
