"""The rule `workflow_cost`: the answer with the lowest expected cost."""

from __future__ import annotations

from agents.workflows.online.cost import WorkflowParameters, weigh
from agents.workflows.online.rule import Floats, Seen, WorkflowRule


class WorkflowCost(WorkflowRule):
    """Takes the choice with the lowest expected cost (see `agents.workflows.online.cost`)."""

    name = "workflow_cost"

    def __init__(self, parameters: WorkflowParameters | None = None) -> None:
        self.parameters = parameters if parameters is not None else WorkflowParameters()

    def ranking(self, shown: Seen) -> Floats:
        """Expected USD."""
        return weigh(shown, self.parameters).cost
