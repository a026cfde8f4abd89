"""What an update tells of its participant's digits, and what one broker's shard tells (Figures 6.5-6.7)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.colors import CenteredNorm
from numpy.typing import NDArray

from spotweave.agents.federated.asynchronous.aggregator import Vector
from spotweave.agents.federated.asynchronous.brokers import decode, split, split_floats
from spotweave.envs.simulation.series import Floats
from spotweave.envs.traces.images import Images
from spotweave.training.canvas import panels, save
from spotweave.training.federated.asynchronous.networks import CLASSES, Network
from spotweave.training.federated.asynchronous.scenario import Scenario, read_scenario
from spotweave.training.federated.asynchronous.virtual_time import VirtualTime
from spotweave.training.studies.asynchronous.comparisons import EXAMPLES, Runs
from spotweave.training.studies.cells import table

BROKERS = 2


def last_layer(update: Vector, network: Network) -> Floats:
    """The weights of the last layer, (inputs, digits), which Figure 6.5 shows."""
    biases, weights = CLASSES, int(np.prod(network.shapes[-2]))
    return np.asarray(update, dtype=float)[-biases - weights : -biases].reshape(network.shapes[-2])


def guessed_digit(update: Vector, network: Network) -> int:
    """The digit that a curious observer takes its participant to hold.

    Steps on images of a digit raise the weights that lead to it, as their inputs are positive.
    """
    return int(last_layer(update, network).mean(axis=0).argmax())


def first_updates(
    scenario: Scenario, images: Images, seed: int
) -> tuple[Network, NDArray[np.float32], list[set[int]]]:
    """Every participant's update of the first model (N, d), and the digits that it holds."""
    world = VirtualTime(scenario, images, seed)
    work, base = world.local_work(), world.first_model
    jobs = [work.job(participant, base, "difference", 1.0) for participant in range(scenario.participants)]
    digits = [set(images.training_labels[own].tolist()) for own in world.holdings]
    return world.network, work.compute(jobs, "difference"), digits


def views(generator: np.random.Generator) -> dict[str, Callable[[Vector], Vector]]:
    """Views of an update by observer."""
    return {
        "the update itself": lambda update: update,
        "a float shard, positional masks": lambda update: split_floats(
            update, BROKERS, generator, "positional"
        )[0],
        "a float shard, distributional masks": lambda update: split_floats(
            update, BROKERS, generator, "distributional"
        )[0],
        "a shard of integers": lambda update: decode(split(update, BROKERS)[0]),
    }


def guessed_share(
    view: Callable[[Vector], Vector], updates: Sequence[Vector], digits: Sequence[set[int]], network: Network
) -> float:
    """The share of participants that hold the digit which an observer guesses from the view."""
    hits = [guessed_digit(view(u), network) in held for u, held in zip(updates, digits, strict=True)]
    return float(np.mean(hits))


def make(runs: Runs, seeds: int, picture: Path) -> dict[str, Any]:
    """Measure all views with all seeds and draw the first seed's; a document that JSON can hold."""
    scenario = read_scenario(EXAMPLES / "scenario_a.yaml")
    shares: dict[str, list[float]] = {}
    chance = []
    for seed in range(seeds):
        network, updates, digits = first_updates(scenario, runs.images, seed)
        chance.append(float(np.mean([len(held) for held in digits]) / CLASSES))
        for name, view in views(np.random.default_rng(seed)).items():
            shares.setdefault(name, []).append(guessed_share(view, list(updates), digits, network))
        if seed == 0:
            _draw(network, updates[0], digits[0], updates.mean(axis=0), picture)
    return {"seeds": seeds, "picture": picture.name, "shares": shares, "chance": chance}


def body(document: Mapping[str, Any]) -> str:
    """The table and the picture, from such a document alone."""
    rows = [
        [name, f"{100 * np.mean(shares):.0f} % ({100 * min(shares):.0f} to {100 * max(shares):.0f})"]
        for name, shares in document["shares"].items()
    ]
    rows.append(["guessing without looking", f"{100 * np.mean(document['chance']):.0f} %"])
    picture = f"![An update, its shards and the sum of all](liu2022-async/{document['picture']})"
    return "\n\n".join([table(["an observer sees", "guesses a digit that is held"], rows), picture])


def _draw(network: Network, update: Vector, held: set[int], mean: Vector, picture: Path) -> None:
    shards = [decode(shard) for shard in split(update, BROKERS)]
    shown = {
        f"update of a holder of {' and '.join(map(str, sorted(held)))}": update,
        "shard of broker 0": shards[0],
        "shard of broker 1": shards[1],
        "mean of all updates": mean,
    }
    figure, axes = panels(1, len(shown))
    for axis, (title, values) in zip(axes[0], shown.items(), strict=True):
        drawn = axis.imshow(last_layer(values, network), aspect="auto", cmap="RdBu_r", norm=CenteredNorm())
        axis.set_title(title, fontsize=9)
        axis.set(xlabel="digit", xticks=range(CLASSES))
        figure.colorbar(drawn, ax=axis)
    axes[0][0].set_ylabel("input of the last layer")
    save(figure, picture)
