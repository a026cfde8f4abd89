"""The main loop of a ServerApp on instances that come and go: what an app calls."""

from __future__ import annotations

from collections.abc import Mapping

from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from deploy.fl.asynchronous.training import Asynchronous
from deploy.fl.synchronous import Synchronous
from deploy.fl.training import Evaluate, Value, read_setup


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
