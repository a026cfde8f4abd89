"""Worlds whose episodes ask one question at a time: what bags, workflows and federated rounds share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np

from spotweave.envs.simulation.series import Bools, Floats, Ints
from spotweave.envs.simulation.snapshot import empty_observation
from spotweave.envs.simulation.world import EpisodeKey, WorldSpec, checked_lanes

NO_TASK = -1
"""Number of what is asked or decided where that is no task."""


@dataclass(kw_only=True)
class QuestionLane:
    """One episode."""

    key: EpisodeKey  # names it
    asked: int | None = None  # number of the task in question; None once the episode has ended
    decided: int = NO_TASK  # number of the task that the latest action was about; -1 before the first
    charged: float = 0.0  # objective so far, in per cent
    # all that were taken; an episode is rebuilt from its key and these
    actions: list[int] = field(default_factory=list)


Lane = TypeVar("Lane", bound=QuestionLane)


class QuestionWorld(ABC, Generic[Lane]):
    """N episodes, each of which runs by itself until it has a question; the action answers it.

    A `BatchWorld` of one job row. Copies and pickles hold keys and actions, and play them again.

    Args:
        n_lanes: number of episodes.
        places: names of the clusters.
        weights: of the components, by default and in the objective.
        spec: name, components, scales, metrics and flags of the `WorldSpec`.
    """

    def __init__(self, n_lanes: int, places: Sequence[str], weights: tuple[float, ...], **spec: Any) -> None:
        self.spec = WorldSpec(
            window=1,
            n_clusters=len(places),
            cluster_names=tuple(places),
            weights=weights,
            higher_is_better=(False,) * len(spec["metrics"]),
            time_unit="s",
            objective_weights=weights,
            **spec,
        )
        self.n_lanes = n_lanes
        self.observation = empty_observation(1, len(places), (n_lanes,))
        self._lanes: list[Lane | None] = [None] * n_lanes

    @abstractmethod
    def _begin(self, key: EpisodeKey, number: int) -> Lane:
        """Create the episode `key` in lane `number`, before its first question."""

    @abstractmethod
    def _advance(self, lane: Lane, number: int, action: int | None) -> int | None:
        """Answer with `action` (None at the beginning), run to the next question and write its observation.

        Returns:
            Number of the task in question; None at the end, where the caller clears the observation.
        """

    @abstractmethod
    def _components(self, lane: Lane) -> tuple[float, ...]:
        """The K value components so far, in per cent; less is better."""

    @abstractmethod
    def _objective(self, lane: Lane) -> float:
        """The objective so far, in per cent; a reward is by how much a step lowers it."""

    @abstractmethod
    def reward_of_usd(self, lane: int) -> float:
        """By how much a USD lowers the reward in the episode of a lane, in per cent."""

    def reset(self, keys: Sequence[EpisodeKey], lanes: Sequence[int] | None = None) -> None:
        """Start the episode keys[k] in lane lanes[k] and show its first decision."""
        for key, number in zip(keys, range(self.n_lanes) if lanes is None else lanes, strict=True):
            self._lanes[number] = self._begin(key, number)
            self._go_on(number, None)

    def step(self, actions: Ints, active: Bools | None = None) -> tuple[Floats, Bools]:
        """Take one decision in every active lane: (reward (N,), done (N,)).

        Raises:
            ValueError: for an action outside the mask of its lane; nothing changes then.
        """
        rewards, done = np.zeros(self.n_lanes), np.ones(self.n_lanes, np.bool_)
        for number in checked_lanes(actions, active, self.observation["action_mask"]):
            lane = self._lane(number)
            before = lane.charged
            self._take(number, int(actions[number]))
            rewards[number] = before - lane.charged
            done[number] = lane.asked is None
        return rewards, done

    def decided_jobs(self) -> Ints:
        """(N,) task that the latest step decided about; -1 where none."""
        return np.array([NO_TASK if lane is None else lane.decided for lane in self._lanes], np.int64)

    def marks(self) -> Floats:
        """(N, K) value components so far, in per cent."""
        nothing = (0.0,) * len(self.spec.components)
        return np.array([nothing if lane is None else self._components(lane) for lane in self._lanes])

    def values(self, lane: int, jobs: Ints, marks: Floats) -> Floats:
        """(D, K) minus what was added to each component after each decision."""
        after: Floats = marks - np.array(self._components(self._lane(lane)))
        return after

    def copy_lanes(self, sources: Ints, targets: Ints) -> None:
        """Make lane targets[k] an exact copy of lane sources[k]."""
        copied = [(self._lane(number).key, list(self._lane(number).actions)) for number in sources.tolist()]
        for (key, actions), number in zip(copied, targets.tolist(), strict=True):
            self._replay(number, key, actions)

    def limit_arrivals(self, lanes: Ints, further: int) -> None:
        """Do nothing: all work is there from the beginning."""

    def __getstate__(self) -> dict[str, Any]:
        """The episodes as keys and actions: executions that wait for an answer cannot be pickled."""
        played = [None if lane is None else (lane.key, lane.actions) for lane in self._lanes]
        return {**self.__dict__, "_lanes": played}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Play the episodes again."""
        self.__dict__.update(state)
        self._lanes = [None] * self.n_lanes
        for number, played in enumerate(state["_lanes"]):
            if played is not None:
                self._replay(number, *played)

    def _lane(self, number: int) -> Lane:
        lane = self._lanes[number]
        if lane is None:
            raise ValueError(f"lane {number} has no episode: reset it first")
        return lane

    def _take(self, number: int, action: int) -> None:
        lane = self._lane(number)
        assert lane.asked is not None
        lane.decided = lane.asked
        lane.actions.append(action)
        self._go_on(number, action)
        lane.charged = self._objective(lane)

    def _go_on(self, number: int, action: int | None) -> None:
        lane = self._lane(number)
        lane.asked = self._advance(lane, number, action)
        if lane.asked is None:
            for array in self.observation.values():
                array[number] = 0  # type: ignore[index]

    def _replay(self, number: int, key: EpisodeKey, actions: list[int]) -> None:
        self.reset([key], [number])
        for action in actions:
            self._take(number, action)
