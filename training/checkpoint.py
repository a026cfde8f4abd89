"""Checkpoints: a trained policy in one file, and the whole state of a training run in another."""

from __future__ import annotations

import errno
import hashlib
import io
import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from spotweave.agents.library_policy import FlatPolicy
from spotweave.agents.mtdqn.policy import MTDQNPolicy
from spotweave.agents.networks import ValuePolicy
from spotweave.agents.policy import Policy
from spotweave.agents.spot.policy import SpotPolicy
from spotweave.agents.stored import (
    FORMAT,
    CheckpointError,
    digest_file,
    load_policy_state,
    parsed_state,
    stored_policy,
)
from spotweave.envs.simulation.world import WorldSpec
from spotweave.training.config import UsageError, provenance, to_yaml
from spotweave.training.files import (
    file_hash,
    prepare_directory,
    replacing,
    write_bytes,
    write_json,
    write_text,
)

TrainedPolicy = ValuePolicy | MTDQNPolicy | FlatPolicy | SpotPolicy  # policies that a checkpoint may hold


def save_policy(
    path: Path,
    policy: TrainedPolicy,
    agent: dict[str, Any],
    spec: WorldSpec,
    scales: Sequence[float],
    weights: Sequence[float],
    training: dict[str, Any],
) -> None:
    """Write a policy with what it was trained for atomically, and its digest next to it.

    `training` holds facts for the card: command, seed, commit, episodes, validation score.
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
    save_policy_state(path, state)


def save_policy_state(path: Path, state: dict[str, Any]) -> None:
    """Write a policy's state atomically, and its digest next to it. Raises WriteError."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    write_policy(path, buffer.getvalue())


def write_policy(path: Path, content: bytes) -> None:
    """Write a policy's file atomically, and its digest next to it. Raises WriteError."""
    digests = digest_file(path)
    line = f"{hashlib.sha256(content).hexdigest()}  {path.name}\n"
    # Two files cannot be replaced in one step: whenever this ends, the file that is there has its digest.
    before = digests.read_text("utf-8") if digests.is_file() and path.is_file() else ""
    write_text(digests, line + before)
    write_bytes(path, content)
    write_text(digests, line)


def save_state(path: Path, state: dict[str, Any]) -> None:
    """Write the state of a training atomically: tensors and plain values. Raises WriteError.

    Compressed: what a replay holds repeats itself, so a tenth of the bytes remain.
    """
    with replacing(path) as temporary:
        try:
            with pa.output_stream(str(temporary), compression="zstd") as stream:
                torch.save(state, stream)
        except RuntimeError as error:  # torch's way to say that the disk is full
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error


def load_state(path: Path) -> dict[str, Any]:
    """Read what `save_state` wrote; nothing in the file is executed.

    Raises:
        CheckpointError: if it cannot be read or is not such a state.
    """
    try:
        with pa.input_stream(str(path), compression="zstd") as stream:
            content = io.BytesIO(stream.read())
    except OSError as error:
        raise CheckpointError(f"{path} is not a readable checkpoint ({type(error).__name__})") from error
    return parsed_state(path, content)


def load_policy(
    path: Path, spec: WorldSpec, weights: Sequence[float] | None = None, device: str = "cpu"
) -> Policy:
    """The greedy policy of a checkpoint, ready for a world.

    It is that of a file, or of a run directory that holds policy.pt; `weights` are other ones, (K,), than it
    was trained with.

    Raises:
        CheckpointError: if it cannot be read (see `load_policy_state`), or was trained for another
            environment or number of clusters.
        ValueError: if the weights are too few, too many or not finite.
    """
    path = Path(path)
    state = load_policy_state(path / "policy.pt" if path.is_dir() else path)
    return stored_policy(path, state, spec, weights, device)


# The directory of one training run: what is written where, and what a resumed run reads back.


class RunDirectory:
    """Places within a run's directory, where there also is `provenance.json`, version and commit."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.policy = path / "policy.pt"  # the best on validation
        self.start = path / "start.pt"  # the policy that a fine-tuning started from
        self.state = path / "state.pt"  # the whole training state after the latest saved round
        self.config = path / "config.yaml"  # resolved
        self.validations = path / "validation.csv"  # the metrics of each validation, one row each
        self.done = path / "done.json"  # written last: the run has come to its end

    @classmethod
    def create(cls, out: str | None, env: str, agent: str, seed: int, config: dict[str, Any]) -> RunDirectory:
        """A fresh directory with its configuration, at `out` or under runs/.

        Raises UsageError if `out` already holds a run, WriteError.
        """
        stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
        path = Path(out) if out else Path("runs") / env / f"{agent}-seed{seed}-{stamp}"
        run = cls(prepare_directory(path))
        if run.state.exists() or run.policy.exists():
            raise UsageError(
                f"{path} already holds a run: resume it with resume={path}, or give another out="
            )
        write_text(run.config, to_yaml(config))
        write_json(path / "provenance.json", provenance())
        return run

    @classmethod
    def reopen(cls, path: str) -> tuple[RunDirectory, dict[str, Any]]:
        """An interrupted run and its configuration. Raises UsageError if there is nothing to resume."""
        run = cls(Path(path))
        if not run.config.is_file():
            raise UsageError(f"nothing to resume in {path}: it has no config.yaml")
        prepare_directory(run.path)
        try:
            container = OmegaConf.to_container(OmegaConf.load(run.config))
        except (YAMLError, OmegaConfBaseException) as error:
            raise UsageError(f"{run.config} cannot be read: {' '.join(str(error).split())}") from error
        expected = {"env", "agent", "trainer", "seed", "device", "command"}
        if not isinstance(container, dict) or not expected <= set(container):
            raise UsageError(f"nothing to resume in {path}: its config.yaml is not that of a training run")
        return run, {str(key): value for key, value in container.items()}

    def finish(self, facts: Mapping[str, object]) -> None:
        """Write `done.json`: the facts and the SHA-256 of the policy. Raises WriteError."""
        write_json(self.done, {**facts, "policy_sha256": file_hash(self.policy)})

    def save_state(self, state: dict[str, Any]) -> None:
        """Write the training state atomically."""
        save_state(self.state, {"format": 1, **state})

    def load_state(self) -> dict[str, Any] | None:
        """The saved training state, or None if the run stopped before its first save."""
        return load_state(self.state) if self.state.exists() else None
