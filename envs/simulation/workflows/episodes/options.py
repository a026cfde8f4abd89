"""What a question may be answered: the places that may take a step, and whether it may wait."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from envs.simulation.workflows.episodes.case import Case, Floats
from envs.simulation.workflows.episodes.files import Files
from envs.simulation.workflows.episodes.reserve import Reserve

TOLERANCE_S = 1e-6


@dataclass(frozen=True)
class Options:
    """What is true of a step at the C places now.

    Attributes:
        valid: [C] whether it may be put there.
        none: whether it may wait.
        launch_s: [C] until an instance is ready: 0 where one is idle.
        files_s: [C] until its files are there.
        egress_usd: [C] for moving them.
    """

    valid: NDArray[np.bool_]
    none: bool
    launch_s: Floats
    files_s: Floats
    egress_usd: Floats


def options_of(
    case: Case,
    reserve: Reserve,
    files: Files,
    step: int,
    now_s: float,
    idle: NDArray[np.int64],
    rentable: NDArray[np.bool_],
) -> Options:
    """The answers that keep the deadline whatever is interrupted; if there are none, those without spot.

    Args:
        case: the episode.
        reserve: what on demand needs.
        files: where they lie.
        step: asked about.
        now_s: seconds after the start.
        idle: [C] idle instances.
        rentable: [C] whether a new instance may be rented.
    """
    launch_s = np.where(idle > 0, 0.0, case.launch_s)
    files_s, egress_usd = files.moved(step, now_s)
    files_s, egress_usd = files_s[case.region], egress_usd[case.region]
    there = case.may[step] & ((idle > 0) | rentable)
    longest_s = case.problem.run_s[step] * (1 + case.conditions.runtime_error)
    ends_s = now_s + np.maximum(launch_s, files_s) + longest_s
    ends_s = ends_s + reserve.tail_s[step] + np.where(case.spot, reserve.need_s[step], 0.0)
    valid = there & (ends_s <= case.deadline_s + TOLERANCE_S)
    none = may_wait(case, reserve, step, now_s)
    if not none and not valid.any():
        valid = there & ~case.spot
        none = not valid.any()
    return Options(valid, none, launch_s, files_s, egress_usd)


def may_wait(case: Case, reserve: Reserve, step: int, now_s: float) -> bool:
    """Whether on demand still suffices when the step is asked about again."""
    needed_s = reserve.need_s[step] + reserve.tail_s[step]
    return bool(now_s + case.conditions.asks_again_s + needed_s <= case.deadline_s + TOLERANCE_S)
