"""Where the curves of a training go: TensorBoard, and with `tracking=` MLflow or Weights & Biases as well."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import yaml
from torch.utils.tensorboard import SummaryWriter

from spotweave.training.config import UsageError
from spotweave.training.files import write_json
from spotweave.training.run_directory import RunDirectory
from spotweave.training.settings import Tracking

EXPERIMENT = "spotweave"
"""Experiment (MLflow) or project (W&B), unless their own environment variables name another."""


class Curves:
    """Scalars over the episodes of a run, which TensorBoard and, if it is named, a tracker keep.

    A resumed run goes on in the tracker's run that it began. Raises UsageError if that cannot be reached.
    """

    def __init__(self, run: RunDirectory, tracking: Tracking | None) -> None:
        self._tensorboard = SummaryWriter(run.path / "tensorboard")
        self._tracker: _MLflow | _WandB | None = None
        if tracking is None:
            return
        file = run.path / "tracking.json"
        known = json.loads(file.read_text("utf-8")).get(tracking) if file.is_file() else None
        try:
            self._tracker = _MLflow(run, known) if tracking == "mlflow" else _WandB(run, known)
        except Exception as error:  # of a library's many kinds
            raise UsageError(f"tracking={tracking} does not work: {error}") from error
        write_json(file, {tracking: self._tracker.identity})

    def add(self, values: Mapping[str, float], episode: int) -> None:
        """Add a point to each of some curves."""
        for name, value in values.items():
            self._tensorboard.add_scalar(name, value, episode)
        self._tell(lambda tracker: tracker.log(values, episode))

    def close(self, finished: bool) -> None:
        """Write what is left; `finished`: the training came to its end."""
        self._tensorboard.close()
        self._tell(lambda tracker: tracker.close(finished))

    def _tell(self, act: Callable[[_MLflow | _WandB], None]) -> None:
        """A tracker that fails does not end the training."""
        if self._tracker is None:
            return
        try:
            act(self._tracker)
        except Exception as error:  # of a library's many kinds
            self._tracker = None
            print(f"tracking stopped, TensorBoard's curves go on: {error}", file=sys.stderr)


class _MLflow:
    def __init__(self, run: RunDirectory, known: str | None) -> None:
        self._mlflow: Any = import_module("mlflow")
        self._client = self._mlflow.MlflowClient()
        if known is None:
            name = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
            found = self._client.get_experiment_by_name(name)
            experiment = self._client.create_experiment(name) if found is None else found.experiment_id
            known = str(self._client.create_run(experiment, run_name=run.path.name).info.run_id)
            self._client.log_artifact(known, str(run.config))
        self._client.update_run(known, status="RUNNING")
        self.identity = known

    def log(self, values: Mapping[str, float], episode: int) -> None:
        now_ms = int(time.time() * 1000)
        metric = self._mlflow.entities.Metric
        points = [metric(name, float(value), now_ms, episode) for name, value in values.items()]
        self._client.log_batch(self.identity, metrics=points)

    def close(self, finished: bool) -> None:
        self._client.set_terminated(self.identity, "FINISHED" if finished else "KILLED")


class _WandB:
    def __init__(self, run: RunDirectory, known: str | None) -> None:
        wandb: Any = import_module("wandb")
        project = os.environ.get("WANDB_PROJECT", EXPERIMENT)
        self._run = wandb.init(
            project=project,
            name=run.path.name,
            dir=str(run.path),
            id=known,
            resume="allow",
            config=yaml.safe_load(run.config.read_text("utf-8")),
        )
        # Not its own steps, which may not go back: a resumed run repeats what it had not saved.
        self._run.define_metric("*", step_metric="episode")
        self.identity = str(self._run.id)

    def log(self, values: Mapping[str, float], episode: int) -> None:
        self._run.log({**values, "episode": episode})

    def close(self, finished: bool) -> None:
        self._run.finish(exit_code=0 if finished else 1)
