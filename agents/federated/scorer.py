"""The learned policy for federated tasks: the expected cost of each choice, corrected by a small network."""

from __future__ import annotations

from agents.correction import CorrectingPolicy, Weighed
from agents.federated.cost import RoundParameters, weigh
from agents.federated.features import N_CHOICE, N_TASK, describe
from agents.vector_policy import Layout, Scorer
from envs.simulation.snapshot import Observation


def round_scorer(hidden: int) -> Scorer:
    """Weights of zero for the features of a task and a choice; "none" has direct weights of the task's."""
    return Scorer(Layout(hidden, N_TASK + N_CHOICE, outputs=1, direct=N_CHOICE + N_TASK))


class RoundScorerPolicy(CorrectingPolicy):
    """Takes the choice with the lowest expected cost less the network's output, in units of a start.

    One network serves any number of offers.

    Args:
        network: the weights.
        name: shown in tables.
        parameters: of the expected cost.
    """

    def __init__(self, network: Scorer, name: str, parameters: RoundParameters | None = None) -> None:
        super().__init__(network, name)
        self.parameters = parameters if parameters is not None else RoundParameters()

    def weighed(self, observations: Observation) -> Weighed:
        """What the rule expects, and what the network reads."""
        choices = weigh(observations, self.parameters)
        return Weighed(choices.valid, choices.cost, choices.unit, *describe(observations, choices))
