"""A client's side: what its ClientApp has trained, in the form that the server asks for."""

from __future__ import annotations

from flwr.app import ArrayRecord, Context, Message

# Not in the public modules of 1.41, though it is the type of a public argument.
from flwr.clientapp.typing import ClientAppCallable

from agents.federated.asynchronous.updates import UpdateError
from deploy.fl.asynchronous.exchange import Wish
from deploy.fl.asynchronous.vectors import difference
from deploy.fl.records import from_record, to_record


def send_update(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """A mod of Flower: what the ClientApp answers with is its trained weights.

    Raises:
        UpdateError: if the ClientApp's answer cannot be used; one line.
    """
    wish = Wish.of(message.content) if message.has_content() else None
    # The ClientApp may change the arrays that it was sent.
    before = from_record(_arrays(message)) if wish is not None and wish.form != "model" else {}
    before = {name: array.copy() for name, array in before.items()}
    reply = call_next(message, context)
    if wish is None or wish.form == "model" or reply.has_error():
        return reply
    found = difference(from_record(_arrays(reply)), before)
    name = next(iter(reply.content.array_records))
    reply.content.array_records[name] = to_record(found)
    wish.into(reply.content)
    return reply


def _arrays(message: Message) -> ArrayRecord:
    record = next(iter(message.content.array_records.values()), None)
    if record is None:
        raise UpdateError("the ClientApp's answer holds no arrays: expected its trained weights")
    return record
