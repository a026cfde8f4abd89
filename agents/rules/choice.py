"""What the rules share: which job is decided, the flat action, and draws from a lane's memory.

All functions work on ONE observation. A job is open for a decision if at least one of its actions is valid;
`NO_ACTION` says that no job is.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.compiled import entry, inner
from spotweave.envs.simulation.series import Floats
from spotweave.envs.simulation.snapshot import ObservationArrays

NO_ACTION = -1
MEMORY_SIZE = 2  # length of a lane's memory: state of the random stream, round-robin pointer
M_RANDOM = 0
M_POINTER = 1
IDLE_PATIENCE_S = 1800.0  # how much longer than a round an idle instance is kept

_LEHMER_MODULUS = 2147483647.0
_LEHMER_MULTIPLIER = 48271.0


@inner
def draw(memory: Floats) -> float:
    """Next number of the lane's own stream, in (0, 1).

    Lehmer's generator with multiplier 48271 modulo 2^31 - 1: each product stays below 2^47, so float64 holds
    the state exactly.
    """
    memory[M_RANDOM] = (memory[M_RANDOM] * _LEHMER_MULTIPLIER) % _LEHMER_MODULUS
    return float(memory[M_RANDOM] / _LEHMER_MODULUS)


@entry
def begin_memory(memory: Floats, seed: int) -> None:
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
def row_of(batch: ObservationArrays, row: int) -> ObservationArrays:
    """One observation of a batch, for functions that count references: it gives arrays away."""
    return ObservationArrays(
        batch.clusters[row], batch.occupation[row], batch.jobs[row], batch.pairs[row], batch.mask[row]
    )


@inner
def is_open(obs: ObservationArrays, job: int) -> bool:
    """Whether the job is there and any of its actions is valid."""
    if obs.jobs[job, col.PRESENT] == 0.0:
        return False
    n_clusters = obs.clusters.shape[0]
    base = job * (n_clusters + 1)
    valid = 0
    for action in range(base, base + n_clusters + 1):
        valid += obs.mask[action]
    return valid != 0


@inner
def is_valid(obs: ObservationArrays, job: int, cluster: int) -> bool:
    """Whether the job may go to the cluster; a negative cluster means "none for now"."""
    return bool(obs.mask[flat_action(obs, job, cluster)] != 0)


@inner
def mean_request(obs: ObservationArrays, job: int) -> float:
    """Mean over the clusters of the executors that the job most likely asks for (Liu 2022, section 5.4)."""
    total = 0.0
    for cluster in range(obs.pairs.shape[1]):
        total += obs.pairs[job, cluster, col.REQUEST]
    return float(total / obs.pairs.shape[1])


@inner
def extreme_job(obs: ObservationArrays, sign: float) -> int:
    """The open job with the smallest sign * mean request, the first to arrive among equals; -1 if none."""
    best = NO_ACTION
    best_request = np.inf
    for job in range(obs.jobs.shape[0]):
        if is_open(obs, job):
            request = sign * mean_request(obs, job)
            if request < best_request:
                best = job
                best_request = request
    return best


@inner
def smallest_job(obs: ObservationArrays) -> int:
    """The open job with the smallest mean request (SF rules, and all baselines of chapter 5)."""
    return extreme_job(obs, 1.0)


@inner
def largest_job(obs: ObservationArrays) -> int:
    """The open job with the largest mean request (LF rules)."""
    return extreme_job(obs, -1.0)


@inner
def urgent_job(obs: ObservationArrays) -> int:
    """The open job whose next deadline is nearest; jobs without one come last, by arrival; -1 if none."""
    best = NO_ACTION
    best_slack = np.inf
    for job in range(obs.jobs.shape[0]):
        if is_open(obs, job):
            slack = obs.jobs[job, col.SLACK_S] if obs.jobs[job, col.HAS_DEADLINE] != 0.0 else np.inf
            if best == NO_ACTION or slack < best_slack:
                best = job
                best_slack = slack
    return best


@inner
def stays(obs: ObservationArrays, job: int) -> bool:
    """Whether a rule that does not reason about moving leaves the job where it runs."""
    return bool(obs.jobs[job, col.RUNNING] != 0.0 and is_valid(obs, job, -1))


@inner
def keep_idle(obs: ObservationArrays, action: int) -> int:
    """The action, or to keep the instance if its job is idle: for rules that know nothing of rounds.

    What has been idle for much longer than a round is released: it may hold what the others wait for.
    """
    n_clusters = obs.pairs.shape[1]
    job = action // (n_clusters + 1)
    if obs.jobs[job, col.IDLE] == 0.0:
        return action
    idle_too_long = obs.jobs[job, col.WAITED_S] > obs.jobs[job, col.ROUND_S] + IDLE_PATIENCE_S
    if idle_too_long and is_valid(obs, job, -1):
        return flat_action(obs, job, -1)
    for cluster in range(n_clusters):
        if obs.pairs[job, cluster, col.HERE] != 0.0 and is_valid(obs, job, cluster):
            return flat_action(obs, job, cluster)
    return action


@inner
def flat_action(obs: ObservationArrays, job: int, cluster: int) -> int:
    """Flat action for the job on a cluster; a negative cluster means "none for now"."""
    n_clusters = obs.clusters.shape[0]
    return int(job * (n_clusters + 1) + (cluster if cluster >= 0 else n_clusters))


@inner
def mean_available(obs: ObservationArrays, cluster: int) -> float:
    """Executors free on average over the latest 100 steps: (1 - RO) * CAP (Liu 2022, section 5.4)."""
    return float((1.0 - obs.clusters[cluster, col.MEAN_OCCUPATION]) * obs.clusters[cluster, col.CAPACITY_NOW])


@inner
def load(obs: ObservationArrays, job: int, cluster: int) -> float:
    """Load of a cluster as the tuned rule sees it: max(100-step mean, 1 - free / capacity)."""
    capacity = obs.clusters[cluster, col.CAPACITY_NOW]
    now = 1.0 - obs.pairs[job, cluster, col.FREE] / capacity if capacity > 0.0 else 1.0
    return max(float(obs.clusters[cluster, col.MEAN_OCCUPATION]), now)
