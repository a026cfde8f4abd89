"""The scorer as a Policy, and its weights as something that can be saved."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from agents.rules.choice import NO_ACTION
from agents.rules.committed import CommittedParameters
from agents.rules.tuned import TunedParameters
from agents.scorer.columns import N_COMMITTED_COLUMNS, N_JOB_COLUMNS, N_PLACE_COLUMNS
from agents.scorer.inputs import count_jobs, describe_clusters
from agents.scorer.kernel import choose_rows, score_job
from agents.vector_policy import Layout, Scorer, VectorPolicy
from envs.simulation.snapshot import Observation, arrays_of


def cluster_scorer(hidden: int, base: Literal["tuned", "committed"] = "tuned") -> Scorer:
    """Weights of zero for the columns of a job and a cluster; the outputs are score and priority.

    Args:
        hidden: hidden units.
        base: the rule that is corrected; `committed` has columns of its own.
    """
    places = N_COMMITTED_COLUMNS if base == "committed" else N_PLACE_COLUMNS
    return Scorer(Layout(hidden, N_JOB_COLUMNS + places, outputs=2, direct=places))


class ScorerPolicy(VectorPolicy):
    """Acts on the highest score of a small network that corrects a rule (see `agents.scorer.kernel`).

    It never chooses to wait where a cluster is valid.

    Args:
        network: the weights.
        name: shown in tables.
    """

    def __init__(self, network: Scorer, name: str) -> None:
        super().__init__(network, name)
        self._columns = network.layout.direct
        committed = self._columns == N_COMMITTED_COLUMNS
        self._rule = (CommittedParameters() if committed else TunedParameters()).vector()

    def act_with(
        self,
        vectors: NDArray[np.float32],
        observations: Observation,
        rows: NDArray[np.int64],
        which: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        """(n,) flat actions for the rows of the observations, row k decided by vectors[which[k]].

        Args:
            vectors: (m, layout.size) float32 weights of several scorers of one layout.
            observations: with a leading axis.
            rows: (n,) which observations.
            which: (n,) whose turn it is.

        Raises:
            ValueError: if an observation has no valid action.
        """
        actions = np.empty(len(rows), np.int64)
        choose_rows(
            arrays_of(observations),
            rows,
            self._rule,
            vectors,
            which,
            self.network.layout.hidden,
            self._columns,
            actions,
        )
        if len(actions) and actions.min() == NO_ACTION:
            row = int(rows[np.argmin(actions)])
            raise ValueError(f"policy {self.name}: observation {row} offers no valid action, expected a job")
        return actions

    def scores(self, observation: Observation) -> NDArray[np.float32]:
        """(J', C) score of every cluster for each job present in one observation; higher is better."""
        obs = arrays_of(observation)
        n_jobs, n_clusters = count_jobs(obs), len(obs.clusters)
        places = np.empty((n_clusters, self._columns), np.float32)
        scores = np.empty((n_jobs, n_clusters), np.float32)
        priorities = np.empty(n_clusters, np.float32)
        describe_clusters(obs, places)
        vector, hidden = self.network.vector, self.network.layout.hidden
        for job in range(n_jobs):
            score_job(obs, job, n_jobs, self._rule, vector, hidden, places, scores[job], priorities)
        return scores
