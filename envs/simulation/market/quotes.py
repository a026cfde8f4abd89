"""Prices and availability as they hold at a moment: cursors over an episode's series."""

from __future__ import annotations

from envs.simulation.market import columns as at
from envs.simulation.market.compiled import inner
from envs.simulation.market.episodes import Episodes
from envs.simulation.market.state import Lanes
from envs.simulation.series import Ints

DAY_S = 86_400
WEEK_S = 7 * DAY_S


@inner
def advance_cursor(rows: Ints, row: int, t: int) -> int:
    """The row of a series (K, columns) that holds at `t`, found by walking forward from `row`."""
    while rows[row, at.UNTIL] <= t:
        row += 1
    return row


@inner
def sync_availability(lanes: Lanes, episodes: Episodes, lane: int, c: int, t: int) -> bool:
    """Bring the cursor of an offer to `t`; whether it is available."""
    rows = episodes.up[lanes.episode_of_lane[lane], c]
    row = advance_cursor(rows, lanes.offer[lane, c, at.UP_NOW], t)
    lanes.offer[lane, c, at.UP_NOW] = row
    return bool(rows[row, at.UP] == 1)


@inner
def sync_price(lanes: Lanes, episodes: Episodes, lane: int, c: int) -> int:
    """Bring the price cursor of an offer to the present; its row."""
    rows = episodes.price[lanes.episode_of_lane[lane], c]
    row = advance_cursor(rows, lanes.offer[lane, c, at.PRICE_NOW], lanes.lane[lane, at.NOW_S])
    lanes.offer[lane, c, at.PRICE_NOW] = row
    return int(row)


@inner
def price_integral(lanes: Lanes, episodes: Episodes, lane: int, c: int, t: int) -> int:
    """(micro-dollars per executor-hour) x seconds from the series' start to `t`, for t not before now."""
    rows = episodes.price[lanes.episode_of_lane[lane], c]
    row = advance_cursor(rows, sync_price(lanes, episodes, lane, c), t)
    return int(rows[row, at.PRICE_INTEGRAL] + rows[row, at.PRICE] * (t - rows[row, at.SINCE]))


@inner
def mean_price(lanes: Lanes, episodes: Episodes, lane: int, c: int, memory_s: float) -> float:
    """Mean micro-dollars per executor-hour over the latest `memory_s`, or since the episode's start."""
    rows = episodes.price[lanes.episode_of_lane[lane], c]
    row, t = sync_price(lanes, episodes, lane, c), lanes.lane[lane, at.NOW_S]
    start = max(0, t - int(memory_s))
    if t == start:
        return float(rows[row, at.PRICE])
    total = rows[row, at.PRICE_INTEGRAL] + rows[row, at.PRICE] * (t - rows[row, at.SINCE])
    while rows[row, at.SINCE] > start:
        row -= 1
    total -= rows[row, at.PRICE_INTEGRAL] + rows[row, at.PRICE] * (start - rows[row, at.SINCE])
    return float(total / (t - start))


@inner
def up_seconds(rows: Ints, row: int, t: int) -> int:
    """Seconds up from the history's start to `t`, which lies in `row`."""
    return int(rows[row, at.UP_SECONDS] + (t - rows[row, at.SINCE]) * rows[row, at.UP])


@inner
def recent_availability(
    lanes: Lanes, episodes: Episodes, lane: int, c: int
) -> tuple[bool, float, float, float]:
    """(available, share up in the latest 24 h, seconds since the change, mean up-spell of 7 days).

    Only what is known counts: both look back no further than the history's start. An up-spell counts with
    the part that lies inside the 7 days.
    """
    slot = lanes.episode_of_lane[lane]
    rows, cursors = episodes.up[slot, c], lanes.offer[lane, c]
    t = lanes.lane[lane, at.NOW_S]
    start = episodes.history_s[slot]
    row = advance_cursor(rows, cursors[at.UP_NOW], t)
    cursors[at.UP_NOW] = row
    available = rows[row, at.UP] == 1
    total = up_seconds(rows, row, t)

    day = max(start, t - DAY_S)
    day_row = advance_cursor(rows, cursors[at.UP_DAY], day)
    cursors[at.UP_DAY] = day_row
    ratio = 1.0 if available else 0.0
    if t > day:
        ratio = (total - up_seconds(rows, day_row, day)) / (t - day)

    week = max(start, t - WEEK_S)
    week_row = advance_cursor(rows, cursors[at.UP_WEEK], week)
    cursors[at.UP_WEEK] = week_row
    spells = rows[row, at.UP_STARTS] - rows[week_row, at.UP_STARTS] + rows[week_row, at.UP]
    mean_up = 0.0
    if spells > 0:
        mean_up = (total - up_seconds(rows, week_row, week)) / spells
    return available, ratio, float(t - rows[row, at.SINCE]), mean_up
