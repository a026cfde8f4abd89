"""What runners report of attempts, within bounds: processes of jobs are behind it, and may say anything."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from deploy.model.fields import MOST_COUNT, MOST_SECONDS
from deploy.model.tasks import Assignment, Phase, TaskReport

_MOST_DETAILS = 50
_LONGEST_NAME = 100
_LONGEST_TEXT = 2_000


def bounded(report: TaskReport, assignment: Assignment, now_s: float) -> TaskReport:
    """A report as it may be kept and computed with.

    Args:
        report: of a runner.
        assignment: that the runner was asked about.
        now_s: epoch seconds.

    Raises:
        ValueError: if it is about something else, or holds what is no value of its kind.
    """
    if report.key != assignment.key or report.attempt != assignment.attempt:
        raise ValueError(f"a report about {report.key} {report.attempt} answers for {assignment.attempt_id}")
    if not isinstance(report.phase, Phase):
        raise ValueError(f"a report of {assignment.attempt_id} says the phase {report.phase!r:.100}")
    return replace(
        report,
        progress=_share(report.progress),
        saved=_share(report.saved),
        execution_saved=_share(report.execution_saved),
        executions_done=_count(report.executions_done),
        misses=_count(report.misses),
        last_execution_s=_seconds(report.last_execution_s),
        delivered=bool(report.delivered),
        execution_since_s=_moment(report.execution_since_s, now_s),
        next_due_s=_moment(report.next_due_s, now_s),
        message=str(report.message)[:_LONGEST_TEXT],
        saved_region=str(report.saved_region)[:_LONGEST_NAME],
        details=_few(report.details),
    )


def _share(value: float) -> float:
    return min(1.0, max(0.0, float(value))) if math.isfinite(value) else 0.0


def _count(value: int) -> int:
    return min(MOST_COUNT, max(0, int(value)))


def _seconds(value: float | None) -> float | None:
    if value is None or not 0 <= value < math.inf:
        return None
    return min(float(value), MOST_SECONDS)


def _moment(value: float | None, now_s: float) -> float | None:
    return None if value is None or not abs(value - now_s) <= MOST_SECONDS else float(value)


def _few(details: Mapping[str, str]) -> dict[str, str]:
    first = list(details.items())[:_MOST_DETAILS]
    return {str(name)[:_LONGEST_NAME]: str(value)[:_LONGEST_TEXT] for name, value in first}
