"""Many bags of tasks at once behind the `BatchWorld` protocol."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from envs.simulation.bags.cases import Case, CaseSource
from envs.simulation.bags.decisions import NO_TASK, Answer, Question
from envs.simulation.bags.execution import Asking, Execution
from envs.simulation.bags.gantt import timeline_of
from envs.simulation.bags.objective import fitness_scales
from envs.simulation.bags.options import Options
from envs.simulation.bags.outcome import Outcome
from envs.simulation.bags.picture import Picture
from envs.simulation.bags.slots import Slots
from envs.simulation.snapshot import empty_observation
from envs.simulation.timeline import Timeline
from envs.simulation.world import EpisodeKey, WorldSpec, checked_lanes

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


@dataclass
class _Lane:
    """One episode."""

    key: EpisodeKey
    case: Case
    execution: Execution
    asking: Asking
    picture: Picture
    question: Question | None = None
    options: Options | None = None
    charged: float = 0.0
    decided: int = NO_TASK
    actions: list[int] = field(default_factory=list)


class BagWorld:
    """N copies of bags; each question of an `Execution` that has more than one answer is one decision.

    A `BatchWorld`.

    Args:
        source: gives every episode its case.
        n_lanes: copies.
        omega: weight of money in the objective, 1 - omega that of the makespan (Eq. 8.1).
    """

    def __init__(self, source: CaseSource, n_lanes: int, omega: float = 0.5) -> None:
        self.source, self.n_lanes, self.omega = source, n_lanes, omega
        self.slots = Slots(source.environment)
        weights = 100 * omega, 100 * (1 - omega)
        self.spec = WorldSpec(
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
        self.observation = empty_observation(1, len(self.slots.vms), (n_lanes,))
        self._lanes: list[_Lane | None] = [None] * n_lanes

    # BatchWorld.

    def reset(self, keys: Sequence[EpisodeKey], lanes: Sequence[int] | None = None) -> None:
        """Start the episode keys[k] in lane lanes[k] and show its first decision."""
        for key, number in zip(keys, range(self.n_lanes) if lanes is None else lanes, strict=True):
            case = self.source.case(key)
            execution = Execution(case.plan, case.environment, case.changes, None, case.launch_s)
            picture = Picture(case.plan.bag, case.environment, case.scenario, self.slots, case.launch_s)
            lane = _Lane(key, case, execution, execution.questions(), picture)
            self._lanes[number] = lane
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
            assert lane.options is not None
            lane.decided = lane.question.task
            lane.actions.append(int(actions[number]))
            self._advance(number, lane.options.answer(int(actions[number])))
            total = self._objective(lane)
            rewards[number] = lane.charged - total
            lane.charged = total
            done[number] = lane.question is None
        return rewards, done

    def decided_jobs(self) -> NDArray[np.int64]:
        """(N,) task that the latest step decided about; -1 where none."""
        return np.array([NO_TASK if lane is None else lane.decided for lane in self._lanes], np.int64)

    def marks(self) -> NDArray[np.float64]:
        """(N, 2) normalised cost and time so far."""
        return np.array([(0.0, 0.0) if lane is None else self._components(lane) for lane in self._lanes])

    def values(self, lane: int, jobs: NDArray[np.int64], marks: NDArray[np.float64]) -> NDArray[np.float64]:
        """(D, 2) minus the normalised cost and time that came after each decision."""
        after: NDArray[np.float64] = marks - np.array(self._components(self._lane(lane)))
        return after

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

    def copy_lanes(self, sources: NDArray[np.int64], targets: NDArray[np.int64]) -> None:
        """Make lane targets[k] an exact copy of lane sources[k], by playing its actions again."""
        copied = [(self._lane(number).key, list(self._lane(number).actions)) for number in sources.tolist()]
        for (key, actions), number in zip(copied, targets.tolist(), strict=True):
            self.reset([key], [number])
            for action in actions:
                lane = self._lane(number)
                assert lane.options is not None
                lane.actions.append(action)
                self._advance(number, lane.options.answer(action))
                lane.charged = self._objective(lane)

    def limit_arrivals(self, lanes: NDArray[np.int64], further: int) -> None:
        """Nothing arrives here: the whole bag is there from the beginning."""

    # One lane.

    def _lane(self, number: int) -> _Lane:
        lane = self._lanes[number]
        if lane is None:
            raise ValueError(f"lane {number} has no episode: reset it first")
        return lane

    def _advance(self, number: int, answer: Answer | None) -> None:
        """Answer, go on to the next question that leaves a choice, and show it."""
        lane = self._lane(number)
        while True:
            try:
                lane.question = next(lane.asking) if answer is None else lane.asking.send(answer)
            except StopIteration:
                lane.question = lane.options = None
                for array in self.observation.values():
                    array[number] = 0  # type: ignore[index]
                return
            lane.options = Options(lane.question, lane.execution, self.slots)
            if lane.options.by_slot:
                lane.picture.show(lane.question, lane.options, lane.execution.fleet, self.observation, number)
                return
            answer = lane.options.answer(self.spec.n_clusters)

    def _spent_usd(self, lane: _Lane) -> float:
        fleet = lane.execution.fleet
        return sum(vm.spent_usd(fleet.now_s) for vm in fleet.vms)

    def _missed(self, lane: _Lane) -> bool:
        fleet = lane.execution.fleet
        return lane.question is None and (fleet.unfinished > 0 or fleet.now_s > fleet.deadline_s + 1e-6)

    def _components(self, lane: _Lane) -> tuple[float, float]:
        """Cost and time so far, each as a share of what section 8.1 divides it by."""
        environment = lane.case.environment
        # Without any D_spot the thesis plans no spot VM and has no measure; the deadline takes its place.
        measure_s = lane.case.d_spot_s or lane.case.plan.deadline_s
        cost_scale, time_scale = fitness_scales(environment, measure_s)
        cost = cost_scale / environment.omega * self._spent_usd(lane)
        return cost, time_scale / (1 - environment.omega) * lane.execution.fleet.now_s

    def _objective(self, lane: _Lane) -> float:
        cost, time = self._components(lane)
        total = 100 * (self.omega * cost + (1 - self.omega) * time)
        return total + MISSED_POINTS * self._missed(lane)
