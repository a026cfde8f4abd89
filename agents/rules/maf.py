"""Most Available First (MAF): Liu 2022, chapter 5, baselines; the guide of RL-LSFC's exploration."""

from __future__ import annotations

from spotweave.agents.rules.choice import mean_available, smallest_job
from spotweave.agents.rules.kernels import scored
from spotweave.agents.rules.registry import HETEROGENEOUS, LIU_5, Rule, register
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.compiled import inner
from spotweave.envs.simulation.series import Floats
from spotweave.envs.simulation.snapshot import ObservationArrays


@inner
def score(obs: ObservationArrays, job: int, cluster: int, parameters: Floats) -> float:
    """The smallest job goes where (1 - RO) * CAP / ER is largest.

    RO is the mean occupation of the latest 100 steps, CAP the capacity now (elastic part included), ER the
    executors that the job most likely asks for there.
    """
    return mean_available(obs, cluster) / max(float(obs.pairs[job, cluster, col.REQUEST]), 1.0)


register(Rule("maf", "MAF", scored(smallest_job, score), LIU_5, worlds=HETEROGENEOUS))
