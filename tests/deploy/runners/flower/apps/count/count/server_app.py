"""How many updates of each of three clients were used."""

import numpy as np
from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp

from spotweave.deploy.fl.synchronous import train

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    train(grid, context, ArrayRecord({"weights": Array(np.zeros(3))}))
