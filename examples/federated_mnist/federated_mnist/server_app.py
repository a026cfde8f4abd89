"""The server: federated averaging over rounds that survive interruptions."""

import torch
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp

from federated_mnist.network import make_network
from spotweave.deploy.fl.digits import TRAINING, load_digits
from spotweave.deploy.fl.synchronous import train

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """All rounds of the job, from its newest checkpoint."""
    torch.set_num_threads(1)
    train(grid, context, ArrayRecord(make_network().state_dict()), evaluate=evaluate)


def evaluate(number: int, arrays: ArrayRecord) -> dict[str, float]:
    """Accuracy on digits that no client has."""
    images, labels = load_digits()
    network = make_network()
    network.load_state_dict(arrays.to_torch_state_dict())
    with torch.no_grad():
        found = network(torch.from_numpy(images[TRAINING:])[:, None]).argmax(dim=1)
    return {"accuracy": float((found == torch.from_numpy(labels[TRAINING:])).float().mean())}
