"""Workflows as a `QuestionWorld`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from envs.simulation.questions import QuestionLane, QuestionWorld
from envs.simulation.series import StepSeries
from envs.simulation.snapshot import Category
from envs.simulation.timeline import Segment, Timeline
from envs.simulation.workflows.episodes.case import CaseSource
from envs.simulation.workflows.episodes.execution import IDLE, NONE, Asking, Execution, Question
from envs.simulation.workflows.episodes.options import on_demand_usd
from envs.simulation.workflows.episodes.picture import Picture
from envs.simulation.world import EpisodeKey, WorldSpec

# An execution as a timeline for pictures: which step ran where, and what was interrupted.


def timeline_of(execution: Execution) -> Timeline:
    """What happened so far. Jobs are the steps, clusters the places; whole seconds."""
    case, now_s = execution.case, execution.now_s
    ran = [(one.step, one.place, one.start_s, one.end_s) for one in execution.attempts]
    ran += [(one.step, one.place, one.start_s, now_s) for one in execution.instances if one.step != IDLE]
    segments = [
        Segment(step, place, start_s, end_s, 1, int(Category.GENERAL), end_s > case.deadline_s)
        for step, place, start_s, end_s in ran
        if end_s > start_s
    ]
    spans = [(one.cluster, one.start, one.end) for one in segments]
    held = execution.held + [(one.place, one.since_s, now_s) for one in execution.instances]
    rows = range(len(case.offers))
    return Timeline(
        cluster_names=tuple(offer.name for offer in case.offers),
        time_unit="s",
        end=max(1.0, now_s),
        segments=tuple(sorted(segments, key=lambda segment: segment.start)),
        capacity=tuple(_number(held, c) for c in rows),
        used=tuple(_number(spans, c) for c in rows),
        price_usd_hour=tuple(quotes.prices for quotes in case.quotes),
        interruptions=tuple(execution.lost),
    )


def _number(spans: list[tuple[int, float, float]], place: int) -> StepSeries:
    """How many of the (place, start, end) at a place there are, over time."""
    changes: dict[int, int] = {0: 0}
    for there, start_s, end_s in spans:
        if there == place:
            for time_s, change in ((int(start_s), 1), (int(end_s), -1)):
                changes[time_s] = changes.get(time_s, 0) + change
    times = sorted(changes)
    return StepSeries(np.array(times, np.int64), np.cumsum([changes[time] for time in times]).astype(float))


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


@dataclass(kw_only=True)
class _Lane(QuestionLane):
    """One episode. `whole_usd` is what all the work costs on demand."""

    execution: Execution
    asking: Asking
    picture: Picture
    whole_usd: float
    question: Question | None = None


class WorkflowWorld(QuestionWorld[_Lane]):
    """N copies of workflows; each question of an `Execution` is one decision.

    Args:
        source: gives every episode its case.
        n_lanes: copies.
    """

    def __init__(self, source: CaseSource, n_lanes: int) -> None:
        self.source = source
        spec = WorldSpec(
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
        super().__init__(spec, n_lanes)

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

    def reward_of_usd(self, lane: int) -> float:
        """See `QuestionWorld`."""
        return 100.0 / self._lane(lane).whole_usd

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

    def _begin(self, key: EpisodeKey, number: int) -> _Lane:
        case = self.source.case(key)
        execution = Execution(case)
        return _Lane(
            key=key,
            execution=execution,
            asking=execution.questions(),
            picture=Picture(case),
            whole_usd=on_demand_usd(case),
        )

    def _advance(self, lane: _Lane, number: int, action: int | None) -> int | None:
        try:
            if action is None:
                lane.question = next(lane.asking)
            else:
                lane.question = lane.asking.send(NONE if action == self.spec.n_clusters else action)
        except StopIteration:
            lane.question = None
            return None
        lane.picture.show(lane.question, lane.execution, self.observation, number)
        return lane.question.step

    def _components(self, lane: _Lane) -> tuple[float, float]:
        """Lateness and cost so far, in per cent of what the work costs on demand."""
        execution = lane.execution
        late = execution.finished and execution.now_s > execution.case.deadline_s + 1e-6
        return MISSED_PERCENT * late, 100 * execution.spent_usd() / lane.whole_usd

    def _objective(self, lane: _Lane) -> float:
        return sum(self._components(lane))
