"""A ClientApp that keeps the aggregated weights it was sent, and offers them to a server that lost its own.

What it trains it sends in the form that the job's strategy needs.

Multi-FedLS (Brum 2023, chapter 6): a client checkpoint every round; the server resumes from the newest.
"""

from __future__ import annotations

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

# Not in the public modules of 1.41, though it is the type of a public argument.
from flwr.clientapp.typing import ClientAppCallable

from spotweave.deploy.fl import checkpoints
from spotweave.deploy.fl.checkpoints import Checkpoint
from spotweave.deploy.fl.epoch import state_folder, with_share
from spotweave.deploy.fl.records import from_record, to_record
from spotweave.deploy.fl.updates import send_update

QUERY = "query.checkpoint"


def checkpointing_client_app() -> ClientApp:
    """A ClientApp to which an app adds its `@app.train()` and whatever else it does."""
    app = ClientApp(mods=[_keep, send_update])
    app.query("checkpoint")(_offer)
    return app


def _keep(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    if message.metadata.message_type == "train" and message.has_content():
        _remember(message.content, context)
    return with_share(call_next(message, context), context)


def _remember(content: RecordDict, context: Context) -> None:
    number = next((record["server-round"] for record in content.config_records.values()), None)
    arrays = next(iter(content.array_records.values()), None)
    folder = state_folder(context)
    if isinstance(number, int) and arrays is not None and folder is not None and number > 1:
        # What is sent for round n is what n - 1 rounds have given.
        checkpoints.save(folder, Checkpoint(number - 1, from_record(arrays)), keep=1)


def _offer(message: Message, context: Context) -> Message:
    newer_than = next(iter(message.content.config_records.values()))["newer-than"]
    folder = state_folder(context)
    kept = None if folder is None else checkpoints.load(folder)
    if kept is None or not isinstance(newer_than, int) or kept.round <= newer_than:
        return Message(RecordDict({"offer": ConfigRecord({"round": 0})}), reply_to=message)
    content = RecordDict({"offer": ConfigRecord({"round": kept.round}), "arrays": to_record(kept.arrays)})
    return Message(content, reply_to=message)
