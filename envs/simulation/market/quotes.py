"""Prices and availability as they hold at a moment: cursors over an episode's series."""

from __future__ import annotations

from envs.simulation.market import columns as at
from envs.simulation.market.compiled import inner
from envs.simulation.market.episodes import Episodes
from envs.simulation.market.state import Ints, Lanes

DAY_S = 86_400
WEEK_S = 7 * DAY_S


@inner
def advance_cursor(times: Ints, row: int, t: int) -> int:
    """The row that holds at `t`, found by walking forward from `row`."""
    while row + 1 < times.shape[0] and times[row + 1] <= t:
        row += 1
    return row


@inner
def sync_availability(lanes: Lanes, episodes: Episodes, lane: int, c: int, t: int) -> bool:
    """Bring the cursor of an offer to `t`; whether it is available."""
    slot = lanes.episode_of_lane[lane]
    row = advance_cursor(episodes.market[slot, c, at.UP_TIMES], lanes.offer[lane, c, at.UP_NOW], t)
    lanes.offer[lane, c, at.UP_NOW] = row
    return bool(episodes.market[slot, c, at.UP, row] == 1)


@inner
def price_integral(lanes: Lanes, episodes: Episodes, lane: int, c: int, t: int) -> int:
    """(micro-dollars per executor-hour) x seconds from the series' start to `t`, for t not before now."""
    slot = lanes.episode_of_lane[lane]
    times = episodes.market[slot, c, at.PRICE_TIMES]
    now_row = advance_cursor(times, lanes.offer[lane, c, at.PRICE_NOW], lanes.lane[lane, at.NOW_S])
    lanes.offer[lane, c, at.PRICE_NOW] = now_row
    row = advance_cursor(times, now_row, t)
    return int(
        episodes.market[slot, c, at.PRICE_INTEGRAL, row]
        + episodes.market[slot, c, at.PRICE, row] * (t - times[row])
    )


@inner
def up_seconds(episodes: Episodes, slot: int, c: int, row: int, t: int) -> int:
    """Seconds up from the history's start to `t`, which lies in `row`."""
    running = (t - episodes.market[slot, c, at.UP_TIMES, row]) * episodes.market[slot, c, at.UP, row]
    return int(episodes.market[slot, c, at.UP_SECONDS, row] + running)


@inner
def recent_availability(
    lanes: Lanes, episodes: Episodes, lane: int, c: int
) -> tuple[bool, float, float, float]:
    """(available, share up in the latest 24 h, seconds since the change, mean up-spell of 7 days).

    Only what is known counts: both look back no further than the history's start. An up-spell counts with
    the part that lies inside the 7 days.
    """
    slot = lanes.episode_of_lane[lane]
    t = lanes.lane[lane, at.NOW_S]
    start = episodes.history_s[slot]
    times = episodes.market[slot, c, at.UP_TIMES]
    row = advance_cursor(times, lanes.offer[lane, c, at.UP_NOW], t)
    lanes.offer[lane, c, at.UP_NOW] = row
    available = episodes.market[slot, c, at.UP, row] == 1
    total = up_seconds(episodes, slot, c, row, t)

    day = max(start, t - DAY_S)
    day_row = advance_cursor(times, lanes.offer[lane, c, at.UP_DAY], day)
    lanes.offer[lane, c, at.UP_DAY] = day_row
    ratio = 1.0 if available else 0.0
    if t > day:
        ratio = (total - up_seconds(episodes, slot, c, day_row, day)) / (t - day)

    week = max(start, t - WEEK_S)
    week_row = advance_cursor(times, lanes.offer[lane, c, at.UP_WEEK], week)
    lanes.offer[lane, c, at.UP_WEEK] = week_row
    spells = episodes.market[slot, c, at.UP_STARTS, row] - episodes.market[slot, c, at.UP_STARTS, week_row]
    spells += episodes.market[slot, c, at.UP, week_row]
    mean_up = 0.0
    if spells > 0:
        mean_up = (total - up_seconds(episodes, slot, c, week_row, week)) / spells
    return available, ratio, float(t - times[row]), mean_up
