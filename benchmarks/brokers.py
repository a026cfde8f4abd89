"""What two brokers add to a version of the model: the clients' shards, the list, the sums, over TLS."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import numpy as np
import psutil

from benchmarks.measurement import Measurement, at_most, cpu_s
from spotweave.agents.federated.asynchronous.brokers import split
from spotweave.deploy.fl import broker
from spotweave.deploy.fl.asynchronous import BrokeredUpdates
from spotweave.deploy.fl.broker import BrokerError, BrokerSettings, Place
from spotweave.deploy.fl.checkpoints import Checkpoint
from spotweave.deploy.fl.updates import send_shards
from spotweave.deploy.model.strategies import HaleFed
from spotweave.deploy.runners.flower.superlink import free_ports
from spotweave.deploy.security.keys import node_pair

CLIENTS = 3
WEIGHTS = {51_390: "examples/federated_mnist", 1_000_000: "a million weights"}
VERSIONS = 20
FLOWER_ROUND_S = 6.0  # what Flower 1.41 needs for a round of trivial work: it looks for messages every 3 s
SHARE = 0.05
_START_S = 60.0


def measure(*, smallest: bool = False) -> Iterator[Measurement]:
    """CPU seconds of all processes together, so that neighbours cost nothing: clients, brokers, server."""
    for size, what in WEIGHTS.items():
        seconds = _version_s(size, 2 if smallest else VERSIONS)
        yield at_most(
            f"CPU of two brokers, a version of {CLIENTS} updates, {what}",
            seconds,
            "s",
            SHARE * FLOWER_ROUND_S if size == 51_390 else None,
            note=f"mean; bar: {SHARE:.0%} of the {FLOWER_ROUND_S:g} s of a Flower round without any training",
        )


def _version_s(size: int, versions: int) -> float:
    strategy = HaleFed(kind="hale_fed", updates_per_round=CLIENTS)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        asking = [broker.SERVER, *(broker.client(number) for number in range(CLIENTS))]
        known, processes = _start(Path(folder), strategy, asking, stack)
        server = BrokeredUpdates(1.0, known[broker.SERVER], Checkpoint(0, {"w": np.zeros(size, np.float32)}))
        until_s = time.monotonic() + _START_S
        while True:
            with suppress(BrokerError):
                known[broker.SERVER][0].post("/v1/model", {"version": 0, "size": size})
                known[broker.SERVER][1].post("/v1/model", {"version": 0, "size": size})
                break
            if time.monotonic() > until_s:
                raise ValueError("the brokers do not start")
            time.sleep(0.1)
        update = np.random.default_rng(0).normal(0.0, 0.01, size)
        processes.append(psutil.Process())
        began_s = cpu_s(*processes)
        for version in range(versions):
            for number in range(CLIENTS):
                send_shards(known[broker.client(number)], version, split(update, strategy.brokers))
            if server.step() is None:
                raise ValueError("the brokers have made no version of all clients' updates")
            server.settle()
            # The success message, as before the next version.
            server.step()
        return (cpu_s(*processes) - began_s) / versions


def _start(
    folder: Path, strategy: HaleFed, asking: list[str], stack: ExitStack
) -> tuple[dict[str, list[Place]], list[psutil.Process]]:
    """Broker processes that end with the stack, and their places for each one who asks."""
    processes = []
    pairs = [node_pair() for _ in range(strategy.brokers)]
    ports = free_ports("127.0.0.1", strategy.brokers)
    known = {
        who: [
            Place(host="127.0.0.1", port=port, certificate=pair.certificate, token=f"{who} {port}")
            for port, pair in zip(ports, pairs, strict=True)
        ]
        for who in [*asking, broker.broker(0)]
    }
    for number, pair in enumerate(pairs):
        settings = BrokerSettings(
            number=number,
            host="127.0.0.1",
            port=ports[number],
            certificate=pair.certificate,
            key=pair.key,
            tokens={who: f"{who} {ports[number]}" for who in known},
            strategy=strategy,
            samples=[1] * CLIENTS,
            epochs_s=[None] * CLIENTS,
            others=dict(enumerate(known[broker.broker(0)][1:], 1)) if number == 0 else {},
            folder=folder / str(number),
        )
        file = folder / f"{number}.json"
        file.write_text(settings.model_dump_json())
        process = subprocess.Popen([sys.executable, "-m", "spotweave.deploy.fl.broker_server", str(file)])
        processes.append(psutil.Process(process.pid))
        stack.callback(process.wait)
        stack.callback(process.kill)
    return known, processes
