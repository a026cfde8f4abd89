"""What every simulated world offers to environments, evaluation and training: many copies, one call."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.series import Bools, Floats, Ints, StepSeries
from spotweave.envs.simulation.snapshot import Observation
from spotweave.envs.simulation.streams import Split


class WorldError(ValueError):
    """A mistake in a world's configuration or data that its user can mend; the message is one line."""


def require(holds: bool, given: str, expected: str) -> None:
    """Raise WorldError with both unless `holds`."""
    if not holds:
        raise WorldError(f"{given}: expected {expected}")


def at_least(config: object, group: str, lowest: float, *labels: str) -> None:
    """Numbers of a settings object that must not be below `lowest`, nor infinite."""
    for label in labels:
        value = getattr(config, label)
        require(lowest <= value < math.inf, f"{group}.{label} is {value}", f"a number >= {lowest}")


def bounds(config: object, group: str, lowest: float, *labels: str) -> None:
    """Pairs [a, b] of a settings object with lowest <= a <= b."""
    for label in labels:
        given: Sequence[float] = getattr(config, label)
        require(
            len(given) == 2 and lowest <= given[0] <= given[1] < math.inf,
            f"{group}.{label} is {list(given)}",
            f"two bounds [a, b] with {lowest:g} <= a <= b",
        )


def shares(config: object, group: str, *labels: str) -> None:
    """Numbers of a settings object that must lie in [0, 1]."""
    for label in labels:
        value = getattr(config, label)
        require(0.0 <= value <= 1.0, f"{group}.{label} is {value}", "a share in [0, 1]")


@dataclass(frozen=True)
class EpisodeKey:
    """Names one episode: everything random in it follows from these three."""

    seed: int
    split: Split
    index: int


@dataclass(frozen=True)
class WorldSpec:
    """The fixed facts of a world."""

    name: str  # registered name without version, e.g. "multicloud"
    window: int  # J, jobs shown in an observation
    n_clusters: int  # C
    cluster_names: tuple[str, ...]  # C names for people
    # names of the K value components, e.g. ("own_misses", "mutual_misses", "delay")
    components: tuple[str, ...]
    weights: tuple[float, ...]  # K default scalarisation weights (Liu 2022, section 5.3)
    # K typical magnitudes of the components, for networks to normalise their targets
    scales: tuple[float, ...]
    metrics: tuple[str, ...]  # metric names in display order; the first is the objective
    higher_is_better: tuple[bool, ...]  # for each metric
    time_unit: str  # "slice" or "s"
    # K weights with which what a system came to in all adds up to its return
    objective_weights: tuple[float, ...] = ()
    # whether tasks that train in rounds are decided, whose columns other worlds leave at 0
    federated: bool = False
    # whether observations hold what `slices.forecast` foresees; else these columns stay 0
    forecast: bool = False

    @property
    def n_actions(self) -> int:
        """Size of the flat action space J * (C + 1)."""
        return self.window * (self.n_clusters + 1)


class BatchWorld(Protocol):
    """N independent copies of a world stepped by one call. Lane i is copy i.

    `step` applies one decision per lane and advances each lane to its next decision, or to the episode's end.
    The arrays in `observation` belong to the world and are overwritten by the next `step` or `reset`.
    """

    spec: WorldSpec
    n_lanes: int
    observation: Observation  # leading axis N

    def reset(self, keys: Sequence[EpisodeKey], lanes: Sequence[int] | None = None) -> None:
        """Start the episode keys[k] in lane lanes[k] (all lanes if None) and show its first decision."""

    def step(self, actions: Ints, active: Bools | None = None) -> tuple[Floats, Bools]:
        """Take one decision in every active lane: (reward (N,), done (N,)). Inactive lanes give 0, True.

        Raises:
            ValueError: for an action outside the mask of its lane (named, with the lane and the reason).
        """

    def decided_jobs(self) -> Ints:
        """(N,) job number that the latest `step` decided in each lane, -1 where none."""

    def marks(self) -> Floats:
        """(N, M) running totals of the decided job, taken just before the latest action was applied."""

    def values(self, lane: int, jobs: Ints, marks: Floats) -> Floats:
        """(D, K) Monte-Carlo value components of D decisions of a finished episode (from `jobs`, `marks`)."""

    def metrics(self, lane: int) -> Mapping[str, float]:
        """Metrics of the finished episode in a lane, keyed by `spec.metrics`."""

    def fingerprint(self, key: EpisodeKey) -> str:
        """SHA-256 of everything random in an episode (workload, prices, availability): what suites hash."""

    def copy_lanes(self, sources: Ints, targets: Ints) -> None:
        """Make lane targets[k] an exact copy of lane sources[k]: same past, same future."""

    def limit_arrivals(self, lanes: Ints, further: int) -> None:
        """Let only `further` more jobs arrive in these lanes; their episodes end when those have ended."""


