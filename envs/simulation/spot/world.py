"""Many spot jobs at once behind the `BatchWorld` protocol."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.series import Bools, Floats, Ints, StepSeries
from spotweave.envs.simulation.snapshot import Category, arrays_of, empty_observation
from spotweave.envs.simulation.spot.lanes import JobSource, SpotJob, empty_lanes, load, run_tick, show
from spotweave.envs.simulation.world import EpisodeKey, Segment, Timeline, WorldSpec, checked_lanes

METRICS = (
    "cost_index",
    "cost_usd",
    "score",
    "late",
    "interruptions",
    "starts",
    "spot_hours",
    "on_demand_hours",
    "idle_hours",
)
LATE_PERCENT = 100.0
"""What a late job adds to the index: as much as all its work on demand."""


class SpotWorld:
    """N copies of one job on spot zones; every tick is one decision. A `BatchWorld`.

    Args:
        source: gives every episode its job.
        n_lanes: copies.
        spot_anchor_usd_hour: price of the score's lower anchor, which is all the work on spot.
    """

    def __init__(self, source: JobSource, n_lanes: int, spot_anchor_usd_hour: float) -> None:
        self.source = source
        self.n_lanes = n_lanes
        self.spot_anchor_usd_hour = spot_anchor_usd_hour
        n_zones = len(source.zones)
        self.spec = WorldSpec(
            name="spot",
            window=1,
            n_clusters=n_zones + 1,
            cluster_names=(*source.zones, "on demand"),
            components=("late", "cost"),
            weights=(1.0, 1.0),
            scales=(10.0, 10.0),
            metrics=METRICS,
            higher_is_better=tuple(name in ("score", "spot_hours") for name in METRICS),
            time_unit="s",
            objective_weights=(1.0, 1.0),
        )
        self.observation = empty_observation(1, n_zones + 1, (n_lanes,))
        self._seen = arrays_of(self.observation)
        self.lanes = empty_lanes(n_lanes, n_zones, source.most_ticks)
        names = [zone[:-1] for zone in source.zones]
        self._regions = tuple(sorted(set(names)).index(name) for name in names)
        self.jobs: list[SpotJob | None] = [None] * n_lanes
        self._decided = np.full(n_lanes, -1, np.int64)
        self._marks = np.zeros((n_lanes, 2))

    # BatchWorld.

    def reset(self, keys: Sequence[EpisodeKey], lanes: Sequence[int] | None = None) -> None:
        """Start the episode keys[k] in lane lanes[k] and show its first decision."""
        for key, lane in zip(keys, range(self.n_lanes) if lanes is None else lanes, strict=True):
            job = self.source.job(key)
            self.jobs[lane] = job
            load(self.lanes, lane, job, self._regions)
            self._decided[lane] = -1
            self._show(lane)

    def step(self, actions: Ints, active: Bools | None = None) -> tuple[Floats, Bools]:
        """Let a tick pass in every active lane: (reward (N,), done (N,)).

        Raises:
            ValueError: for an action outside the mask of its lane; nothing changes then.
        """
        numbers = checked_lanes(actions, active, self.observation["action_mask"])
        rewards = np.zeros(self.n_lanes)
        done = np.ones(self.n_lanes, np.bool_)
        for lane in numbers:
            self._marks[lane] = before = self._components(lane)
            self._decided[lane] = 0
            done[lane] = run_tick(self.lanes, lane, int(actions[lane]))
            rewards[lane] = sum(before) - sum(self._components(lane))
            if done[lane]:
                for array in self._seen:
                    array[lane] = 0
            else:
                self._show(lane)
        return rewards, done

    def decided_jobs(self) -> Ints:
        """(N,) 0, the job, where the latest step decided; -1 where none."""
        return self._decided.copy()

    def marks(self) -> Floats:
        """(N, 2) lateness and cost (per cent) just before the latest action."""
        return self._marks.copy()

    def values(self, lane: int, jobs: Ints, marks: Floats) -> Floats:
        """(D, 2) minus the lateness and the cost that came after each decision."""
        after: Floats = marks - np.array(self._components(lane))
        return after

    def metrics(self, lane: int) -> Mapping[str, float]:
        """Metrics of the finished episode; the score is the leaderboard's, in per cent."""
        job, state = self._job(lane), self.lanes
        late, cost_percent = self._components(lane)
        cost_usd = float(state.cost_usd[lane])
        spot_usd = self.spot_anchor_usd_hour * job.work_s / 3600
        places = state.history[lane, : state.tick[lane]]
        hours = job.tick_s / 3600
        on_demand = np.count_nonzero(places == len(self.source.zones))
        idle = np.count_nonzero(places < 0)
        return {
            "cost_index": cost_percent + late,
            "cost_usd": cost_usd,
            "score": 100 * (job.on_demand_usd - cost_usd) / (job.on_demand_usd - spot_usd),
            "late": float(late > 0),
            "interruptions": float(state.interruptions[lane]),
            "starts": float(state.starts[lane]),
            "spot_hours": (len(places) - on_demand - idle) * hours,
            "on_demand_hours": on_demand * hours,
            "idle_hours": idle * hours,
        }

    def timeline(self, lane: int = 0) -> Timeline:
        """What happened in a lane so far."""
        job, state = self._job(lane), self.lanes
        t, n_clusters = int(state.tick[lane]), self.spec.n_clusters
        places = state.history[lane, :t].astype(np.int64)
        edges = [0, *(np.flatnonzero(np.diff(places)) + 1).tolist(), t]
        late = bool(self._components(lane)[0] > 0)
        segments = [
            Segment(
                0,
                int(places[start]),
                float(start * job.tick_s),
                float(end * job.tick_s),
                1,
                Category.TIME_CRITICAL.value,
                late and end == t,
            )
            for start, end in pairwise(edges)
            if start < end and places[start] >= 0
        ]
        lost = [
            (float(k * job.tick_s), int(places[k - 1]))
            for k in range(1, t)
            if 0 <= places[k - 1] < n_clusters - 1 and not job.has_spot[k, places[k - 1]]
            if places[k] != places[k - 1]
        ]
        times = np.arange(max(1, t)) * job.tick_s

        def series(values: NDArray[np.floating[Any]]) -> StepSeries:
            return StepSeries(times, np.ascontiguousarray(values, np.float64))

        shown = state.offers[lane, : len(times)]
        used = np.zeros((len(times), n_clusters))
        used[np.flatnonzero(places >= 0), places[places >= 0]] = 1.0
        return Timeline(
            cluster_names=self.spec.cluster_names,
            time_unit="s",
            end=float(t * job.tick_s),
            segments=tuple(segments),
            capacity=tuple(series(shown[:, c, col.CAPACITY_NOW]) for c in range(n_clusters)),
            used=tuple(series(used[:, c]) for c in range(n_clusters)),
            price_usd_hour=tuple(series(shown[:, c, col.PRICE_USD_HOUR]) for c in range(n_clusters)),
            misses=((float(t * job.tick_s), n_clusters - 1),) if late else (),
            interruptions=tuple(lost),
        )

    def fingerprint(self, key: EpisodeKey) -> str:
        """SHA-256 of the job and the trace of an episode."""
        job = self.source.job(key)
        facts = (job.work_s, job.tick_s, job.restart_s, job.start_s, job.on_demand_usd_hour)
        digest = hashlib.sha256(repr(facts).encode())
        digest.update(job.has_spot.tobytes() + job.spot_usd_hour.tobytes())
        return digest.hexdigest()

    def copy_lanes(self, sources: Ints, targets: Ints) -> None:
        """Make lane targets[k] an exact copy of lane sources[k]."""
        for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
            self.jobs[target] = self.jobs[source]
            for array in (*self.lanes, *self._seen, self._decided, self._marks):
                array[target] = array[source]

    def limit_arrivals(self, lanes: Ints, further: int) -> None:
        """Do nothing: the job is there from the beginning."""

    # One lane.

    def _job(self, lane: int) -> SpotJob:
        job = self.jobs[lane]
        if job is None:
            raise ValueError(f"lane {lane} has no episode: reset it first")
        return job

    def _components(self, lane: int) -> tuple[float, float]:
        job, state = self._job(lane), self.lanes
        late = state.left_s[lane] > 0 and state.tick[lane] >= state.n_ticks[lane]
        return LATE_PERCENT * late, 100 * float(state.cost_usd[lane]) / job.on_demand_usd

    def _show(self, lane: int) -> None:
        seen = self._seen
        show(self.lanes, lane, seen.clusters[lane], seen.jobs[lane], seen.pairs[lane], seen.mask[lane])
