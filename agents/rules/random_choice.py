"""Random: Liu 2022, chapter 4, rule-based baselines (job and cluster are both drawn); RAN of chapter 5."""

from __future__ import annotations

from spotweave.agents.rules.choice import NO_ACTION, draw, flat_action, is_open, is_valid, stays
from spotweave.agents.rules.registry import LIU_4, Rule, register
from spotweave.envs.simulation.compiled import inner
from spotweave.envs.simulation.series import Floats
from spotweave.envs.simulation.snapshot import ObservationArrays


@inner
def choose(obs: ObservationArrays, memory: Floats, parameters: Floats) -> int:
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


register(Rule("random", "Random", choose, LIU_4, keeps_idle=False))
