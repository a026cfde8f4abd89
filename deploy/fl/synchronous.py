"""Synchronous rounds: each asks all whom a strategy of flwr's chooses, and ends with their answers.

A client that is away when it is asked, or leaves before it has answered, is asked again when it is back,
maybe on another instance; whoever has answered may leave. An answer that would spoil the average (NaN, other
shapes, a size beyond reason) is refused, and its client has failed.

Of flwr's own: its strategies (who is asked what, aggregation), its grid (messages).
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Strategy
from numpy.typing import NDArray

from spotweave.agents.federated.asynchronous.aggregator import UpdateError
from spotweave.deploy.fl.asynchronous import Asynchronous
from spotweave.deploy.fl.records import from_record, to_record
from spotweave.deploy.fl.round import Round, SafeGrid
from spotweave.deploy.fl.training import Evaluate, Training, Value, read_setup
from spotweave.deploy.fl.updates import Arrays, require_alike
from spotweave.deploy.model.strategies import MOST_SAMPLES
from spotweave.deploy.model.strategies import FedAvg as FedAvgSettings

Array = NDArray[np.generic]
_POLL_S = 1.0
_MOST_GROWTH = 1e6
"""No average survives an update whose norm is more than this many times that of the model."""


class Synchronous(Training):
    """See Training. `strategy`: one of `flwr.serverapp.strategy`; None: FedAvg over all clients."""

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
        # flwr waits without an end for as many as both of these.
        least = ("min_available_nodes", "min_train_nodes")
        needed = max(getattr(self._strategy, name, 1) for name in least)
        if len(names) < needed:
            raise RuntimeError(f"the strategy needs {needed} clients and {len(names)} are left")
        # The strategy is shown all clients, here or not: who is asked must not depend on who is away.
        everyone = SafeGrid(self._grid, list(names))
        messages = self._strategy.configure_train(number, arrays, ConfigRecord(dict(self._config)), everyone)
        asked = {names[message.metadata.dst_node_id]: message for message in messages}
        if not asked:
            raise RuntimeError(f"the strategy asks no client in round {number}")
        before = from_record(arrays)
        current = Round(number, asked, self._status, self._grid, lambda answer: self._screen(answer, before))
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

    def _screen(self, answer: Message, before: Arrays) -> None:
        """Refuse an answer that would spoil the average; scale a long update down, if the job says so."""
        key = getattr(self._strategy, "arrayrecord_key", "arrays")
        record = answer.content.array_records.get(key)
        if record is None:
            raise UpdateError(f"it holds no arrays under {key!r}")
        try:
            after = from_record(record)
        except (ValueError, EOFError, OSError) as error:
            raise UpdateError(f"its arrays cannot be read: {' '.join(str(error).split())}") from error
        require_alike(after, before)
        weight_key = getattr(self._strategy, "weighted_by_key", "num-examples")
        for metrics in answer.content.metric_records.values():
            for name, value in metrics.items():
                numbers = value if isinstance(value, list) else [value]
                if not all(math.isfinite(number) for number in numbers):
                    raise UpdateError(f"its metric {name!r} is {value}: expected finite numbers")
                if name == weight_key and not all(0 <= number <= MOST_SAMPLES for number in numbers):
                    raise UpdateError(f"its {name!r} is {value}: expected 0 to {MOST_SAMPLES}")
        update_norm, model_norm = _norm(after, before), _norm(before)
        if not math.isfinite(update_norm):
            raise UpdateError("its weights hold NaN or infinity: expected numbers; lower the learning rate")
        if update_norm > _MOST_GROWTH * max(1.0, model_norm):
            raise UpdateError(
                f"its update has norm {update_norm:.3g}, and the model {model_norm:.3g}: expected at most "
                f"{_MOST_GROWTH:.0e} times that; lower the learning rate"
            )
        settings = self._setup.strategy
        most = settings.clip_norm if isinstance(settings, FedAvgSettings) else None
        if most is not None and update_norm > most:
            answer.content[key] = to_record(
                {name: _scaled(after[name], old, most / update_norm) for name, old in before.items()}
            )


def _scaled(after: Array, before: Array, scale: float) -> Array:
    """The weights after an update that is scaled down; counters (integers) stay."""
    if before.dtype.kind != "f":
        return after
    old = before.astype(np.float64)
    scaled: Array = (old + scale * (after.astype(np.float64) - old)).astype(before.dtype)
    return scaled


def _norm(arrays: Arrays, less: Arrays | None = None) -> float:
    """The L2 norm over all arrays of real numbers; infinite or NaN where one of them is."""
    total = 0.0
    for name, array in arrays.items():
        if array.dtype.kind == "f":
            values = array.astype(np.float64)
            if less is not None:
                values = values - less[name].astype(np.float64)
            with np.errstate(over="ignore", invalid="ignore"):
                total += float(np.square(values).sum())
    return math.sqrt(total)


# The main loop of a ServerApp on instances that come and go: what an app calls.


def train(
    grid: Grid,
    context: Context,
    initial: ArrayRecord,
    strategy: Strategy | None = None,
    evaluate: Evaluate | None = None,
    config: Mapping[str, Value] | None = None,
) -> ArrayRecord:
    """Train until all rounds of the job are done, from the newest checkpoint that anyone has.

    Args:
        grid: of the ServerApp.
        context: of the ServerApp.
        initial: weights of a fresh start.
        strategy: one of `flwr.serverapp.strategy`; None: FedAvg over all clients. It is not saved: one with a
            memory of its own (FedAdam) starts over after a resume. Not with a job whose `strategy` is
            asynchronous.
        evaluate: metrics of the aggregated weights, after each round.
        config: what each client is told in each round.

    Returns:
        The weights after the last round; they are also the newest file in the job's `flower/checkpoints`.

    Raises:
        RuntimeError: if the app was not started by spotweave.
        ValueError: if the job's strategy is asynchronous and the ServerApp brings one, or a client's update
            cannot be used.
        SuperLinkLost: if the SuperLink does not answer; the runner starts the run over.
    """
    asked = read_setup().strategy.kind
    if asked == "fedavg":
        return Synchronous(grid, initial, strategy, evaluate, config).run()
    if strategy is not None:
        raise ValueError(
            f"the job's strategy is {asked} and the ServerApp brings {type(strategy).__name__}: leave one out"
        )
    return Asynchronous(grid, initial, evaluate, config).run()
