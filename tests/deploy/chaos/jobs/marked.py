"""The example's ServerApp, which waits for a gate before the last round and writes down when it is done."""

import os
import time
from collections.abc import Callable
from pathlib import Path

# This file is copied into the example.
from federated_mnist import server_app  # type: ignore[import-not-found]
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp

app = ServerApp()
evaluate: Callable[[int, ArrayRecord], dict[str, float]] = server_app.evaluate


def gated(number: int, arrays: ArrayRecord) -> dict[str, float]:
    """As the example evaluates; the gate is open when nothing goes wrong any more."""
    while number >= int(os.environ["GATED_ROUND"]) and not Path(os.environ["GATE"]).exists():
        time.sleep(0.2)
    return evaluate(number, arrays)


@app.main()
def main(grid: Grid, context: Context) -> None:
    server_app.evaluate = gated
    server_app.main(grid, context)
    with Path(os.environ["LEDGER"]).open("a") as file:
        file.write("done\n")
