"""Synchronous rounds: each asks all whom a strategy of flwr's chooses, and ends with their answers.

A client that is away when it is asked, or leaves before it has answered, is asked again when it is back,
maybe on another instance; whoever has answered may leave.

Of flwr's own: its strategies (who is asked what, aggregation), its grid (messages).
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from flwr.app import ArrayRecord, ConfigRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Strategy

from deploy.fl.grid import RoundGrid
from deploy.fl.round import Round
from deploy.fl.training import Evaluate, Training, Value, read_setup

_POLL_S = 1.0


class Synchronous(Training):
    """See Training.

    Args of its making, besides:
        strategy: one of `flwr.serverapp.strategy`; None: FedAvg over all clients.
    """

    def __init__(
        self,
        grid: Grid,
        initial: ArrayRecord,
        strategy: Strategy | None = None,
        evaluate: Evaluate | None = None,
        config: Mapping[str, Value] | None = None,
    ) -> None:
        super().__init__(grid, initial, evaluate, config)
        self._strategy = strategy or FedAvg(min_train_nodes=1, min_available_nodes=1)

    def _round(self, number: int, arrays: ArrayRecord) -> ArrayRecord:
        self._setup = read_setup()
        names = {client.node_id: name for name, client in self._setup.clients.items()}
        needed = getattr(self._strategy, "min_available_nodes", 1)
        if len(names) < needed:
            raise RuntimeError(f"the strategy needs {needed} clients and {len(names)} are left")
        # The strategy is shown all clients, here or not: who is asked must not depend on who is away.
        everyone = RoundGrid(self._grid, list(names))
        messages = self._strategy.configure_train(number, arrays, ConfigRecord(dict(self._config)), everyone)
        asked = {names[message.metadata.dst_node_id]: message for message in messages}
        if not asked:
            raise RuntimeError(f"the strategy asks no client in round {number}")
        current = Round(number, asked, self._status, self._grid)
        self._save_status()
        while not current.is_over(self._setup.quorum):
            self._setup = read_setup()
            if current.step(self._setup):
                self._save_status()
            if not current.is_over(self._setup.quorum):
                time.sleep(_POLL_S)
        aggregated, metrics = self._strategy.aggregate_train(number, current.replies())
        if aggregated is None:
            raise RuntimeError(f"the strategy made no weights of {len(current.replies())} replies")
        self._keep(number, aggregated, metrics)
        return aggregated
