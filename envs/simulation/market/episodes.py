"""The data of episodes (jobs, prices, availability) as padded arrays in slots that lanes share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from spotweave.envs.simulation.compiled import inner
from spotweave.envs.simulation.market import columns as at
from spotweave.envs.simulation.market.state import CHARGES_PER_USD, NEVER, Lanes
from spotweave.envs.simulation.series import Floats, Ints, StepSeries
from spotweave.envs.simulation.world import WorldError


@dataclass(frozen=True)
class Tasks:
    """What is particular to n tasks of federated applications; rows of other jobs hold their own row and 0.

    An application's rows are its server, then its clients; they arrive together. `Jobs.executions` are its
    rounds, `Jobs.standard_s` an epoch (of the server: an aggregation); the server's `Jobs.allowance_s` is
    the time allowed for all of it (0: no deadline).
    """

    server: Ints  # (n,) row of the application's server
    clients: Ints  # (n,) clients of the application
    cold_s: Ints  # (n,) what a client's first epoch on an instance takes longer
    budget_usd: Floats  # (n,) of a client, 0 without one
    whole_s: Ints  # (n,) of a server: standard time of the whole application


@dataclass(frozen=True)
class Steps:
    """Which of n jobs belong together. The rows of a bag or workflow follow each other and arrive together.

    Attributes:
        needed_from, needed_end: (n,) a step waits for the rows in [from, end); equal where it waits for none.
        last: (n,) last row of its bag or workflow; of other jobs their own row.
    """

    needed_from: Ints
    needed_end: Ints
    last: Ints


@dataclass(frozen=True)
class Jobs:
    """n jobs by arrival; times in seconds, the arrival counted from the episode's start.

    Attributes:
        arrival_s: (n,) not decreasing, >= 0.
        category: (n,) `Category`.
        executors: (n,) gang size.
        standard_s: (n,) time of one execution at the expected hetero factor.
        expected_hetero, sensitivity: (n,) Liu 2022, section 5.3.
        executions: (n,) batches of a streaming job, else 1.
        period_s: (n,) between batches, else 0.
        allowance_s: (n,) a batch is late after due + allowance; for a time-critical job deadline - arrival.
        data_gb: (n,) input, read from region `home`.
        checkpoint_gb: (n,).
        interval_s: (n,) work between checkpoints, 0 without.
        dump_s: (n,) to write one checkpoint.
        home: (n,) region number.
        execution_s: (n, C) time of one execution on each offer.
        tasks: more about tasks of federated applications, where there are any.
        steps: which jobs are tasks of bags or steps of workflows, where any are.
    """

    arrival_s: Ints
    category: Ints
    executors: Ints
    standard_s: Ints
    expected_hetero: Ints
    sensitivity: Ints
    executions: Ints
    period_s: Ints
    allowance_s: Ints
    data_gb: Floats
    checkpoint_gb: Floats
    interval_s: Ints
    dump_s: Ints
    home: Ints
    execution_s: Ints
    tasks: Tasks | None = None
    steps: Steps | None = None


@dataclass(frozen=True)
class EpisodeData:
    """Everything drawn for one episode; times of the series count from the episode's start.

    Attributes:
        jobs: the workload.
        availability: C series (1.0 = a launch could succeed) that begin at `history_s`.
        price_usd_hour: C series that begin at or before 0.
        on_demand_usd_hour: (C,) price of the same type on demand in that region, 0 on owned clusters.
        history_s: <= 0, how far back availability is known.
        launch_key, revocation_key: stream keys of the counter-based draws.
        origin_s: where the episode starts on the recording's clock.
    """

    jobs: Jobs
    availability: tuple[StepSeries, ...]
    price_usd_hour: tuple[StepSeries, ...]
    on_demand_usd_hour: Floats
    history_s: int
    launch_key: int
    revocation_key: int
    origin_s: int


class Episodes(NamedTuple):
    """S slots of episode data: M jobs, C offers, at most K changes of a series.

    The columns of the last axes are named in `columns`.
    """

    n_jobs: Ints  # (S,)
    history_s: Ints  # (S,)
    keys: NDArray[np.uint64]  # (S, 2) of launches and of revocations
    job: Ints  # (S, M, columns)
    job_real: Floats  # (S, M, columns)
    execution_s: Ints  # (S, M, C)
    on_demand_usd: Floats  # (S, C)
    up: Ints  # (S, C, K, columns)
    price: Ints  # (S, C, K, columns)


_JOB_COLUMNS = {
    "arrival_s": at.ARRIVAL_S,
    "category": at.CATEGORY,
    "executors": at.EXECUTORS,
    "standard_s": at.STANDARD_S,
    "expected_hetero": at.EXPECTED_HETERO,
    "sensitivity": at.SENSITIVITY,
    "executions": at.EXECUTIONS,
    "period_s": at.PERIOD_S,
    "allowance_s": at.ALLOWANCE_S,
    "interval_s": at.INTERVAL_S,
    "dump_s": at.DUMP_S,
    "home": at.HOME,
}
_JOB_REALS = {"data_gb": at.DATA_GB, "checkpoint_gb": at.CHECKPOINT_GB}


def empty_episodes(slots: int, max_jobs: int, n_offers: int, changes: int) -> Episodes:
    """Slots without episodes."""
    return Episodes(
        n_jobs=np.zeros(slots, np.int64),
        history_s=np.zeros(slots, np.int64),
        keys=np.zeros((slots, 2), np.uint64),
        job=np.zeros((slots, max_jobs, at.EPISODE_JOB_COLUMNS), np.int64),
        job_real=np.zeros((slots, max_jobs, len(_JOB_REALS)), np.float64),
        execution_s=np.zeros((slots, max_jobs, n_offers), np.int64),
        on_demand_usd=np.zeros((slots, n_offers), np.float64),
        up=np.zeros((slots, n_offers, changes, at.UP_STARTS + 1), np.int64),
        price=np.zeros((slots, n_offers, changes, at.PRICE_INTEGRAL + 1), np.int64),
    )


def grow(episodes: Episodes, slots: int, changes: int) -> Episodes:
    """A copy with room for at least that many slots and changes."""
    old_slots, n_offers, old_changes, _ = episodes.up.shape
    larger = empty_episodes(max(slots, old_slots), episodes.job.shape[1], n_offers, max(changes, old_changes))
    arrays = cast("tuple[NDArray[Any], ...]", episodes)
    for source, target in zip(arrays, cast("tuple[NDArray[Any], ...]", larger), strict=True):
        target[tuple(slice(0, n) for n in source.shape)] = source
    return larger


def changes_of(data: EpisodeData) -> int:
    """Rows that the longest series of an episode needs."""
    return max(len(series.times_s) for series in (*data.availability, *data.price_usd_hour))


def store(episodes: Episodes, slot: int, data: EpisodeData) -> None:
    """Write an episode into a slot that is large enough."""
    n = len(data.jobs.arrival_s)
    episodes.n_jobs[slot] = n
    episodes.history_s[slot] = data.history_s
    episodes.keys[slot] = data.launch_key, data.revocation_key
    for name, column in _JOB_COLUMNS.items():
        episodes.job[slot, :n, column] = getattr(data.jobs, name)
    for name, column in _JOB_REALS.items():
        episodes.job_real[slot, :n, column] = getattr(data.jobs, name)
    _store_tasks(episodes.job[slot, :n], data.jobs.tasks)
    _store_steps(episodes.job[slot, :n], data.jobs.steps)
    episodes.execution_s[slot, :n] = data.jobs.execution_s
    episodes.on_demand_usd[slot] = data.on_demand_usd_hour
    for c, (availability, price) in enumerate(zip(data.availability, data.price_usd_hour, strict=True)):
        _store_availability(episodes.up[slot, c], availability, data.history_s)
        _store_price(episodes.price[slot, c], price)


def _store_tasks(rows: Ints, tasks: Tasks | None) -> None:
    if tasks is None:
        rows[:, at.SERVER] = np.arange(len(rows))
        rows[:, at.CLIENTS : at.WHOLE_S + 1] = 0
        return
    rows[:, at.SERVER] = tasks.server
    rows[:, at.CLIENTS] = tasks.clients
    rows[:, at.COLD_S] = tasks.cold_s
    rows[:, at.BUDGET] = np.rint(tasks.budget_usd * CHARGES_PER_USD)
    rows[:, at.WHOLE_S] = tasks.whole_s


def _store_steps(rows: Ints, steps: Steps | None) -> None:
    if steps is None:
        rows[:, at.NEEDED_FROM : at.NEEDED_END + 1] = 0
        rows[:, at.LAST_ROW] = np.arange(len(rows))
        return
    rows[:, at.NEEDED_FROM], rows[:, at.NEEDED_END] = steps.needed_from, steps.needed_end
    rows[:, at.LAST_ROW] = steps.last


def _store_availability(rows: Ints, series: StepSeries, history_s: int) -> None:
    if len(series.values) == 1:
        up_now = int(series.values[0] > 0.5)
        rows[0] = history_s, NEVER, up_now, 0, up_now
        return
    up = series.values > 0.5
    kept = np.concatenate([[True], up[1:] != up[:-1]])
    since, state = series.times_s[kept], up[kept].astype(np.int64)
    k = len(since)
    if k > 1 and since[1] <= history_s:
        raise WorldError(f"availability changes at {since[1]} s, before its history starts at {history_s} s")
    rows[:k, at.SINCE] = since
    rows[0, at.SINCE] = history_s
    rows[: k - 1, at.UNTIL] = since[1:]
    rows[k - 1, at.UNTIL] = NEVER
    rows[:k, at.UP] = state
    lengths = np.diff(rows[:k, at.SINCE])
    rows[0, at.UP_SECONDS] = 0
    rows[1:k, at.UP_SECONDS] = np.cumsum(lengths * state[:-1])
    rows[:k, at.UP_STARTS] = np.cumsum(state)  # rows alternate, so every 1 begins a spell


def _store_price(rows: Ints, series: StepSeries) -> None:
    since = series.times_s
    k = len(since)
    if k == 1:
        rows[0] = since[0], NEVER, round(float(series.values[0]) * 1e6), 0
        return
    micro = np.rint(series.values * 1e6).astype(np.int64)
    rows[:k, at.SINCE] = since
    rows[: k - 1, at.UNTIL] = since[1:]
    rows[k - 1, at.UNTIL] = NEVER
    rows[:k, at.PRICE] = micro
    rows[0, at.PRICE_INTEGRAL] = 0
    rows[1:k, at.PRICE_INTEGRAL] = np.cumsum(np.diff(since) * micro[:-1])


# Prices and availability as they hold at a moment: cursors over an episode's series.

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
