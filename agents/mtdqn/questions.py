"""How `mtdqn` sees bags, workflows and rounds, which ask about one task at a time: all choices, in USD.

Without waiting only the rule's expected cost is known. What a choice comes to beyond it shows in the whole
episode alone, so there are no own values here: everything else is the mutual value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from spotweave.agents.bags import cost as bags
from spotweave.agents.federated import cost as federated
from spotweave.agents.mtdqn.decide import (
    GUIDED,
    RANDOM,
    Acting,
    Exploring,
    Label,
    Sizes,
    evaluate,
    mean_at,
    n_columns,
)
from spotweave.agents.mtdqn.view import Batch, View
from spotweave.agents.policy import Question
from spotweave.agents.rules.choice import NO_ACTION
from spotweave.agents.rules.policy import from_python
from spotweave.agents.workflows import online as workflows
from spotweave.envs.simulation.snapshot import Observation

OWN, MUTUAL = 0, 1
"""Values of a choice: minus what its rule expects it to cost, and what it comes to beyond that."""


class Kind(NamedTuple):
    """A kind of questions: how they are read, columns of a choice, columns of a task."""

    ask: Callable[[Observation], Question]
    n_choice: int
    n_task: int


KINDS: Mapping[str, Kind] = {
    "bag_cost": Kind(bags.question, bags.N_CHOICE, bags.N_TASK),
    "workflow_cost": Kind(workflows.question, workflows.N_CHOICE, workflows.N_STEP),
    "round_cost": Kind(federated.question, federated.N_CHOICE, federated.N_TASK),
}
"""By guide."""


class QuestionView(View):
    """The first task of the window, whose guide is one of `KINDS`.

    Args:
        guide: its name.
        lstm: units of the LSTM, 0: what is asked comes without a history of places.
        own: units of the own heads, 0.
        mutual: units of both hidden layers of the mutual head.

    Raises:
        ValueError: for an LSTM or own heads.
    """

    whole_episodes = True

    def __init__(self, guide: str, lstm: int, own: int, mutual: int) -> None:
        if lstm or own:
            raise ValueError(
                f"agent.lstm_size is {lstm} and agent.own_size {own}: expected 0, this environment shows no "
                "history of places and only the whole episode tells what a choice came to"
            )
        self.kind = KINDS[guide]
        places, state = self.kind.n_choice, self.kind.n_task
        self.sizes = Sizes(places, state, MUTUAL, lstm=0, own=0, networks=1, mutual=mutual, scaled=0)
        self.rule = np.zeros(0)
        self.decide_rows = self._decide_rows

    def of_heads(self, weights: tuple[float, ...]) -> NDArray[np.float32]:
        """In USD, whatever the objective: it is in what was learned."""
        return np.ones(MUTUAL + 1, np.float32)

    def reward_unit(self, weights: tuple[float, ...]) -> float:
        """A per cent, as the objective counts; what that is in USD differs between episodes."""
        return 1.0

    def _weigh(
        self, batch: Batch, rows: NDArray[np.int64], acting: Acting
    ) -> tuple[Question, NDArray[np.float32], NDArray[np.float64]]:
        """N questions, columns (n, C + 1, n_columns) of their choices, and values (n, C + 1, 2)."""
        shown = {
            "clusters": batch.clusters[rows],
            "jobs": batch.jobs[rows],
            "pairs": batch.pairs[rows],
            "action_mask": batch.mask[rows],
        }
        asked = self.kind.ask(cast(Observation, shown))
        n, count, places = asked.choice.shape
        columns = np.empty((n, count, n_columns(self.sizes)), np.float32)
        mean = mean_at(self.sizes)
        columns[..., :places] = asked.choice
        columns[..., places:mean] = asked.task[:, None]
        valid = asked.valid[..., None]
        columns[..., mean:] = ((asked.choice * valid).sum(1) / np.maximum(1, valid.sum(1)))[:, None]
        values = np.zeros((n, count, MUTUAL + 1), np.float64)
        if len(acting.vector):
            outputs = np.empty((n * count, MUTUAL + 1), np.float32)
            needs = np.repeat(asked.unit, count).astype(np.float32)
            from_python(evaluate)(acting.vector, self.sizes, columns.reshape(n * count, -1), needs, outputs)
            values[..., MUTUAL] = outputs.reshape(n, count, -1)[..., MUTUAL]
        least = np.where(asked.valid, asked.cost, np.inf).min(1, initial=np.inf, keepdims=True)
        values[..., OWN] = np.where(asked.valid, least - asked.cost, -np.inf)
        return asked, columns, values

    def _decide_rows(
        self,
        batch: Batch,
        rows: NDArray[np.int64],
        acting: Acting,
        exploring: Exploring,
        label: Label,
        shown: NDArray[np.float32],
        actions: NDArray[np.int64],
    ) -> None:
        """See `agents.mtdqn.view.DecideRows`."""
        n = len(rows)
        if n == 0:
            return
        asked, columns, values = self._weigh(batch, rows, acting)
        guided = values[..., OWN].argmax(1)
        worth = values.sum(2)
        best = guided if acting.follow else worth.argmax(1)
        actions[:] = np.where(asked.valid.any(1), best, NO_ACTION)
        if len(shown):
            shown[asked.valid] = values[asked.valid]
        if not len(label.tried):
            return
        liked = np.einsum("nck,nk->nc", asked.choice, exploring.taste)
        drawn = (worth + asked.unit[:, None] * liked).argmax(1)
        other = np.select([exploring.how == RANDOM, exploring.how == GUIDED], [drawn, guided], best)
        tried = other != best
        taken = tried & exploring.take
        label.kept[:n], label.tried[:n], label.taken[:n] = True, tried, taken
        every = np.arange(n)
        for side, k in enumerate((other, best)):
            label.columns[:n, side] = columns[every, k]
            label.known[:n, side] = values[every, k, :MUTUAL]
            label.needs[:n, side] = asked.unit
        actions[taken] = other[taken]

    def own_worth(self, outputs: Tensor, known: Tensor, facts: Tensor, weights: Tensor) -> Tensor:
        """(...) weighed own values, in USD; as `View.own_worth`."""
        return known[..., OWN]
