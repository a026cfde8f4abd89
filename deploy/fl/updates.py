"""What travels in asynchronous training: questions, updates, and models as one row of numbers."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, Self

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict

# Not in the public modules of 1.41, though it is the type of a public argument.
from flwr.clientapp.typing import ClientAppCallable
from numpy.typing import NDArray

from spotweave.agents.federated.asynchronous.aggregator import UpdateError, Vector
from spotweave.agents.federated.asynchronous.brokers import RingVector, split
from spotweave.deploy.fl import broker
from spotweave.deploy.fl.broker import BrokerError, Place, Places, UnwantedError
from spotweave.deploy.fl.records import from_record, to_record

# What a client is asked for beside the model, and what it says of its update, in a record of Flower's.

KEY = "spotweave-update"
Form = Literal["model", "difference", "shards"]
"""The trained weights; their difference from what the client was sent; that, by way of the brokers."""


class Wish(NamedTuple):
    """The form in which an update is asked for, and was sent."""

    form: Form
    version: int  # of the model that the client begins with

    def into(self, content: RecordDict) -> None:
        """Say so in a message."""
        content.config_records[KEY] = ConfigRecord({"form": self.form, "version": self.version})

    @classmethod
    def of(cls, content: RecordDict) -> Self | None:
        """What a message says; None: nothing that can be understood."""
        record = content.config_records.get(KEY, ConfigRecord())
        form, version = record.get("form"), record.get("version")
        if not isinstance(version, int) or isinstance(version, bool) or version < 0:
            return None
        match form:
            case "model" | "difference" | "shards":
                return cls(form, version)
        return None


# A model's arrays as one row of numbers, which is what aggregators and brokers know of it, and back.

Arrays = Mapping[str, NDArray[np.generic]]


def flatten(arrays: Arrays) -> Vector:
    """(d,), in the order of the arrays. Raises UpdateError if one holds no numbers."""
    for name, array in arrays.items():
        if array.dtype.kind not in "fiu":
            raise UpdateError(f"array {name!r} holds {array.dtype}: expected numbers")
    kind = np.result_type(np.float32, *arrays.values())
    row: Vector = np.concatenate([np.zeros(0, kind), *(array.ravel() for array in arrays.values())])
    return row


def unflatten(row: Vector, like: Arrays) -> dict[str, NDArray[np.generic]]:
    """Arrays with the names, shapes and types of others; counters (integers) are rounded."""
    ends = np.cumsum([array.size for array in like.values()])[:-1]
    parts = np.split(row, ends)
    return {
        name: (part if array.dtype.kind == "f" else np.rint(part)).reshape(array.shape).astype(array.dtype)
        for (name, array), part in zip(like.items(), parts, strict=True)
    }


def require_alike(given: Arrays, expected: Arrays) -> None:
    """Refuse arrays of another model. Raises UpdateError: one line: the first that differs."""
    if list(given) != list(expected):
        raise UpdateError(
            f"it holds the arrays {str(list(given))[:100]}: expected {str(list(expected))[:100]}"
        )
    for name, array in expected.items():
        if given[name].shape != array.shape:
            raise UpdateError(f"its array {name!r} has shape {given[name].shape}: expected {array.shape}")


def difference(after: Arrays, before: Arrays) -> dict[str, NDArray[np.generic]]:
    """D = M_K - M_0 of local training (Liu 2022, Algorithm 4). Raises UpdateError: other models, or NaN."""
    require_alike(after, before)
    found = {name: np.subtract(after[name], before[name]) for name in before}
    if any(not np.isfinite(array).all() for array in found.values()):
        raise UpdateError(
            "the trained weights hold NaN or infinity: expected numbers; lower the learning rate"
        )
    return found


# A client's side: what its ClientApp has trained, in the form that the server asks for.


_AGAIN_S = 2.0
_PATIENCE_S = 600.0
_log = logging.getLogger(__name__)


def send_update(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """A mod of Flower: what the ClientApp answers with is its trained weights.

    Raises UpdateError: one line.
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
        place = context.node_config[broker.KEY]
        brokers = Places.model_validate_json(Path(str(place)).read_bytes()).brokers
        send_shards(brokers, wish.version, split(flatten(found), len(brokers)))
        del reply.content.array_records[name]
    else:
        reply.content.array_records[name] = to_record(found)
    wish.into(reply.content)
    return reply


def send_shards(
    brokers: Sequence[Place], version: int, shards: Sequence[RingVector], patience_s: float = _PATIENCE_S
) -> None:
    """Send each broker its shard of one update to this version (Liu 2022, Algorithm 4).

    A shard that may or may not have arrived is sent again. Where one is not wanted any more, or a broker does
    not answer for `patience_s`, the update is given up: its other shards are incomplete, and are discarded.
    Raises UpdateError if a broker refuses its shard.
    """
    number = secrets.randbits(53)
    until_s = time.monotonic() + patience_s
    for place, shard in zip(brokers, shards, strict=True):
        while True:
            try:
                place.ask("PUT", f"/v1/shards/{version}/{number}", shard.tobytes())
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