class CompiledWorld(ABC):
    """What worlds whose lanes are stepped by compiled code do alike; see `BatchWorld`."""

    spec: WorldSpec
    observation: Observation

    def __init__(self, n_lanes: int) -> None:
        if n_lanes < 1:
            raise WorldError(f"a world needs at least one lane, got n_lanes={n_lanes}")
        self.n_lanes = n_lanes
        self._everyone = np.ones(n_lanes, np.bool_)

    @abstractmethod
    def _begin(self, key: EpisodeKey, lane: int) -> None:
        """Draw an episode and show its first decision."""

    @abstractmethod
    def _step(self, actions: Ints, active: Bools, rewards: Floats, done: Bools) -> int:
        """Step the lanes; the first lane that cannot take its action (nothing changes then), else -1."""

    @abstractmethod
    def _ended(self, lane: int) -> bool: ...

    @abstractmethod
    def _why_masked(self, cluster: int) -> str:
        """Why a job that is shown may not take a column."""

    def reset(self, keys: Sequence[EpisodeKey], lanes: Sequence[int] | None = None) -> None:
        """Start the episode keys[k] in lane lanes[k] (all lanes if None) and show its first decision."""
        chosen = range(self.n_lanes) if lanes is None else lanes
        if len(keys) != len(chosen):
            raise ValueError(f"{len(keys)} episode keys for {len(chosen)} lanes: give one per lane")
        for key, lane in zip(keys, chosen, strict=True):
            self._begin(key, lane)

    def step(self, actions: Ints, active: Bools | None = None) -> tuple[Floats, Bools]:
        """Take one decision in every active lane: (reward (N,), done (N,)). Inactive lanes give 0, True.

        Raises:
            ValueError: for an action outside the mask of its lane, or a lane that has ended; nothing changes.
        """
        rewards, done = np.empty(self.n_lanes, np.float64), np.empty(self.n_lanes, np.bool_)
        failed = self._step(actions, self._everyone if active is None else active, rewards, done)
        if failed >= 0:
            raise ValueError(self._refusal(failed, int(actions[failed])))
        return rewards, done

    def _free_slot(self, lane: int, slots: Ints) -> int:
        """A slot that no other lane plays (copies share slots, so one of N is always free)."""
        others = set(np.delete(slots, lane).tolist())
        own = int(slots[lane])
        if own >= 0 and own not in others:
            return own
        return next(slot for slot in range(self.n_lanes) if slot not in others)

    def _require_done(self, lane: int) -> None:
        if not self._ended(lane):
            raise ValueError(f"the episode in lane {lane} has not ended: values and metrics come at its end")

    def _refusal(self, lane: int, action: int) -> str:
        """Why a lane cannot take an action, in one line."""
        if self._ended(lane):
            return f"lane {lane} has ended: reset it, or leave it out with `active`"
        if not 0 <= action < self.spec.n_actions:
            return f"action {action} of lane {lane} is outside 0..{self.spec.n_actions - 1}"
        position, cluster = divmod(action, self.spec.n_clusters + 1)
        shown = np.count_nonzero(self.observation["jobs"][lane, :, col.PRESENT])
        reason = f"position {position} holds no job ({shown} jobs are shown)"
        if position < shown:
            reason = self._why_masked(cluster)
        return f"action {action} of lane {lane} is invalid: {reason}; choose where action_mask is 1"


def checked_lanes(actions: Ints, active: Bools | None, mask: NDArray[np.int8]) -> list[int]:
    """The lanes that take a decision.

    Args:
        actions: (N,), one of each lane.
        active: (N,), which lanes decide; all if None.
        mask: (N, C + 1), what each lane may choose; none for now is the last.

    Raises:
        ValueError: for an action outside the mask of its lane.
    """
    numbers: list[int] = np.flatnonzero(np.ones(len(mask)) if active is None else active).tolist()
    for number in numbers:
        action = int(actions[number])
        if not 0 <= action < mask.shape[1] or not mask[number, action]:
            raise ValueError(
                f"action {action} in lane {number} is not valid: expected one of "
                f"{np.flatnonzero(mask[number]).tolist()} ({mask.shape[1] - 1} is none for now)"
            )
    return numbers


# What happened in an episode, for drawing: who ran where and when, on how much capacity, at what price.


@dataclass(frozen=True)
class Segment:
    """One execution (or one stretch of work) of a job on a cluster, [start, end)."""

    job: int  # job number
    cluster: int  # 0-based cluster
    start: float  # first time it held its executors
    end: float  # when it released them (or now, if it still runs)
    executors: int  # how many
    category: int  # `Category` of the job
    missed: bool  # whether it ended after its deadline


@dataclass(frozen=True)
class Timeline:
    """An episode up to `end`. Times in `time_unit`."""

    cluster_names: tuple[str, ...]  # C names
    time_unit: str  # "slice" or "s"
    end: float  # time up to which everything is known
    segments: tuple[Segment, ...]  # by start
    capacity: tuple[StepSeries, ...]  # per cluster, executors in effect over time
    used: tuple[StepSeries, ...]  # per cluster, executors held over time
    # per cluster, price per executor over time (constant 0 on owned clusters)
    price_usd_hour: tuple[StepSeries, ...]
    misses: tuple[tuple[float, int], ...] = field(default=())  # (time, cluster) of each missed deadline
    # (time, cluster) of each interruption by the provider
    interruptions: tuple[tuple[float, int], ...] = field(default=())


def constant(value: float) -> StepSeries:
    """A series that never changes."""
    return StepSeries(np.zeros(1, np.int64), np.full(1, float(value)))


def held(spans: Iterable[tuple[float, float, int]]) -> StepSeries:
    """How many are held over time, whole units of it, from (start, end, how many)."""
    changes: dict[int, int] = {0: 0}
    for start, end, number in spans:
        for time, change in ((int(start), number), (int(end), -number)):
            changes[time] = changes.get(time, 0) + change
    times = sorted(changes)
    return StepSeries(np.array(times, np.int64), np.cumsum([changes[time] for time in times]).astype(float))


def used(segments: Iterable[Segment], clusters: int) -> tuple[StepSeries, ...]:
    """Per cluster, executors that the segments hold over time."""
    spans: list[list[tuple[float, float, int]]] = [[] for _ in range(clusters)]
    for one in segments:
        spans[one.cluster].append((one.start, one.end, one.executors))
    return tuple(map(held, spans))
