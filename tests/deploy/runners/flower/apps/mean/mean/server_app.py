"""The weighted mean of the clients' numbers, found by federated averaging."""

import numpy as np
from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp

from spotweave.deploy.fl.synchronous import train

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    def evaluate(number: int, arrays: ArrayRecord) -> dict[str, float]:
        if context.run_config["fault"] == "both":
            raise KeyError("no such column")
        return {"weight": float(arrays["weights"].numpy()[0])}

    train(grid, context, ArrayRecord({"weights": Array(np.zeros(3))}), evaluate=evaluate)
