"""Bags of tasks as a `QuestionWorld`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

from envs.simulation.bags.cases import Case, CaseSource
from envs.simulation.bags.decisions import Question
from envs.simulation.bags.execution import Asking, Execution, timeline_of
from envs.simulation.bags.fleet import Slots
from envs.simulation.bags.options import Options
from envs.simulation.bags.outcome import Outcome, fitness_scales
from envs.simulation.bags.picture import Picture
from envs.simulation.questions import QuestionLane, QuestionWorld
from envs.simulation.timeline import Timeline
from envs.simulation.world import EpisodeKey, WorldSpec

MISSED_POINTS = 100.0
"""What a missed deadline adds to the objective, in its per cent."""
METRICS = (
    "objective",
    "cost_percent",
    "cost_usd",
    "makespan_s",
    "missed",
    "hibernations",
    "migrations",
    "steals",
    "on_demand",
)
COMPONENTS = ("cost", "makespan")
CHANGES_SHOWN = 1000
"""Changes of each type that identify an episode."""


@dataclass(kw_only=True)
class _Lane(QuestionLane):
    """One episode."""

    case: Case
    execution: Execution
    asking: Asking
    picture: Picture
    question: Question | None = None
    options: Options | None = None


class BagWorld(QuestionWorld[_Lane]):
    """N copies of bags; each question of an `Execution` that has more than one answer is one decision.

    Args:
        source: gives every episode its case.
        n_lanes: copies.
        omega: weight of money in the objective, 1 - omega that of the makespan (Eq. 8.1).
    """

    def __init__(self, source: CaseSource, n_lanes: int, omega: float = 0.5) -> None:
        self.source, self.omega = source, omega
        self.slots = Slots(source.environment)
        weights = 100 * omega, 100 * (1 - omega)
        spec = WorldSpec(
            name="bags",
            window=1,
            n_clusters=len(self.slots.vms),
            cluster_names=tuple(vm.name for vm in self.slots.vms),
            components=COMPONENTS,
            weights=weights,
            scales=(0.1, 0.1),
            metrics=METRICS,
            higher_is_better=(False,) * len(METRICS),
            time_unit="s",
            objective_weights=weights,
        )
        super().__init__(spec, n_lanes)

    def metrics(self, lane: int) -> Mapping[str, float]:
        """Metrics of the finished episode."""
        state = self._lane(lane)
        counts = state.execution.fleet.counts
        return {
            "objective": self._objective(state),
            "cost_percent": 100 * self._components(state)[0],
            "cost_usd": self._spent_usd(state),
            "makespan_s": state.execution.fleet.now_s,
            "missed": float(self._missed(state)),
            "hibernations": float(counts.hibernations),
            "migrations": float(counts.migrations),
            "steals": float(counts.steals),
            "on_demand": float(counts.on_demand),
        }

    def question(self, lane: int) -> tuple[Question, Options]:
        """What a lane is asked now, for schedulers that know more than observations tell."""
        state = self._lane(lane)
        if state.question is None or state.options is None:
            raise ValueError(f"the episode in lane {lane} has ended: reset it first")
        return state.question, state.options

    def execution(self, lane: int) -> Execution:
        """The execution in a lane."""
        return self._lane(lane).execution

    def outcome(self, lane: int) -> Outcome:
        """What a finished episode came to."""
        return self._lane(lane).execution.outcome()

    def timeline(self, lane: int = 0) -> Timeline:
        """What happened in a lane so far."""
        state = self._lane(lane)
        return timeline_of(state.execution, self.slots)

    def fingerprint(self, key: EpisodeKey) -> str:
        """SHA-256 of the bag, the parameters and the calendars of an episode."""
        case = self.source.case(key)
        digest = hashlib.sha256(
            repr((case.plan, case.environment, case.scenario, case.d_spot_s, case.launch_s)).encode()
        )
        for vm_type in case.environment.types:
            digest.update(repr(list(islice(case.changes(vm_type.name), CHANGES_SHOWN))).encode())
        return digest.hexdigest()

    def _begin(self, key: EpisodeKey, number: int) -> _Lane:
        case = self.source.case(key)
        execution = Execution(case.plan, case.environment, case.changes, None, case.launch_s)
        picture = Picture(case.plan.bag, case.environment, case.scenario, self.slots, case.launch_s)
        return _Lane(key=key, case=case, execution=execution, asking=execution.questions(), picture=picture)

    def _advance(self, lane: _Lane, number: int, action: int | None) -> int | None:
        """Go on to the next question that leaves a choice."""
        answer = None
        if action is not None:
            assert lane.options is not None
            answer = lane.options.answer(action)
        while True:
            try:
                lane.question = next(lane.asking) if answer is None else lane.asking.send(answer)
            except StopIteration:
                lane.question = lane.options = None
                return None
            lane.options = Options(lane.question, lane.execution, self.slots)
            if lane.options.by_slot:
                lane.picture.show(lane.question, lane.options, lane.execution.fleet, self.observation, number)
                return lane.question.task
            answer = lane.options.answer(self.spec.n_clusters)

    def reward_of_usd(self, lane: int) -> float:
        """See `QuestionWorld`."""
        return 100.0 * self.omega * self._shares(self._lane(lane))[0]

    def _spent_usd(self, lane: _Lane) -> float:
        fleet = lane.execution.fleet
        return sum(vm.spent_usd(fleet.now_s) for vm in fleet.vms)

    def _missed(self, lane: _Lane) -> bool:
        fleet = lane.execution.fleet
        return lane.asked is None and (fleet.unfinished > 0 or fleet.now_s > fleet.deadline_s + 1e-6)

    def _components(self, lane: _Lane) -> tuple[float, float]:
        """Cost and time so far, each as a share of what section 8.1 divides it by."""
        of_usd, of_s = self._shares(lane)
        return of_usd * self._spent_usd(lane), of_s * lane.execution.fleet.now_s

    def _shares(self, lane: _Lane) -> tuple[float, float]:
        """What shares a USD and a second are."""
        environment = lane.case.environment
        # Without any D_spot the thesis plans no spot VM and has no measure; the deadline takes its place.
        measure_s = lane.case.d_spot_s or lane.case.plan.deadline_s
        cost_scale, time_scale = fitness_scales(environment, measure_s)
        return cost_scale / environment.omega, time_scale / (1 - environment.omega)

    def _objective(self, lane: _Lane) -> float:
        cost, time = self._components(lane)
        total = 100 * (self.omega * cost + (1 - self.omega) * time)
        return total + MISSED_POINTS * self._missed(lane)
