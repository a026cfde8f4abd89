"""Compare policies on the same episodes.

python training/compare.py +env=NAME policies=[rl_lsfc,maf,eft] checkpoint=PATH suite=test episodes=50 out=DIR

The first policy is the reference. Without policies=, the checkpoint is compared with every rule of the
environment. Writes DIR/summary.json, DIR/episodes.csv, DIR/report.html and DIR/config.yaml;
python training/compare.py config=DIR/config.yaml out=OTHER gives the same numbers again.
"""

from __future__ import annotations

from omegaconf import DictConfig

from training.comparison import command_values, compare
from training.config import run_command


def main(config: DictConfig) -> int:
    """The command's body; returns the exit code."""
    return compare(command_values(config), config.out)


if __name__ == "__main__":
    run_command("compare", main)
