"""What the rules share: which job is decided, the flat action, and draws from a lane's memory.

All kernels work on ONE observation (see `envs.simulation.snapshot.Observation`). A job is open for a decision
if at least one of its actions is valid; `NO_ACTION` says that no job is.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from envs.simulation import columns as col
from envs.simulation.snapshot import FloatArray, MaskArray

NO_ACTION = -1
MEMORY_SIZE = 2
"""Length of a lane's memory: state of the random stream, round-robin pointer."""
M_RANDOM = 0
M_POINTER = 1
IDLE_PATIENCE_S = 1800.0
"""How much longer than a round an idle instance is kept."""

_LEHMER_MODULUS = 2147483647.0
_LEHMER_MULTIPLIER = 48271.0


@njit(cache=True, error_model="numpy")
def draw(memory: NDArray[np.float64]) -> float:
    """Next number of the lane's own stream, in (0, 1).

    Lehmer's generator with multiplier 48271 modulo 2^31 - 1: each product stays below 2^47, so float64 holds
    the state exactly.
    """
    memory[M_RANDOM] = (memory[M_RANDOM] * _LEHMER_MULTIPLIER) % _LEHMER_MODULUS
    return float(memory[M_RANDOM] / _LEHMER_MODULUS)


@njit(cache=True, error_model="numpy")
def begin_memory(memory: NDArray[np.float64], seed: int) -> None:
    """Start an episode: memory (MEMORY_SIZE,) depends on the seed only.

    The seed goes through the splitmix64 finaliser first, so that neighbouring seeds give unrelated streams.
    """
    bits = np.uint64(seed) + np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    bits = bits ^ (bits >> np.uint64(31))
    memory[:] = 0.0
    memory[M_RANDOM] = 1.0 + float(bits % np.uint64(2147483646))
    memory[M_POINTER] = float(int(draw(memory) * 1048576.0))


@njit(cache=True, error_model="numpy")
def is_open(job: int, jobs: FloatArray, mask: MaskArray, n_clusters: int) -> bool:
    """Whether the job is there and any of its actions is valid."""
    if jobs[job, col.PRESENT] == 0.0:
        return False
    base = job * (n_clusters + 1)
    valid = 0
    for action in range(base, base + n_clusters + 1):
        valid += mask[action]
    return valid != 0


@njit(cache=True, error_model="numpy")
def mean_request(job: int, pairs: FloatArray) -> float:
    """Mean over the clusters of the executors that the job most likely asks for (Liu 2022, section 5.4)."""
    total = 0.0
    for cluster in range(pairs.shape[1]):
        total += pairs[job, cluster, col.REQUEST]
    return float(total / pairs.shape[1])


@njit(cache=True, error_model="numpy")
def extreme_job(jobs: FloatArray, pairs: FloatArray, mask: MaskArray, sign: float) -> int:
    """The open job with the smallest sign * mean request, the first to arrive among equals; -1 if none."""
    best = NO_ACTION
    best_request = np.inf
    for job in range(jobs.shape[0]):
        if is_open(job, jobs, mask, pairs.shape[1]):
            request = sign * mean_request(job, pairs)
            if request < best_request:
                best = job
                best_request = request
    return best


@njit(cache=True, error_model="numpy")
def smallest_job(jobs: FloatArray, pairs: FloatArray, mask: MaskArray) -> int:
    """The open job with the smallest mean request (SF rules, and all baselines of chapter 5)."""
    return extreme_job(jobs, pairs, mask, 1.0)


@njit(cache=True, error_model="numpy")
def largest_job(jobs: FloatArray, pairs: FloatArray, mask: MaskArray) -> int:
    """The open job with the largest mean request (LF rules)."""
    return extreme_job(jobs, pairs, mask, -1.0)


@njit(cache=True, error_model="numpy")
def urgent_job(jobs: FloatArray, mask: MaskArray, n_clusters: int) -> int:
    """The open job whose next deadline is nearest; jobs without one come last, by arrival; -1 if none."""
    best = NO_ACTION
    best_slack = np.inf
    for job in range(jobs.shape[0]):
        if is_open(job, jobs, mask, n_clusters):
            slack = jobs[job, col.SLACK_S] if jobs[job, col.HAS_DEADLINE] != 0.0 else np.inf
            if best == NO_ACTION or slack < best_slack:
                best = job
                best_slack = slack
    return best


@njit(cache=True, error_model="numpy")
def stays(job: int, jobs: FloatArray, mask: MaskArray, n_clusters: int) -> bool:
    """Whether a rule that does not reason about moving leaves the job where it runs."""
    return bool(jobs[job, col.RUNNING] != 0.0 and mask[job * (n_clusters + 1) + n_clusters] != 0)


@njit(cache=True, error_model="numpy")
def keep_idle(action: int, jobs: FloatArray, pairs: FloatArray, mask: MaskArray) -> int:
    """The action, or to keep the instance if its job is idle: for rules that know nothing of rounds.

    What has been idle for much longer than a round is released: it may hold what the others wait for.
    """
    n_clusters = pairs.shape[1]
    job = action // (n_clusters + 1)
    if jobs[job, col.IDLE] == 0.0:
        return action
    base = job * (n_clusters + 1)
    if jobs[job, col.WAITED_S] > jobs[job, col.ROUND_S] + IDLE_PATIENCE_S and mask[base + n_clusters] != 0:
        return int(base + n_clusters)
    for cluster in range(n_clusters):
        if pairs[job, cluster, col.HERE] != 0.0 and mask[base + cluster] != 0:
            return int(base + cluster)
    return action


@njit(cache=True, error_model="numpy")
def flat_action(job: int, cluster: int, n_clusters: int) -> int:
    """Flat action for the job on a cluster; a negative cluster means "none for now"."""
    return job * (n_clusters + 1) + (cluster if cluster >= 0 else n_clusters)


@njit(cache=True, error_model="numpy")
def mean_available(cluster: int, clusters: FloatArray) -> float:
    """Executors free on average over the latest 100 steps: (1 - RO) * CAP (Liu 2022, section 5.4)."""
    return float((1.0 - clusters[cluster, col.MEAN_OCCUPATION]) * clusters[cluster, col.CAPACITY_NOW])


@njit(cache=True, error_model="numpy")
def load(job: int, cluster: int, clusters: FloatArray, pairs: FloatArray) -> float:
    """Load of a cluster as the tuned rule sees it: max(100-step mean, 1 - free / capacity)."""
    capacity = clusters[cluster, col.CAPACITY_NOW]
    now = 1.0 - pairs[job, cluster, col.FREE] / capacity if capacity > 0.0 else 1.0
    return max(float(clusters[cluster, col.MEAN_OCCUPATION]), now)
