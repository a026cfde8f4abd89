"""A client's side: what its ClientApp has trained, in the form that the server asks for."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Sequence
from pathlib import Path

from flwr.app import ArrayRecord, Context, Message

# Not in the public modules of 1.41, though it is the type of a public argument.
from flwr.clientapp.typing import ClientAppCallable

from agents.federated.asynchronous.shards import RingVector, split
from agents.federated.asynchronous.updates import UpdateError
from deploy.fl.asynchronous.exchange import Wish
from deploy.fl.asynchronous.vectors import difference, flatten
from deploy.fl.brokers import places
from deploy.fl.brokers.places import BrokerError, Place, Places, UnwantedError
from deploy.fl.records import from_record, to_record

_AGAIN_S = 2.0
_PATIENCE_S = 600.0
_log = logging.getLogger(__name__)


def send_update(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """A mod of Flower: what the ClientApp answers with is its trained weights.

    Raises:
        UpdateError: if the ClientApp's answer, or its shards at a broker, cannot be used; one line.
    """
    wish = Wish.of(message.content) if message.has_content() else None
    if wish is None or wish.form == "model":
        return call_next(message, context)
    # The ClientApp may change the arrays that it was sent.
    before = {name: array.copy() for name, array in from_record(_arrays(message)).items()}
    reply = call_next(message, context)
    if reply.has_error():
        return reply
    found = difference(from_record(_arrays(reply)), before)
    (name, *_) = reply.content.array_records
    if wish.form == "shards":
        place = context.node_config[places.KEY]
        brokers = Places.load(Path(str(place))).brokers
        send_shards(brokers, wish.version, split(flatten(found), len(brokers)))
        del reply.content.array_records[name]
    else:
        reply.content.array_records[name] = to_record(found)
    wish.into(reply.content)
    return reply


def send_shards(
    brokers: Sequence[Place], version: int, shards: Sequence[RingVector], patience_s: float = _PATIENCE_S
) -> None:
    """Send each broker its shard of one update (Liu 2022, Algorithm 4).

    A shard that may or may not have arrived is sent again. Where one is not wanted any more, or a broker is
    not there for long, the update is given up: its other shards are incomplete, and are discarded.

    Args:
        brokers: of the job, by number.
        version: of the model that the update began with.
        shards: of the update, one for each broker.
        patience_s: a broker that does not answer is asked again for so long.

    Raises:
        UpdateError: if a broker refuses its shard.
    """
    number = secrets.randbits(53)
    until_s = time.monotonic() + patience_s
    for broker, shard in zip(brokers, shards, strict=True):
        while True:
            try:
                broker.ask("PUT", f"/v1/shards/{version}/{number}", shard.tobytes())
                break
            except UnwantedError as error:
                _log.warning("an update is given up: %s", error)
                return
            except BrokerError as error:
                if time.monotonic() > until_s:
                    _log.warning("an update is given up: %s", error)
                    return
                time.sleep(_AGAIN_S)


def _arrays(message: Message) -> ArrayRecord:
    record = next(iter(message.content.array_records.values()), None)
    if record is None:
        raise UpdateError("the ClientApp's answer holds no arrays: expected its trained weights")
    return record
