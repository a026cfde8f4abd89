"""What every kind of training does: resume from the newest checkpoint, round after round, tell the runner.

After each round the weights are in a checkpoint before anything else happens, so that a run that is started
again after the SuperLink's or the ServerApp's death goes on where the last one was.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from spotweave.deploy.fl import checkpoints
from spotweave.deploy.fl.checkpoints import (
    HISTORY_ROUNDS,
    SETUP_VARIABLE,
    Checkpoint,
    Setup,
    Status,
    one_line,
)
from spotweave.deploy.fl.client import QUERY
from spotweave.deploy.fl.records import from_record, to_record
from spotweave.deploy.fl.round import SafeGrid, SuperLinkLost

Evaluate = Callable[[int, ArrayRecord], Mapping[str, float]]
"""Maps a round's number and its weights to metrics; runs next to the ServerApp."""

_OFFER_S = 30.0


Value = bool | bytes | float | int | str


class Training:
    """One run of a ServerApp. Raises RuntimeError if it was not started by spotweave."""

    def __init__(
        self,
        grid: Grid,
        initial: ArrayRecord,
        evaluate: Evaluate | None = None,
        config: Mapping[str, Value] | None = None,
    ) -> None:
        self._setup = read_setup()
        # A new instance of a placed server does not have the folder yet.
        self._setup.status_file.parent.mkdir(parents=True, exist_ok=True)
        self._grid = SafeGrid(grid)
        self._initial = initial
        self._evaluate = evaluate
        self._config = dict(config or {})
        earlier = Status.load(self._setup.status_file) or Status(run=0)
        self._status = Status(
            run=self._setup.run,
            completed=earlier.completed,
            metrics=earlier.metrics,
            history=earlier.history,
            clients=earlier.clients,
        )

    def run(self) -> ArrayRecord:
        """Resume, do what is left, tell the runner how it ended."""
        try:
            return self._run()
        except SuperLinkLost:
            raise
        except Exception as error:
            self._status.error = one_line(error)
            self._save_status()
            raise

    def _run(self) -> ArrayRecord:
        start = self._resume()
        arrays = to_record(start.arrays) if start else self._initial
        known, self._status.completed = self._status.completed, start.round if start else 0
        if self._status.completed > known:
            # The last run ended between a round's checkpoint and what it was to tell of it.
            self._tell(self._status.completed, arrays)
        for number in range(self._status.completed + 1, self._setup.rounds + 1):
            arrays = self._round(number, arrays)
        self._status.finished = True
        for client in self._status.clients.values():
            client.owes = False
        self._save_status()
        return arrays

    def _round(self, number: int, arrays: ArrayRecord) -> ArrayRecord:
        """Make the weights of a round from those of the one before, and `_keep` them."""
        raise NotImplementedError

    def _keep(
        self, number: int, arrays: ArrayRecord, metrics: Mapping[str, object] | None, state: str = ""
    ) -> None:
        """A round is over: put it into a checkpoint before anything else happens, then tell of it."""
        # First: the replies are lost with this process, and nobody repeats a round that has a checkpoint.
        self._status.history[number] = {
            name: float(value) for name, value in (metrics or {}).items() if isinstance(value, int | float)
        }
        for old in sorted(self._status.history)[:-HISTORY_ROUNDS]:
            del self._status.history[old]
        self._save_status()
        checkpoints.save(self._setup.checkpoints, Checkpoint(number, from_record(arrays), state=state))
        self._tell(number, arrays)

    def _tell(self, number: int, arrays: ArrayRecord) -> None:
        """Evaluate the weights of a round that is in a checkpoint, and say that it is done."""
        found = self._status.history.setdefault(number, {})
        if self._evaluate is not None:
            found |= {name: float(value) for name, value in self._evaluate(number, arrays).items()}
        self._status.completed = number
        self._status.metrics = found
        self._save_status()

    def _resume(self) -> Checkpoint | None:
        """The newest checkpoint of all; clients are asked only if they may have a newer one."""
        own = checkpoints.load(self._setup.checkpoints)
        known = own.round if own else 0
        expected = max(self._status.completed, 1 if self._setup.run > 1 else 0)
        asks = known < expected or (self._setup.placed and self._setup.run > 1)
        offers = self._ask_for_checkpoints(known) if asks else []
        best = checkpoints.newest([own, *offers])
        self._status.resumed_from = best.source if best else ""
        if best is not None and best is not own:
            checkpoints.save(self._setup.checkpoints, best)
        return best

    def _ask_for_checkpoints(self, newer_than: int) -> list[Checkpoint]:
        names = {client.node_id: name for name, client in self._setup.clients.items()}
        content = RecordDict({"query": ConfigRecord({"newer-than": newer_than})})
        online = [node_id for node_id in self._grid.get_node_ids() if node_id in names]
        messages = [Message(content, node_id, QUERY) for node_id in online]
        if not messages:
            return []
        replies: Iterable[Message] = self._grid.send_and_receive(messages, timeout=_OFFER_S)
        offers = []
        for reply in replies:
            # An app without `checkpointing_client_app` answers with an error: it has nothing to offer.
            if reply.has_error() or "arrays" not in reply.content.array_records:
                continue
            number = reply.content.config_records["offer"]["round"]
            assert isinstance(number, int)
            arrays = from_record(reply.content.array_records["arrays"])
            offers.append(Checkpoint(number, arrays, f"client {names[reply.metadata.src_node_id]}"))
        return offers

    def _save_status(self) -> None:
        self._status.save(self._setup.status_file)


def read_setup() -> Setup:
    """What the runner tells this ServerApp now. Raises RuntimeError if there is nothing: see its message."""
    place = os.environ.get(SETUP_VARIABLE)
    if place is None:
        raise RuntimeError(f"{SETUP_VARIABLE} is not set: submit this app with `spotweave submit`")
    setup = Setup.load(Path(place))
    if setup is None:
        raise RuntimeError(f"{place} is missing: the job was removed")
    return setup
