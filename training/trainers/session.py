"""One training session: rounds, validation, curves, checkpoints, until the episodes or the minutes are up."""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from types import FrameType
from typing import Any

import numpy as np
import yaml
from torch.utils.tensorboard import SummaryWriter

from spotweave.agents.policy import Policy
from spotweave.training.checkpoint import RunDirectory
from spotweave.training.config import UsageError
from spotweave.training.engine import Engine
from spotweave.training.evaluation.episodes import SuitePlayer, find_suite
from spotweave.training.files import write_csv, write_json
from spotweave.training.settings import Tracking, TrainerSettings
from spotweave.training.trainers.trainer import RoundReport, Trainer, TrainingProgress, mean_metrics


class InterruptedTraining(Exception):  # noqa: N818 - it is no error
    """Ctrl-C: the session ended early, after saving its state."""


@dataclass
class Best:
    """The best validation so far."""

    gain_pct: float = -math.inf  # over the guide
    episode: int = 0


class Session:
    """Drives a trainer: plays validation episodes, draws curves, saves, and ends where it is told to.

    Of several worlds each counts alike, however dear its episodes: the mean of the gains over the guide, in
    percent, chooses the policy.
    """

    def __init__(
        self,
        trainer: Trainer,
        player: SuitePlayer,
        guide: Policy,  # the rule that the curves are compared with
        settings: TrainerSettings,
        run: RunDirectory,
        save_policy: Callable[[dict[str, Any]], None],  # writes a checkpoint, given facts for its card
        engine: Engine | None = None,  # where validation episodes are played; None: in this process
        tracking: Tracking | None = None,  # what keeps the curves besides TensorBoard; None: nothing
    ) -> None:
        self.trainer = trainer
        self.player = player
        self.engine = engine
        spec = player.world().spec
        self.guide = guide
        self.settings = settings
        self.run_directory = run
        self.save_policy = save_policy
        self.tracking = tracking
        self.suite = find_suite("validation", settings.validation_episodes)
        self.objective = spec.metrics[0]
        self.higher_is_better = spec.higher_is_better[0]
        self.best = Best()
        self.first_gain_pct = -math.inf  # of the policy that the training started from
        self.seconds_before = 0.0
        self.decisions = 0
        self.interrupted = False
        self._validated_at = 0
        self.validations: list[dict[str, float]] = []

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state."""
        self.trainer.load_state_dict(state["trainer"])
        self.best = Best(float(state["best_gain_pct"]), int(state["best_episode"]))
        self.first_gain_pct = float(state["first_gain_pct"])
        self.seconds_before = float(state["seconds"])
        self.decisions = int(state["decisions"])
        self._validated_at = int(state["validated_at"])
        # What was validated after this state was saved is validated again; its rows would come twice.
        self.validations = [dict(row) for row in state.get("validations", [])]

    def _save(self, seconds: float) -> None:
        self.run_directory.save_state(
            {
                "trainer": self.trainer.state_dict(),
                "best_gain_pct": self.best.gain_pct,
                "best_episode": self.best.episode,
                "first_gain_pct": self.first_gain_pct,
                "seconds": seconds,
                "decisions": self.decisions,
                "validated_at": self._validated_at,
                "validations": self.validations,
            }
        )

    def run(self) -> None:
        """Train to the end.

        Raises:
            InterruptedTraining: after Ctrl-C, once the round is finished and the state is on disk.
        """
        total = self.settings.episodes
        finished = self.trainer.episodes_done >= total
        curves = Curves(self.run_directory, self.tracking)
        previous = signal.signal(signal.SIGINT, self._on_interrupt)
        try:
            with TrainingProgress(total, self.trainer.episodes_done, self.objective) as progress:
                guided = self._validate(self.guide)
                progress.guide(self.guide.name, mean_metrics(guided)[self.objective])
                if self.trainer.episodes_done == 0 and getattr(self.trainer, "acts_untrained", True):
                    self._validate_policy(curves, guided, 0.0, progress)
                # On a fresh machine it has compiled until here, which may take longer than a quick training.
                started = saved = time.monotonic()
                while self.trainer.episodes_done < total:
                    round_started = time.monotonic()
                    report = self.trainer.round()
                    self.decisions += report.decisions
                    rate = report.decisions / (time.monotonic() - round_started)
                    self._write_round(curves, report, rate)
                    seconds = self.seconds_before + time.monotonic() - started
                    limit_s = self.settings.max_minutes * 60
                    out_of_time = 0 < limit_s <= seconds
                    out_of_decisions = 0 < self.settings.max_decisions <= self.decisions
                    last = self.trainer.episodes_done >= total or out_of_time or out_of_decisions
                    since = self.trainer.episodes_done - self._validated_at
                    if last or since >= self.settings.validation_every:
                        self._validate_policy(curves, guided, seconds, progress, last)
                    progress.advance(self.trainer.episodes_done, rate, seconds, limit_s)
                    due = time.monotonic() - saved >= self.settings.save_every_minutes * 60
                    if due or last or self.interrupted:
                        self._save(self.seconds_before + time.monotonic() - started)
                        saved = time.monotonic()
                    if last:
                        finished = True
                        break
                    if self.interrupted:
                        raise InterruptedTraining
        finally:
            signal.signal(signal.SIGINT, previous)
            curves.close(finished)

    def _on_interrupt(self, signum: int, frame: FrameType | None) -> None:
        if self.interrupted:
            raise KeyboardInterrupt  # the second Ctrl-C: the state on disk is that of the latest save
        self.interrupted = True

    def _validate(self, policy: Policy) -> list[dict[str, float]]:
        """Metrics of each world, means over the suite."""
        everywhere = [(world, policy) for world in range(len(self.player.builds))]
        played = self.player.play(self.engine, everywhere, self.suite)
        return [mean_metrics([result.metrics for result in one]) for one in played]

    def _validate_policy(
        self,
        curves: Curves,
        guided: list[dict[str, float]],
        seconds: float,
        progress: TrainingProgress,
        last: bool = False,
    ) -> None:
        episode = self.trainer.episodes_done
        self._validated_at = episode
        reached = self._validate(self.trainer.policy)
        metrics, guide_metrics = mean_metrics(reached), mean_metrics(guided)
        gain_pct = float(np.mean(list(map(self._gain_pct, reached, guided))))
        curves.add(
            {
                **{f"validation/{name}": value for name, value in metrics.items()},
                **{f"guide/{name}": guide_metrics[name] for name in metrics},
                "validation/gain_over_guide_pct": gain_pct,
            },
            episode,
        )
        row = {name: value for name, value in metrics.items() if name != "decisions"}  # those of an episode
        self.validations.append({"episode": episode, "decisions": self.decisions, **row})
        rows = [list(one.values()) for one in self.validations]
        write_csv(self.run_directory.validations, list(self.validations[0]), rows)
        first = len(self.validations) == 1
        if first:
            self.first_gain_pct = gain_pct
        counts = episode == 0 or last or episode >= self.settings.choose_from * self.settings.episodes
        preferred = last and self.settings.prefer_last and gain_pct > self.first_gain_pct
        # A first validation is kept whatever it is, so that there is a policy; NaN improves on nothing.
        if (counts and gain_pct > self.best.gain_pct) or preferred or first:
            self.best = Best(gain_pct if counts and not math.isnan(gain_pct) else -math.inf, episode)
            self.save_policy(
                {
                    "episodes": episode,
                    "decisions": self.decisions,
                    "seconds": round(seconds, 1),
                    "validation": metrics,
                    "validation_guide": guide_metrics,
                    "guide": self.guide.name,
                }
            )
        progress.validated(metrics[self.objective], gain_pct, self.best.gain_pct, episode)

    def _gain_pct(self, metrics: Mapping[str, float], guide_metrics: Mapping[str, float]) -> float:
        """By how many percent of its size the guide's objective is surpassed."""
        reached, guided = metrics[self.objective], guide_metrics[self.objective]
        gain = reached - guided if self.higher_is_better else guided - reached
        return 100.0 * gain / (abs(guided) or 1.0)

    def _write_round(self, curves: Curves, report: RoundReport, rate: float) -> None:
        played = "train_drawn" if report.drawn else "train"
        scalars = {
            "charts/decisions_per_second": rate,
            "charts/epsilon_1": report.epsilon_1,
            "charts/learning_rate": report.learning_rate,
            "charts/decisions": self.decisions,
            **{f"{played}/{name}": value for name, value in report.metrics.items()},
            **{f"losses/{name}": value for name, value in report.losses.items()},
        }
        sign = 1.0 if self.higher_is_better else -1.0
        if not report.drawn:
            scalars["charts/return"] = sign * report.metrics[self.objective]
        curves.add(scalars, self.trainer.episodes_done)


# Where the curves of a training go: TensorBoard, and with `tracking=` MLflow or Weights & Biases as well.


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
