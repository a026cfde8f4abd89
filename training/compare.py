"""Compare policies on the same episodes.

python training/compare.py env=NAME policies=[rl_lsfc,maf,eft] checkpoint=PATH suite=test episodes=50 out=DIR

The first policy is the reference. Without policies=, the checkpoint is compared with every rule of the
environment. experiment=liu2022/table_5_3 measures what a table or figure of a publication shows, every
training seed of every agent. Writes DIR/summary.json, DIR/episodes.csv, DIR/report.html and DIR/config.yaml;
python training/compare.py config=DIR/config.yaml out=OTHER gives the same numbers again.
"""

from __future__ import annotations

import shlex
import sys

from omegaconf import DictConfig

from spotweave.training.config import UsageError, resolved, run_command


def main(config: DictConfig) -> int:
    """The command's body; returns the exit code."""
    if "trainings" in config:
        raise UsageError("this experiment lists trainings: run it with training/repeat.py experiment=...")
    from spotweave.training.engine import KEYS, engine_settings

    engine = engine_settings(resolved(config))
    if "experiment" in config:
        from spotweave.training.studies.command import run_experiment

        words = [word for word in sys.argv[1:] if not word.startswith(("out=", *KEYS))]
        command = shlex.join(["python", "training/compare.py", *words])
        return run_experiment(resolved(config), command, engine)
    from spotweave.training.evaluation.comparison import command_values, compare

    return compare(command_values(config), config.out, engine)


if __name__ == "__main__":
    run_command("compare", main)
