"""Intervals over training seeds x episodes, for claims about a training method: both are resampled.

95 %, with the fixed seed of `training.evaluation.statistics`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from training.evaluation.statistics import (
    BOOTSTRAP_SEED,
    LEVEL,
    RESAMPLES,
    FloatVector,
    Interval,
    as_sample,
)


def _checked_table(values: ArrayLike, least_seeds: int) -> FloatVector:
    """(seeds, episodes) finite values, at least 2 episodes. Raises ValueError."""
    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 2 or len(table) < least_seeds or table.shape[1] < 2:
        raise ValueError(
            f"expected at least {least_seeds} training seeds x 2 episodes, got shape {table.shape}"
        )
    if not np.isfinite(table).all():
        seed, episode = (int(i) for i in np.argwhere(~np.isfinite(table))[0])
        raise ValueError(f"the value of seed {seed}, episode {episode} is not finite")
    return table


def _resample_counts(n_seeds: int, n_episodes: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """How often each resample holds each seed (RESAMPLES, seeds) and each episode (RESAMPLES, episodes)."""
    rng = np.random.default_rng(BOOTSTRAP_SEED)
    seeds = rng.multinomial(n_seeds, np.full(n_seeds, 1 / n_seeds), RESAMPLES)
    episodes = rng.multinomial(n_episodes, np.full(n_episodes, 1 / n_episodes), RESAMPLES)
    return seeds, episodes


def hierarchical_interval(values: ArrayLike) -> Interval:
    """95 % interval of the grand mean over training seeds x episodes, for claims about a training method.

    Every training seed meets the same episodes, so both are resampled, independently of each other
    (Owen 2007, "The pigeonhole bootstrap"). Resampling episodes within each seed would treat the weather
    that all seeds share as if it were drawn again for each.

    Args:
        values: (seeds, episodes), for example paired differences.

    Raises:
        ValueError: for fewer than 2 seeds or episodes, or values that are not finite.
    """
    table = _checked_table(values, least_seeds=2)
    seed_counts, episode_counts = _resample_counts(*table.shape)
    means = ((seed_counts @ table) * episode_counts).sum(axis=1) / table.size
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(low), float(high))


def clustered_interval(values: ArrayLike, clusters: Sequence[int]) -> Interval:
    """95 % interval of the grand mean over training seeds x episodes that come in clusters.

    Episodes that start on the same recorded day share its weather. So days are resampled, and of each day
    drawn its episodes (Davison and Hinkley 1997, section 3.8, both stages with replacement); seeds are
    resampled independently of both, as in `hierarchical_interval`. With few clusters such intervals are still
    too narrow.

    Args:
        values: (seeds, episodes); one seed is enough.
        clusters: (episodes,) the cluster of each episode.

    Raises:
        ValueError: for fewer than 2 episodes or clusters, shapes that do not fit, or values not finite.
    """
    table = _checked_table(values, least_seeds=1)
    labels, of_episode = np.unique(np.asarray(clusters), return_inverse=True)
    if len(of_episode) != table.shape[1]:
        raise ValueError(f"every episode needs its cluster: got {table.shape[1]} and {len(of_episode)}")
    if len(labels) < 2:
        raise ValueError(f"an interval over clusters needs at least 2, got {len(labels)}: raise episodes=")
    rng = np.random.default_rng(BOOTSTRAP_SEED)
    seed_counts = rng.multinomial(len(table), np.full(len(table), 1 / len(table)), RESAMPLES)
    drawn = rng.multinomial(len(labels), np.full(len(labels), 1 / len(labels)), RESAMPLES)
    episode_counts = np.zeros((RESAMPLES, table.shape[1]), np.int64)
    for k in range(len(labels)):
        members = np.flatnonzero(of_episode == k)
        n = len(members)
        episode_counts[:, members] = rng.multinomial(n * drawn[:, k], np.full(n, 1 / n))
    sums = ((seed_counts @ table) * episode_counts).sum(axis=1)
    means = sums / (len(table) * episode_counts.sum(axis=1))
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(low), float(high))


def hierarchical_ratio_interval(numerator: ArrayLike, denominator: ArrayLike) -> Interval | None:
    """95 % interval of a ratio of means over training seeds x episodes, resampled as `hierarchical_interval`.

    Numerator and denominator of a resample come from the same episodes, so what makes an episode easy or
    hard for both cancels.

    Args:
        numerator: (seeds, episodes), for example what each seed gains over a rule; one seed is enough.
        denominator: (episodes,), for example what there is to gain.

    Returns:
        None if the mean denominator of a resample is not positive: then the ratio has no interval.

    Raises:
        ValueError: for fewer than 2 episodes, shapes that do not fit, or values that are not finite.
    """
    table, below = _checked_table(numerator, least_seeds=1), as_sample(denominator)
    if len(below) != table.shape[1]:
        raise ValueError(f"paired samples need the same episodes: got {table.shape[1]} and {len(below)}")
    seed_counts, episode_counts = _resample_counts(*table.shape)
    above_means = ((seed_counts @ table) * episode_counts).sum(axis=1) / table.size
    below_means = episode_counts @ below / len(below)
    if below_means.min() <= 0.0:
        return None
    low, high = np.quantile(above_means / below_means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(low), float(high))
