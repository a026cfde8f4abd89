"""Round-Robin (RR): Liu 2022, chapter 5, baselines."""

from __future__ import annotations

from spotweave.agents.rules.choice import M_POINTER, NO_ACTION, flat_action, is_valid, smallest_job, stays
from spotweave.agents.rules.registry import HETEROGENEOUS, LIU_5, Rule, register
from spotweave.envs.simulation.compiled import inner
from spotweave.envs.simulation.series import Floats
from spotweave.envs.simulation.snapshot import ObservationArrays


@inner
def choose(obs: ObservationArrays, memory: Floats, parameters: Floats) -> int:
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


register(Rule("rr", "Round-Robin", choose, LIU_5, worlds=HETEROGENEOUS))
