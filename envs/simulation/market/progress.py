"""How far a job is: work, checkpoints and what a stop would lose.

On an offer an execution is `work_s` seconds of work; after every `interval_s` of it a checkpoint takes
`dump_s` more (none after the last piece). Progress between offers is a share of the execution.
"""

from __future__ import annotations

import numpy as np

from envs.simulation.market import columns as at
from envs.simulation.market.compiled import inner
from envs.simulation.market.episodes import Episodes
from envs.simulation.market.state import Lanes, Offers
from envs.simulation.snapshot import Category


@inner
def work_left_s(execution_s: int, share_done: float) -> int:
    """Seconds of work left on an offer, at least 1."""
    return max(1, int(np.ceil((1.0 - share_done) * execution_s)))


@inner
def wall_s(work_s: int, interval_s: int, dump_s: int) -> int:
    """Seconds that the work takes with its checkpoints."""
    if interval_s <= 0:
        return work_s
    return work_s + dump_s * ((work_s - 1) // interval_s)


@inner
def worked_s(elapsed_s: int, interval_s: int, dump_s: int, checkpointed: bool) -> int:
    """Seconds of work after `elapsed_s`: all of it, or only what a periodic checkpoint holds."""
    if interval_s <= 0:
        return 0 if checkpointed else elapsed_s
    cycles = elapsed_s // (interval_s + dump_s)
    if checkpointed:
        return int(cycles * interval_s)
    return int(cycles * interval_s + min(interval_s, elapsed_s - cycles * (interval_s + dump_s)))


@inner
def work_done_s(lanes: Lanes, episodes: Episodes, lane: int, job: int, t: int, checkpointed: bool) -> int:
    """Seconds of work of a working job since `base`, as it stood at `t`."""
    slot = lanes.episode_of_lane[lane]
    elapsed = t - lanes.job[lane, job, at.WORK_START_S]
    interval, dump = episodes.job[slot, job, at.INTERVAL_S], episodes.job[slot, job, at.DUMP_S]
    return int(worked_s(elapsed, interval, dump, checkpointed))


@inner
def may_move(lanes: Lanes, episodes: Episodes, lane: int, job: int) -> bool:
    """Whether a job works on instances, or is a stream that waits there for its next batch."""
    phase = lanes.job[lane, job, at.PHASE]
    category = episodes.job[lanes.episode_of_lane[lane], job, at.CATEGORY]
    return bool(phase == at.WORKING or (phase == at.IDLE and category == Category.STREAMING.value))


@inner
def share_after(lanes: Lanes, lane: int, job: int, work_s: int) -> float:
    """Share of the execution done after `work_s` seconds of work on these instances."""
    base = lanes.job_real[lane, job, at.BASE]
    return float(base + (1.0 - base) * work_s / lanes.job[lane, job, at.WORK_S])


@inner
def share_done(lanes: Lanes, episodes: Episodes, lane: int, job: int) -> float:
    """Share of the current execution done now (working), else what is saved."""
    if lanes.job[lane, job, at.PHASE] == at.WORKING:
        work = work_done_s(lanes, episodes, lane, job, lanes.lane[lane, at.NOW_S], False)
        return float(share_after(lanes, lane, job, work))
    return float(lanes.job_real[lane, job, at.SAVED])


@inner
def set_up_s(
    episodes: Episodes,
    offers: Offers,
    slot: int,
    job: int,
    region: int,
    checkpoint_region: int,
    restart_s: int,
) -> int:
    """Seconds from running instances to work: set-up, input data, and the checkpoint if there is one."""
    home, size = episodes.job[slot, job, at.HOME], episodes.job_real[slot, job]
    transfer = size[at.DATA_GB] * offers.seconds_per_gb[home, region]
    if checkpoint_region >= 0:
        transfer += size[at.CHECKPOINT_GB] * offers.seconds_per_gb[checkpoint_region, region]
    return int(restart_s + np.ceil(transfer))
