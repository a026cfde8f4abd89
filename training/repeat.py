"""Train everything that a study needs, several seeds each, resumable.

python training/repeat.py +experiment=liu2022/trainings [only=[NAME,...]] [seeds=[0,1]] [workers=2] [out=DIR]

A finished run is left as it is, an interrupted one is resumed, one whose settings differ from what is asked
for is refused before anything starts. Each run writes OUT/NAME/seedN with its training.log. With engine=ray
ray.address=auto, a Ray cluster trains them, whose machines share this folder (docs/scaling.md).
"""

from __future__ import annotations

from collections.abc import Sequence

from omegaconf import DictConfig

from training.config import INTERRUPTED, UsageError, resolved, run_command, typed
from training.studies.processes import RepeatProgress, run_all
from training.studies.remote import started_by
from training.studies.search import TuneSettings
from training.studies.trained import RepeatSettings, Run, planned_runs

FAILED = 1


def main(config: DictConfig) -> int:
    """The command's body; returns the exit code."""
    values = resolved(config)
    if "experiment" in values:
        raise UsageError("this experiment compares: run it with training/compare.py +experiment=...")
    if not values["trainings"]:
        raise UsageError("nothing to train: give +experiment=STUDY/trainings, e.g. liu2022/trainings")
    settings = typed(RepeatSettings, values, "")
    return run_planned(planned_runs(settings), settings)


def run_planned(runs: Sequence[Run], settings: RepeatSettings | TuneSettings) -> int:
    """Run what is not finished, and say what became of it; returns the exit code.

    Raises:
        UsageError: before anything starts, for a run that has other settings than are asked for now, or where
            the cluster does not answer.
    """
    for run in runs:
        run.refuse_other_settings()
    finished = [run for run in runs if run.finished]
    wanted = [run for run in runs if not run.finished]
    with (
        started_by(settings.engine, settings.ray.address) as start,
        RepeatProgress(runs, finished) as progress,
    ):
        outcomes = run_all(wanted, settings.workers, settings.threads, progress, start)
    for run, problem in outcomes.failed.items():
        print(f"failed: {run.name}: {problem}")
    print(
        f"{len(finished) + len(outcomes.finished)} of {len(runs)} trainings are finished "
        f"({len(finished)} were before), {len(outcomes.failed)} failed"
    )
    if outcomes.interrupted:
        print("interrupted; states are saved. Go on with the same command")
        return INTERRUPTED
    return FAILED if outcomes.failed else 0


if __name__ == "__main__":
    run_command("repeat", main)
