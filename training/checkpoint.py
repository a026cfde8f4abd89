"""Checkpoints: a trained policy in one file, and the whole state of a training run in another."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from agents.evolved import EvolvedPolicy
from agents.factory import CLUSTER_COUNT_INDEPENDENT, EVOLVED, make_evolved, make_network
from agents.rules.appraisal import Appraiser
from agents.value_policy import ValuePolicy
from envs.simulation.world import WorldError, WorldSpec
from training.adapters.flat_policy import FlatPolicy, load_flat_policy
from training.adapters.settings import LIBRARY_KINDS
from training.files import write_atomically

FORMAT = 1

TrainedPolicy = ValuePolicy | EvolvedPolicy | FlatPolicy
"""What a checkpoint may hold."""


class CheckpointError(WorldError):
    """A checkpoint that cannot be used, and why, in one line."""


def save_policy(
    path: Path,
    policy: TrainedPolicy,
    agent: dict[str, Any],
    spec: WorldSpec,
    scales: Sequence[float],
    weights: Sequence[float],
    training: dict[str, Any],
) -> None:
    """Write a policy atomically.

    Args:
        path: the file.
        policy: what to save.
        agent: AgentSettings as a dict.
        spec: the world it was trained for.
        scales: (K,) target scales the network was built with.
        weights: (K,) scalarisation weights.
        training: facts for the card: command, seed, commit, episodes, validation score.
    """
    state = {
        "format": FORMAT,
        "agent": agent,
        "world": {
            "name": spec.name,
            "n_clusters": spec.n_clusters,
            "cluster_names": list(spec.cluster_names),
            "components": list(spec.components),
        },
        "scales": [float(x) for x in scales],
        "weights": [float(x) for x in weights],
        "training": training,
        "network": {name: tensor.cpu() for name, tensor in policy.network.state_dict().items()},
    }
    save_state(path, state)


def save_state(path: Path, state: dict[str, Any]) -> None:
    """Write tensors and plain values atomically. Raises WriteError."""

    def write(temporary: Path) -> None:
        try:
            torch.save(state, temporary)
        except RuntimeError as error:  # torch's way to say that the disk is full
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error

    write_atomically(path, write)


def load_state(path: Path) -> dict[str, Any]:
    """Read what `save_state` wrote; nothing in the file is executed.

    Raises:
        CheckpointError: if the file is missing or is not such a state.
    """
    if not path.is_file():
        raise CheckpointError(f"no checkpoint at {path}: give the path of a policy.pt file")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds for a file that is not its own
        raise CheckpointError(f"{path} is not a readable checkpoint ({type(error).__name__})") from error
    if not isinstance(state, dict) or "format" not in state:
        raise CheckpointError(f"{path} is not a Spotweave checkpoint: it lacks the format number")
    if state["format"] != FORMAT:
        raise CheckpointError(
            f"{path} has checkpoint format {state['format']}, this version reads format {FORMAT}: train again"
        )
    return state


def load_policy(
    path: Path, spec: WorldSpec, weights: Sequence[float] | None = None, device: str = "cpu"
) -> TrainedPolicy:
    """The greedy policy of a checkpoint, ready for a world.

    Args:
        path: the file, or a run directory that holds policy.pt.
        spec: the world it shall act in.
        weights: (K,) other scalarisation weights than those trained with.
        device: where it computes.

    Raises:
        CheckpointError: if it was trained for another environment or number of clusters.
        ValueError: if the weights are too few, too many or not finite.
    """
    path = Path(path)
    state = load_state(path / "policy.pt" if path.is_dir() else path)
    if "network" not in state or "world" not in state:
        raise CheckpointError(f"{path} holds no policy: give the path of a policy.pt file")
    trained, kind = state["world"], state["agent"]["kind"]
    if trained["name"] != spec.name or tuple(trained["components"]) != spec.components:
        raise CheckpointError(
            f"{path} was trained for +env={trained['name']}, not for +env={spec.name}: "
            "give a checkpoint of this environment"
        )
    if trained["n_clusters"] != spec.n_clusters and kind not in CLUSTER_COUNT_INDEPENDENT:
        raise CheckpointError(
            f"{path} was trained for {trained['n_clusters']} clusters, this world has {spec.n_clusters}: "
            "train again, or use an agent whose network does not depend on their number (agent=spotweave)"
        )
    if kind in LIBRARY_KINDS:
        return load_flat_policy(state, spec, weights, device)
    if kind in EVOLVED:
        return _load_evolved(path, state, weights)
    network = make_network(state["agent"], trained["n_clusters"], state["scales"], state["weights"])
    try:
        network.load_state_dict(state["network"])
    except RuntimeError as error:
        raise CheckpointError(
            f"{path} holds weights that its own settings do not fit: train again"
        ) from error
    chosen = list(weights) if weights else state["weights"]
    if network.n_outputs == 1:
        if weights and list(weights) != state["weights"]:
            raise CheckpointError(
                f"{path} learned one scalarised value: its weights cannot be changed without retraining"
            )
        chosen = [1.0]
    named = state["agent"]["appraiser"]
    appraiser = None if named == "none" else Appraiser(named)
    agent = state["agent"]
    return ValuePolicy(network, chosen, agent["name"], device, appraiser, agent["shortlist"], agent["margin"])


def _load_evolved(path: Path, state: dict[str, Any], weights: Sequence[float] | None) -> EvolvedPolicy:
    if weights and list(weights) != state["weights"]:
        raise CheckpointError(
            f"{path} was trained on the objective itself: its weights cannot be changed without retraining"
        )
    agent = state["agent"]
    policy = make_evolved(agent["kind"], agent["pair_size"], agent["name"])
    try:
        policy.network.load_state_dict(state["network"])
    except RuntimeError as error:
        raise CheckpointError(
            f"{path} holds weights that its own settings do not fit: train again"
        ) from error
    return policy
