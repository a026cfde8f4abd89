"""Many workflows at once behind the `BatchWorld` protocol."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from envs.simulation.snapshot import empty_observation
from envs.simulation.timeline import Timeline
from envs.simulation.workflows.episodes.case import CaseSource
from envs.simulation.workflows.episodes.execution import NONE, Asking, Execution, Question
from envs.simulation.workflows.episodes.gantt import timeline_of
from envs.simulation.workflows.episodes.picture import Picture
from envs.simulation.workflows.episodes.reserve import on_demand_usd
from envs.simulation.world import EpisodeKey, WorldSpec, checked_lanes

MISSED_PERCENT = 100.0
"""What a missed deadline adds to the objective: as much as all the work on demand."""
METRICS = (
    "cost_index",
    "cost_usd",
    "missed",
    "makespan_s",
    "interruptions",
    "lost_s",
    "launches",
    "on_demand",
    "egress_usd",
    "unused_usd",
)
COMPONENTS = ("late", "cost")
NO_STEP = -1


@dataclass
class _Lane:
    """One episode. `whole_usd` is what all the work costs on demand."""

    key: EpisodeKey
    execution: Execution
    asking: Asking
    picture: Picture
    whole_usd: float
    question: Question | None = None
    charged: float = 0.0
    decided: int = NO_STEP
    actions: list[int] = field(default_factory=list)


class WorkflowWorld:
    """N copies of workflows; each question of an `Execution` is one decision. A `BatchWorld`.

    Args:
        source: gives every episode its case.
        n_lanes: copies.
    """

    def __init__(self, source: CaseSource, n_lanes: int) -> None:
        self.source, self.n_lanes = source, n_lanes
        self.spec = WorldSpec(
            name="workflows",
            window=1,
            n_clusters=len(source.offers),
            cluster_names=tuple(offer.name for offer in source.offers),
            components=COMPONENTS,
            weights=(1.0, 1.0),
            scales=(10.0, 10.0),
            metrics=METRICS,
            higher_is_better=(False,) * len(METRICS),
            time_unit="s",
            objective_weights=(1.0, 1.0),
        )
        self.observation = empty_observation(1, len(source.offers), (n_lanes,))
        self._lanes: list[_Lane | None] = [None] * n_lanes

    # BatchWorld.

    def reset(self, keys: Sequence[EpisodeKey], lanes: Sequence[int] | None = None) -> None:
        """Start the episode keys[k] in lane lanes[k] and show its first decision."""
        for key, number in zip(keys, range(self.n_lanes) if lanes is None else lanes, strict=True):
            case = self.source.case(key)
            execution = Execution(case)
            picture, asking = Picture(case), execution.questions()
            self._lanes[number] = _Lane(key, execution, asking, picture, on_demand_usd(case))
            self._advance(number, None)

    def step(
        self, actions: NDArray[np.int64], active: NDArray[np.bool_] | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Take one decision in every active lane: (reward (N,), done (N,)).

        Raises:
            ValueError: for an action outside the mask of its lane; nothing changes then.
        """
        numbers = checked_lanes(actions, active, self.observation["action_mask"])
        rewards, done = np.zeros(self.n_lanes), np.ones(self.n_lanes, np.bool_)
        for number in numbers:
            lane = self._lane(number)
            assert lane.question is not None
            lane.decided = lane.question.step
            lane.actions.append(int(actions[number]))
            self._advance(number, int(actions[number]))
            total = sum(self._components(lane))
            rewards[number] = lane.charged - total
            lane.charged = total
            done[number] = lane.question is None
        return rewards, done

    def decided_jobs(self) -> NDArray[np.int64]:
        """(N,) step that the latest decision was about; -1 where none."""
        return np.array([NO_STEP if lane is None else lane.decided for lane in self._lanes], np.int64)

    def marks(self) -> NDArray[np.float64]:
        """(N, 2) lateness and cost so far, per cent."""
        return np.array([(0.0, 0.0) if lane is None else self._components(lane) for lane in self._lanes])

    def values(self, lane: int, jobs: NDArray[np.int64], marks: NDArray[np.float64]) -> NDArray[np.float64]:
        """(D, 2) minus the lateness and the cost that came after each decision."""
        after: NDArray[np.float64] = marks - np.array(self._components(self._lane(lane)))
        return after

    def metrics(self, lane: int) -> Mapping[str, float]:
        """Metrics of the finished episode."""
        state = self._lane(lane)
        execution = state.execution
        late, cost = self._components(state)
        lost_s = sum(one.end_s - one.start_s for one in execution.attempts if not one.whole)
        on_demand = [c for c, offer in enumerate(execution.case.offers) if offer.market == "on_demand"]
        return {
            "cost_index": late + cost,
            "cost_usd": execution.spent_usd(),
            "missed": float(late > 0),
            "makespan_s": execution.now_s,
            "interruptions": float(len(execution.lost)),
            "lost_s": lost_s,
            "launches": float(execution.launches.sum()),
            "on_demand": float(execution.launches[on_demand].sum()),
            "egress_usd": execution.egress_usd,
            "unused_usd": execution.unused_usd(),
        }

    def question(self, lane: int) -> Question:
        """What a lane is asked now."""
        question = self._lane(lane).question
        if question is None:
            raise ValueError(f"the episode in lane {lane} has ended: reset it first")
        return question

    def execution(self, lane: int) -> Execution:
        """The execution in a lane."""
        return self._lane(lane).execution

    def timeline(self, lane: int = 0) -> Timeline:
        """What happened in a lane so far."""
        return timeline_of(self._lane(lane).execution)

    def fingerprint(self, key: EpisodeKey) -> str:
        """SHA-256 of the workflow, the true run times and the market of an episode."""
        case = self.source.case(key)
        digest = hashlib.sha256(repr((case.workflow, case.offers, case.conditions)).encode())
        digest.update(case.actual.tobytes())
        for quotes in case.quotes:
            digest.update(quotes.digest())
        return digest.hexdigest()

    def copy_lanes(self, sources: NDArray[np.int64], targets: NDArray[np.int64]) -> None:
        """Make lane targets[k] an exact copy of lane sources[k], by playing its actions again."""
        copied = [(self._lane(number).key, list(self._lane(number).actions)) for number in sources.tolist()]
        for (key, actions), number in zip(copied, targets.tolist(), strict=True):
            self.reset([key], [number])
            lane = self._lane(number)
            for action in actions:
                lane.actions.append(action)
                self._advance(number, action)
            lane.charged = sum(self._components(lane))

    def limit_arrivals(self, lanes: NDArray[np.int64], further: int) -> None:
        """Nothing arrives here: the whole workflow is there from the beginning."""

    # One lane.

    def _lane(self, number: int) -> _Lane:
        lane = self._lanes[number]
        if lane is None:
            raise ValueError(f"lane {number} has no episode: reset it first")
        return lane

    def _advance(self, number: int, action: int | None) -> None:
        """Answer, go on to the next question, and show it."""
        lane = self._lane(number)
        try:
            if action is None:
                lane.question = next(lane.asking)
            else:
                lane.question = lane.asking.send(NONE if action == self.spec.n_clusters else action)
        except StopIteration:
            lane.question = None
            for array in self.observation.values():
                array[number] = 0  # type: ignore[index]
            return
        lane.picture.show(lane.question, lane.execution, self.observation, number)

    def _components(self, lane: _Lane) -> tuple[float, float]:
        """Lateness and cost so far, in per cent of what the work costs on demand."""
        execution = lane.execution
        late = execution.finished and execution.now_s > execution.case.deadline_s + 1e-6
        return MISSED_PERCENT * late, 100 * execution.spent_usd() / lane.whole_usd
