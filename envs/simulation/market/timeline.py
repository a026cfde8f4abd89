"""A lane's episode so far as a `Timeline`, from the log that a recording world keeps."""

from __future__ import annotations

import numpy as np

from envs.simulation.market import columns as at
from envs.simulation.market.episodes import Episodes
from envs.simulation.market.state import NEVER, Lanes, Offers
from envs.simulation.series import Ints, StepSeries
from envs.simulation.timeline import Segment, Timeline
from envs.simulation.world import WorldSpec

_BILLED = (at.SETTING_UP, at.WORKING, at.IDLE, at.MOVING)


def lane_timeline(lanes: Lanes, episodes: Episodes, offers: Offers, spec: WorldSpec, lane: int) -> Timeline:
    """What the log and the present state of a lane tell."""
    slot = int(lanes.episode_of_lane[lane])
    now = int(lanes.lane[lane, at.NOW_S])
    rows = lanes.log[lane, : lanes.lane[lane, at.LOG_N]]
    stays = []
    for row in rows[rows[:, at.LOG_KIND] == at.SEGMENT]:
        job, c, start, end, late = (int(value) for value in row[at.LOG_JOB :])
        stays.append((job, c, start, end, bool(late)))
    for job in np.flatnonzero(np.isin(lanes.job[lane, :, at.PHASE], _BILLED)).tolist():
        start = int(lanes.job[lane, job, at.BILLED_FROM_S])
        stays.append(
            (job, int(lanes.job[lane, job, at.OFFER]), start, now, bool(lanes.job[lane, job, at.MISSES] > 0))
        )
    segments = tuple(
        Segment(
            job=job,
            cluster=c,
            start=float(start),
            end=float(end),
            executors=int(episodes.job[slot, job, at.EXECUTORS]),
            category=int(episodes.job[slot, job, at.CATEGORY]),
            missed=late,
        )
        for job, c, start, end, late in sorted(stays, key=lambda stay: (stay[2], stay[0]))
    )
    n_offers = spec.n_clusters
    return Timeline(
        cluster_names=spec.cluster_names,
        time_unit="s",
        end=float(now),
        segments=segments,
        capacity=tuple(_capacity(episodes, offers, slot, c, now) for c in range(n_offers)),
        used=tuple(_used([s for s in segments if s.cluster == c]) for c in range(n_offers)),
        price_usd_hour=tuple(_price(episodes, slot, c, now) for c in range(n_offers)),
        misses=_moments(rows, at.MISS),
        interruptions=_moments(rows, at.INTERRUPTION),
    )


def _moments(
    rows: np.ndarray[tuple[int, ...], np.dtype[np.int64]], kind: int
) -> tuple[tuple[float, int], ...]:
    chosen = rows[rows[:, at.LOG_KIND] == kind]
    return tuple((float(row[at.LOG_END_S]), int(row[at.LOG_OFFER])) for row in chosen)


def _capacity(episodes: Episodes, offers: Offers, slot: int, c: int, now: int) -> StepSeries:
    rows = _rows(episodes.up[slot, c])
    capacity = rows[:, at.UP].astype(np.float64) * float(offers.fixed[c, at.QUOTA])
    return StepSeries(rows[:, at.SINCE].copy(), capacity).window(0, max(now, 1))


def _price(episodes: Episodes, slot: int, c: int, now: int) -> StepSeries:
    rows = _rows(episodes.price[slot, c])
    usd = rows[:, at.PRICE].astype(np.float64) / 1e6
    return StepSeries(rows[:, at.SINCE].copy(), usd).window(0, max(now, 1))


def _rows(rows: Ints) -> Ints:
    """The rows in use: the last of them ends never."""
    return rows[: int(np.argmax(rows[:, at.UNTIL] == NEVER)) + 1]


def _used(segments: list[Segment]) -> StepSeries:
    """Executors held over time."""
    changes: dict[int, int] = {0: 0}
    for segment in segments:
        changes[int(segment.start)] = changes.get(int(segment.start), 0) + segment.executors
        changes[int(segment.end)] = changes.get(int(segment.end), 0) - segment.executors
    times = np.array(sorted(changes), np.int64)
    return StepSeries(times, np.cumsum([changes[t] for t in times.tolist()]).astype(np.float64))
