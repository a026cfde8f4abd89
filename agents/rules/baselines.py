"""The rules that Liu 2022 compares with: rule-based baselines of chapter 4, baselines of chapter 5."""

from __future__ import annotations

from spotweave.agents.rules.choice import (
    M_POINTER,
    NO_ACTION,
    draw,
    flat_action,
    is_open,
    is_valid,
    largest_job,
    mean_available,
    smallest_job,
    stays,
)
from spotweave.agents.rules.policy import scored
from spotweave.agents.rules.registry import HETEROGENEOUS, LIU_4, LIU_5, Rule, register
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.compiled import inner
from spotweave.envs.simulation.series import Floats
from spotweave.envs.simulation.snapshot import ObservationArrays

# Smallest first-P and largest first-P (chapter 4).


@inner
def least_used(obs: ObservationArrays, job: int, cluster: int, parameters: Floats) -> float:
    """The job goes to the cluster with the lowest mean utilisation of the latest 100 steps."""
    return -float(obs.clusters[cluster, col.MEAN_OCCUPATION])


register(Rule("sf_p", "SF-P", scored(smallest_job, least_used), LIU_4))
register(Rule("lf_p", "LF-P", scored(largest_job, least_used), LIU_4))


# Smallest first-E and largest first-E (chapter 4).


@inner
def available_executors(obs: ObservationArrays, job: int, cluster: int, parameters: Floats) -> float:
    """The job goes to the cluster with most executors available on average (latest 100 steps)."""
    return mean_available(obs, cluster)


register(Rule("sf_e", "SF-E", scored(smallest_job, available_executors), LIU_4))
register(Rule("lf_e", "LF-E", scored(largest_job, available_executors), LIU_4))


# Most Available First (chapter 5), also the guide of RL-LSFC's exploration.


@inner
def available_per_request(obs: ObservationArrays, job: int, cluster: int, parameters: Floats) -> float:
    """The smallest job goes where (1 - RO) * CAP / ER is largest.

    RO is the mean occupation of the latest 100 steps, CAP the capacity now (elastic part included), ER the
    executors that the job most likely asks for there.
    """
    return mean_available(obs, cluster) / max(float(obs.pairs[job, cluster, col.REQUEST]), 1.0)


register(Rule("maf", "MAF", scored(smallest_job, available_per_request), LIU_5, worlds=HETEROGENEOUS))


# Round-Robin (chapter 5).


@inner
def choose_in_turn(obs: ObservationArrays, memory: Floats, parameters: Floats) -> int:
    """The smallest job goes to the next valid cluster in turn; the first one of an episode is random."""
    n_clusters = obs.clusters.shape[0]
    job = smallest_job(obs)
    if job < 0:
        return NO_ACTION
    if stays(obs, job):
        return flat_action(obs, job, -1)
    pointer = int(memory[M_POINTER]) % n_clusters
    for step in range(n_clusters):
        cluster = (pointer + step) % n_clusters
        if is_valid(obs, job, cluster):
            memory[M_POINTER] = float((cluster + 1) % n_clusters)
            return flat_action(obs, job, cluster)
    return flat_action(obs, job, -1)


register(Rule("rr", "Round-Robin", choose_in_turn, LIU_5, worlds=HETEROGENEOUS))


# Random (chapter 4, where job and cluster are both drawn); RAN of chapter 5.


@inner
def choose_at_random(obs: ObservationArrays, memory: Floats, parameters: Floats) -> int:
    """A random open job goes to a random valid cluster; both draws come from the lane's memory."""
    n_clusters = obs.clusters.shape[0]
    n_open = 0
    for job in range(obs.jobs.shape[0]):
        if is_open(obs, job):
            n_open += 1
    if n_open == 0:
        return NO_ACTION
    left = int(draw(memory) * n_open)
    chosen = NO_ACTION
    for job in range(obs.jobs.shape[0]):
        if is_open(obs, job):
            if left == 0:
                chosen = job
                break
            left -= 1
    if stays(obs, chosen):
        return flat_action(obs, chosen, -1)
    n_valid = 0
    for cluster in range(n_clusters):
        if is_valid(obs, chosen, cluster):
            n_valid += 1
    if n_valid == 0:
        return flat_action(obs, chosen, -1)
    left = int(draw(memory) * n_valid)
    for cluster in range(n_clusters):
        if is_valid(obs, chosen, cluster):
            if left == 0:
                return flat_action(obs, chosen, cluster)
            left -= 1
    return NO_ACTION


register(Rule("random", "Random", choose_at_random, LIU_4, keeps_idle=False))
