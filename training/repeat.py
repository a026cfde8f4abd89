"""Train everything that a study needs, several seeds each, resumable.

python training/repeat.py experiment=liu2022/trainings [only=[NAME,...]] [seeds=[0,1]] [workers=2] [out=DIR]

A finished run is left as it is, an interrupted one is resumed, one whose settings differ from what is asked
for is refused before anything starts. Each run writes OUT/NAME/seedN with its training.log. With engine=ray
ray.address=auto, a Ray cluster trains them, whose machines share this folder (docs/scaling.md).
"""

from __future__ import annotations

from omegaconf import DictConfig

from spotweave.training.config import UsageError, resolved, run_command


def main(config: DictConfig) -> int:
    """The command's body; returns the exit code."""
    values = resolved(config)
    if "experiment" in values:
        raise UsageError("this experiment compares: run it with training/compare.py experiment=...")
    if not values["trainings"]:
        raise UsageError("nothing to train: give experiment=STUDY/trainings, e.g. liu2022/trainings")
    from spotweave.training.studies.command import repeat

    return repeat(values)


if __name__ == "__main__":
    run_command("repeat", main)
