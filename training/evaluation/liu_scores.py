"""The comparative measures of Liu 2022 for two metrics: missed deadlines (TMDL) and delay (AJDR or AJER)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from envs.simulation.series import Ints
from training.evaluation.statistics import FloatVector, as_sample


@dataclass(frozen=True)
class LiuScores:
    """Scores A-D of a policy against a baseline, 0..100 (Liu 2022, section 4, "Comparative methods")."""

    a: float
    b: float
    c: float
    d: float


@dataclass(frozen=True)
class Dominance:
    """Episodes in which a policy beats another in both, one or none of two metrics (Liu 2022, section 5)."""

    fully: int
    semi: int
    non: int

    def __str__(self) -> str:
        return f"{self.fully}/{self.semi}/{self.non}"


def eval_app(tmdl: ArrayLike, ajdr: ArrayLike) -> FloatVector:
    """Eval_app = 1 / (0.02 TMDL + AJDR), higher is better (Liu 2022, eq. 4.9); infinite at 0 and 0."""
    with np.errstate(divide="ignore"):
        return np.asarray(1.0 / (0.02 * np.asarray(tmdl, np.float64) + np.asarray(ajdr, np.float64)))


def log_score(tmdl: ArrayLike, ajer: ArrayLike) -> FloatVector:
    """S_log = sign(S) log10(max(|S|, 1)), S = -TMDL + 50 (100 - AJER) (Liu 2022, section 5)."""
    score = -np.asarray(tmdl, np.float64) + 50.0 * (100.0 - np.asarray(ajer, np.float64))
    return np.asarray(np.sign(score) * np.log10(np.maximum(np.abs(score), 1.0)))


def dominance(
    misses: ArrayLike, other_misses: ArrayLike, delay: ArrayLike, other_delay: ArrayLike
) -> Dominance:
    """F/S/N of a policy against another: lower is better in both metrics, a tie is no win.

    Args:
        misses: TMDL of the policy per episode.
        other_misses: TMDL of the other policy.
        delay: AJER (or AJDR) of the policy.
        other_delay: that of the other policy.
    """
    wins = _metric_wins(misses, other_misses, delay, other_delay)
    return Dominance(int((wins == 2).sum()), int((wins == 1).sum()), int((wins == 0).sum()))


def liu_scores(
    misses: ArrayLike, other_misses: ArrayLike, delay: ArrayLike, other_delay: ArrayLike
) -> LiuScores:
    """Score-A to Score-D of a policy against a baseline, on a basis of 100 for any number of episodes.

    Score-D adds the relative changes from the baseline; a change from 0 to 0 is none, from 0 to more is
    infinite.

    Args:
        misses: TMDL of the policy per episode.
        other_misses: TMDL of the baseline.
        delay: AJDR of the policy, in percent.
        other_delay: that of the baseline.
    """
    wins = _metric_wins(misses, other_misses, delay, other_delay)
    # Eval_app decides by its denominator, which stays finite when a policy misses and delays nothing.
    ours = 0.02 * as_sample(misses, 1) + as_sample(delay, 1)
    theirs = 0.02 * as_sample(other_misses, 1) + as_sample(other_delay, 1)
    change = _relative_change(misses, other_misses) + _relative_change(delay, other_delay)
    return LiuScores(
        a=100.0 * float(np.mean(wins == 2)),
        b=100.0 * float(np.mean(wins / 2.0)),
        c=100.0 * float(np.mean(ours < theirs)),
        d=100.0 * float(np.mean(change < 0.0)),
    )


def _metric_wins(
    misses: ArrayLike, other_misses: ArrayLike, delay: ArrayLike, other_delay: ArrayLike
) -> Ints:
    samples = [as_sample(values, 1) for values in (misses, other_misses, delay, other_delay)]
    if len({len(sample) for sample in samples}) != 1:
        raise ValueError(f"expected the same episodes everywhere, got {[len(s) for s in samples]}")
    ours, theirs, our_delay, their_delay = samples
    return (ours < theirs).astype(np.int64) + (our_delay < their_delay).astype(np.int64)


def _relative_change(ours: ArrayLike, baseline: ArrayLike) -> FloatVector:
    new, old = as_sample(ours, 1), as_sample(baseline, 1)
    change = np.where(new > 0, np.inf, 0.0)
    np.divide(new - old, old, out=change, where=old > 0)
    return change
