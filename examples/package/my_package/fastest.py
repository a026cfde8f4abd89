"""Fastest first: the job whose deadline is nearest goes where it ends soonest (my own)."""

from spotweave.agents.rules import Rule
from spotweave.agents.rules.choice import urgent_job
from spotweave.agents.rules.policy import scored
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.compiled import inner


@inner
def score(obs, job, cluster, parameters):
    """The sooner it ends, the better."""
    return -float(obs.pairs[job, cluster, col.FINISH_S])


FASTEST = Rule("fastest", "Fastest first", scored(urgent_job, score), "my own")
