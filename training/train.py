"""Train a policy: python training/train.py env=NAME [agent=...] [trainer=...] [resume=DIR] [KEY=VALUE ...].

`workers=2` plays validation and test episodes in 2 processes, `engine=ray ray.address=auto` on a Ray cluster
(docs/scaling.md).
`checkpoint=NAME` goes on from a trained policy, and keeps that one unless what became of it is better.

Writes a run directory with the resolved configuration, TensorBoard curves, the best policy on validation
(`policy.pt`), the whole training state (`state.pt`) and, at the end, a table against the strongest rules on
the test suite with a report.
"""

from __future__ import annotations

import sys

from omegaconf import DictConfig

from spotweave.training.config import resolved, run_command


def main(config: DictConfig) -> int:
    """Start or resume; returns the exit code."""
    from spotweave.training.trainers.command import start_or_resume

    return start_or_resume(resolved(config), " ".join(["python", *sys.argv]))[0]


if __name__ == "__main__":
    run_command("train", main)
