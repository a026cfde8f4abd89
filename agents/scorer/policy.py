"""The scorer as a Policy, and its weights as something that can be saved."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from agents.evolved import EvolvedPolicy, VectorWeights
from agents.rules.choice import NO_ACTION
from agents.rules.tuned import TunedParameters
from agents.scorer.columns import N_PLACE_COLUMNS
from agents.scorer.inputs import count_jobs, describe_clusters
from agents.scorer.kernel import choose_rows, score_job
from agents.scorer.layout import ScorerLayout
from envs.simulation.snapshot import Observation, arrays_of


class Scorer(VectorWeights):
    """The weights: one float32 vector, laid out as `ScorerLayout` says.

    Attributes:
        layout: sizes.
    """

    def __init__(self, hidden: int, vector: NDArray[np.float32] | None = None) -> None:
        self.layout = ScorerLayout(hidden)
        super().__init__(self.layout, hidden)
        if vector is not None:
            self.set_vector(vector)


class ScorerPolicy(EvolvedPolicy):
    """Acts on the highest score of a small network that corrects the tuned rule (see `agents.scorer.kernel`).

    It takes no draw and remembers nothing. It never chooses to wait where a cluster is valid.

    Args:
        network: the weights.
        name: shown in tables.
    """

    def __init__(self, network: Scorer, name: str) -> None:
        self._network = network
        self.name = name
        self._rule = TunedParameters().vector()

    @property
    def network(self) -> Scorer:
        """The weights."""
        return self._network

    def act_batch(self, observations: Observation, lanes: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n,) flat actions for observations with a leading axis of n.

        Raises:
            ValueError: if an observation has no valid action.
        """
        n = len(observations["jobs"])
        return self.act_with(self.network.vector[None], observations, np.arange(n), np.zeros(n, np.int64))

    def act_lanes(self, observations: Observation, lanes: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n,) flat actions for the rows `lanes` of the observations, which are not copied."""
        return self.act_with(
            self.network.vector[None],
            observations,
            np.ascontiguousarray(lanes),
            np.zeros(len(lanes), np.int64),
        )

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
        places = np.empty((n_clusters, N_PLACE_COLUMNS), np.float32)
        scores = np.empty((n_jobs, n_clusters), np.float32)
        priorities = np.empty(n_clusters, np.float32)
        describe_clusters(obs, places)
        hidden = self.network.layout.hidden
        for job in range(n_jobs):
            vector = self.network.vector
            score_job(obs, job, n_jobs, self._rule, vector, hidden, places, scores[job], priorities)
        return scores
