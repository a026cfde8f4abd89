"""The one way from an observation to the flat vector that library agents see."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from envs.simulation.snapshot import (
    N_CLUSTER_FIELDS,
    N_JOB_FIELDS,
    N_PAIR_FIELDS,
    Observation,
)

Floats = NDArray[np.float32]
CLIP = 6.0
"""Standardised features are cut off here, as inside our own networks."""
_SMALLEST_STD = 1e-6


def n_features(n_jobs: int, n_clusters: int) -> int:
    """D, the length of a flat vector for the first `n_jobs` jobs."""
    per_job = N_JOB_FIELDS + n_clusters * N_PAIR_FIELDS + n_clusters + 1
    return n_clusters * N_CLUSTER_FIELDS + n_jobs * per_job


def n_jobs_of(n_features: int, n_clusters: int) -> int:
    """J', of vectors of length `n_features`."""
    per_job = N_JOB_FIELDS + n_clusters * N_PAIR_FIELDS + n_clusters + 1
    return (n_features - n_clusters * N_CLUSTER_FIELDS) // per_job


def _pool(moments: NDArray[np.float64], n_jobs: int, n_clusters: int) -> NDArray[np.float64]:
    """(D,) moments, with each column's mean over the clusters, jobs or pairs in all of their places."""
    n_actions = n_jobs * (n_clusters + 1)
    parts, start = [], 0
    for count, columns in (
        (n_clusters, N_CLUSTER_FIELDS),
        (n_jobs, N_JOB_FIELDS),
        (n_jobs * n_clusters, N_PAIR_FIELDS),
        (n_actions, 1),
    ):
        block = moments[start : start + count * columns].reshape(count, columns)
        parts.append(np.tile(block.mean(axis=0), count))
        start += count * columns
    return np.concatenate(parts)


def signed_log_features(observations: Observation, n_jobs: int) -> Floats:
    """(n, D) sign(x) log(1 + |x|) of clusters, jobs, pairs and mask, for the first `n_jobs` jobs.

    The occupation history is left out (its mean is a column of `clusters`): it would be most of the vector.

    Args:
        observations: with one leading axis n.
        n_jobs: at most the window.
    """
    n_targets = observations["clusters"].shape[1] + 1
    parts = (
        observations["clusters"],
        observations["jobs"][:, :n_jobs],
        observations["pairs"][:, :n_jobs],
        observations["action_mask"][:, : n_jobs * n_targets].astype(np.float32),
    )
    flat = np.concatenate([part.reshape(part.shape[0], -1) for part in parts], axis=1)
    logs: Floats = np.copysign(np.log1p(np.abs(flat)), flat)
    return logs


@dataclass(frozen=True)
class Flattening:
    """Observation -> (D,) float32 within [-CLIP, CLIP]: signed logarithms, standardised.

    The last `n_actions` are the action mask, which is only scaled: greater than 0 where an action is valid.

    Attributes:
        n_jobs: jobs shown.
        n_clusters: C.
        mean: (D,) means of the signed logarithms.
        std: (D,) their standard deviations, 1 where a feature was constant.
    """

    n_jobs: int
    n_clusters: int
    mean: Floats
    std: Floats

    @classmethod
    def fit(cls, features: Floats, n_jobs: int, n_clusters: int, pooled: bool = False) -> Flattening:
        """Statistics of `signed_log_features` rows (n, D).

        Args:
            features: the rows.
            n_jobs: J'.
            n_clusters: C.
            pooled: one mean and deviation per column for all clusters, jobs or pairs, which a network that is
                the same for all of them needs; else one for each number of the vector.
        """
        mean = features.mean(axis=0, dtype=np.float64)
        std = features.std(axis=0, dtype=np.float64)
        if pooled:
            squares = (features.astype(np.float64) ** 2).mean(axis=0)
            mean = _pool(mean, n_jobs, n_clusters)
            std = np.sqrt(np.maximum(0.0, _pool(squares, n_jobs, n_clusters) - mean**2))
        n_actions = n_jobs * (n_clusters + 1)
        mean[-n_actions:], std[-n_actions:] = 0.0, 1.0
        std = np.where(std > _SMALLEST_STD, std, 1.0)
        return cls(n_jobs, n_clusters, mean.astype(np.float32), std.astype(np.float32))

    @property
    def n_actions(self) -> int:
        """Actions on the jobs shown: the first of the world's own numbers, in order."""
        return self.n_jobs * (self.n_clusters + 1)

    def features(self, observations: Observation) -> Floats:
        """(n, D) for observations with one leading axis n."""
        scaled = (signed_log_features(observations, self.n_jobs) - self.mean) / self.std
        clipped: Floats = np.clip(scaled, -CLIP, CLIP)
        return clipped

    def mask(self, observations: Observation) -> NDArray[np.bool_]:
        """(n, n_actions) which actions are valid; the first job is there, so at least one is."""
        valid: NDArray[np.bool_] = observations["action_mask"][:, : self.n_actions] != 0
        return valid
