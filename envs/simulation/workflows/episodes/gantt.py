"""An execution as a timeline for pictures: which step ran where, and what was interrupted."""

from __future__ import annotations

import numpy as np

from envs.simulation.series import StepSeries
from envs.simulation.snapshot import Category
from envs.simulation.timeline import Segment, Timeline
from envs.simulation.workflows.episodes.execution import Execution
from envs.simulation.workflows.episodes.rented import IDLE


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
