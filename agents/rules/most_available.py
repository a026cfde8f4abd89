"""Smallest first-E and largest first-E (SF-E, LF-E): Liu 2022, chapter 4, rule-based baselines."""

from __future__ import annotations

from spotweave.agents.rules.choice import largest_job, mean_available, smallest_job
from spotweave.agents.rules.kernels import scored
from spotweave.agents.rules.registry import LIU_4, Rule, register
from spotweave.envs.simulation.compiled import inner
from spotweave.envs.simulation.series import Floats
from spotweave.envs.simulation.snapshot import ObservationArrays


@inner
def score(obs: ObservationArrays, job: int, cluster: int, parameters: Floats) -> float:
    """The job goes to the cluster with most executors available on average (latest 100 steps)."""
    return mean_available(obs, cluster)


register(Rule("sf_e", "SF-E", scored(smallest_job, score), LIU_4))
register(Rule("lf_e", "LF-E", scored(largest_job, score), LIU_4))
