"""The directory of one training run: what is written where, and what a resumed run reads back."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from spotweave.training.checkpoint import load_state, save_state
from spotweave.training.config import UsageError, provenance, to_yaml
from spotweave.training.files import file_hash, prepare_directory, write_json, write_text


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
