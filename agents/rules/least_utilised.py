"""Smallest first-P and largest first-P (SF-P, LF-P): Liu 2022, chapter 4, rule-based baselines."""

from __future__ import annotations

from spotweave.agents.rules.choice import largest_job, smallest_job
from spotweave.agents.rules.kernels import scored
from spotweave.agents.rules.registry import LIU_4, Rule, register
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.compiled import inner
from spotweave.envs.simulation.series import Floats
from spotweave.envs.simulation.snapshot import ObservationArrays


@inner
def score(obs: ObservationArrays, job: int, cluster: int, parameters: Floats) -> float:
    """The job goes to the cluster with the lowest mean utilisation of the latest 100 steps."""
    return -float(obs.clusters[cluster, col.MEAN_OCCUPATION])


register(Rule("sf_p", "SF-P", scored(smallest_job, score), LIU_4))
register(Rule("lf_p", "LF-P", scored(largest_job, score), LIU_4))
