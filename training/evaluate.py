"""Evaluate one policy.

python training/evaluate.py env=NAME checkpoint=PATH suite=test episodes=50 [out=DIR]
python training/evaluate.py env=NAME policy=maf suite=validation

Prints every metric with its interval and tails. With out=DIR it writes DIR/evaluation.json, DIR/episodes.csv
and DIR/config.yaml; python training/evaluate.py config=DIR/config.yaml gives the same numbers again.
"""

from __future__ import annotations

from omegaconf import DictConfig

from spotweave.training.config import resolved, run_command


def main(config: DictConfig) -> int:
    """The command's body; returns the exit code."""
    from spotweave.training.engine import engine_settings
    from spotweave.training.evaluation.comparison import command_values, evaluate

    return evaluate(command_values(config), config.out, engine_settings(resolved(config)))


if __name__ == "__main__":
    run_command("evaluate", main)
