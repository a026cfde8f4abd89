"""A client: trains the network on its own digits. Only weights leave it."""

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from torch import nn

from federated_mnist.network import make_network
from spotweave.deploy.fl.client import checkpointing_client_app
from spotweave.deploy.fl.digits import load_digits, share
from spotweave.deploy.fl.epoch import Epoch

BATCH = 32

app = checkpointing_client_app()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Some epochs of SGD from the weights that came with the message, or from where it was interrupted."""
    torch.set_num_threads(1)
    # "cuda" fails where torch finds no GPU: no CPU takes its place.
    device = torch.device(str(context.run_config["device"]))
    images, labels = load_digits()
    shares = [int(part) for part in str(context.run_config["shares"]).split(",")]
    own = share(shares, int(context.node_config["partition"]))
    x, y = torch.from_numpy(images[own])[:, None].to(device), torch.from_numpy(labels[own]).to(device)
    # In the same order after an interruption.
    order = torch.Generator().manual_seed(int(message.content.config_records["config"]["server-round"]))
    epochs = int(context.run_config["local-epochs"])
    batches = [one for _ in range(epochs) for one in torch.randperm(len(x), generator=order).split(BATCH)]
    epoch = Epoch(message, context, steps=len(batches))
    network = make_network().to(device)
    network.load_state_dict(epoch.arrays.to_torch_state_dict())
    optimizer = torch.optim.SGD(network.parameters(), lr=float(context.run_config["learning-rate"]))
    loss = torch.tensor(0.0)
    for done, batch in enumerate(batches[epoch.done :], start=epoch.done + 1):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(network(x[batch]), y[batch])
        loss.backward()
        optimizer.step()
        epoch.save(done, lambda: ArrayRecord({key: one.cpu() for key, one in network.state_dict().items()}))
    content = RecordDict(
        {
            "arrays": ArrayRecord(network.cpu().state_dict()),
            "metrics": MetricRecord({"num-examples": len(x), "train-loss": loss.item()}),
        }
    )
    return Message(content, reply_to=message)
