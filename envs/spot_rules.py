"""The problems of the "Can't Be Late" leaderboards, and the days of the recording that each split may see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from envs.simulation.streams import Split
from envs.traces.bundle import DAY_S, SPLIT_DAYS

RulesName = Literal["adrs_single", "adrs_multi"]

LEADERBOARD_DAYS = (
    (7.8, 10.3),
    (14.6, 17.1),
    (19.9, 22.4),
    (22.5, 25.0),
    (31.8, 34.3),
    (34.4, 36.9),
    (37.4, 39.9),
    (42.6, 45.1),
)
"""Days of the recording that the leaderboard's traces of several zones are cut from."""
MARGIN_S = 3 * 3600
MULTI_DAYS: dict[str, tuple[int, int]] = {"train": (0, 25), "validation": (25, 38), "test": (38, 45)}
"""Splits of `adrs_multi`; of the first two, `LEADERBOARD_DAYS` with a margin of three hours are left out."""


@dataclass(frozen=True)
class Rules:
    """One problem of the leaderboard.

    Attributes:
        tick_s: g, seconds.
        deadlines_s: deadlines, seconds.
        restarts_s: restart overheads, seconds.
        one_zone: whether an episode has one zone, at a constant price.
    """

    tick_s: int
    deadlines_s: tuple[int, ...]
    restarts_s: tuple[int, ...]
    one_zone: bool


RULES: dict[RulesName, Rules] = {
    "adrs_single": Rules(600, (52 * 3600, 70 * 3600), (72, 180, 360), True),
    "adrs_multi": Rules(195, (52 * 3600,), (720,), False),
}


def stretches_s(rules: RulesName, split: Split, record_end_s: int) -> list[tuple[int, int]]:
    """Half-open stretches of the recording that the episodes of a split may see, seconds.

    `adrs_single` has the usual days. `adrs_multi` trains on days 0 to 25 and is validated on days 25 to 38,
    both without `LEADERBOARD_DAYS` and `MARGIN_S` on both sides; it is tested on days 38 to 45 with them:
    nothing is chosen there. No stretch of one split meets one of another.
    """
    first, last = (SPLIT_DAYS if RULES[rules].one_zone else MULTI_DAYS)[split]
    start_s, end_s = first * DAY_S, min(last * DAY_S, record_end_s)
    found: list[tuple[int, int]] = []
    if not RULES[rules].one_zone and split != "test":
        for left, right in LEADERBOARD_DAYS:
            begins_s, ends_s = round(left * DAY_S) - MARGIN_S, round(right * DAY_S) + MARGIN_S
            if start_s < begins_s < end_s:
                found.append((start_s, begins_s))
            if ends_s > start_s:
                start_s = min(end_s, max(start_s, ends_s)) if begins_s < end_s else start_s
    return [*found, (start_s, end_s)] if start_s < end_s else found
