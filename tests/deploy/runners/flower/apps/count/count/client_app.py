"""Adds one to the client's own weight, and keeps count on its node: what is lost or used twice is seen."""

import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict

from spotweave.deploy.fl.client import checkpointing_client_app

app = checkpointing_client_app()


@app.train()
def train(message: Message, context: Context) -> Message:
    time.sleep(float(context.run_config["epoch-s"]))
    weights = np.array(message.content.array_records["arrays"]["weights"].numpy())
    weights[int(context.node_config["place"])] += 1.0
    counted = Path(str(context.node_config["spotweave-state"]), "trained")
    counted.parent.mkdir(parents=True, exist_ok=True)
    with counted.open("a") as file:
        file.write("x")
    metrics = MetricRecord({"num-examples": 1})
    content = RecordDict({"arrays": ArrayRecord({"weights": Array(weights)}), "metrics": metrics})
    return Message(content, reply_to=message)
