"""What running, hibernating and moving data costs.

Per second, at least 60 s, at the price of each moment; an instance that the provider interrupts early may be
free (AWS: within the first hour). All amounts are exact integers ("charges", see `state.CHARGES_PER_USD`).
"""

from __future__ import annotations

import numpy as np

from spotweave.envs.simulation.compiled import inner
from spotweave.envs.simulation.market import columns as at
from spotweave.envs.simulation.market.episodes import Episodes, price_integral
from spotweave.envs.simulation.market.members import is_client, settle_idle
from spotweave.envs.simulation.market.state import NEVER, Lanes, Offers, log_event
from spotweave.envs.simulation.snapshot import Category

MINIMUM_S = 60


@inner
def open_bill(lanes: Lanes, episodes: Episodes, lane: int, job: int) -> None:
    """Instances of a job begin to run now."""
    t = lanes.lane[lane, at.NOW_S]
    lanes.job[lane, job, at.BILLED_FROM_S] = t
    c = lanes.job[lane, job, at.OFFER]
    lanes.job[lane, job, at.INTEGRAL_FROM] = price_integral(lanes, episodes, lane, c, t)


@inner
def close_bill(
    lanes: Lanes, episodes: Episodes, offers: Offers, lane: int, job: int, by_provider: bool
) -> None:
    """Instances of a job end now, by the provider's interruption or by us."""
    slot = lanes.episode_of_lane[lane]
    t = lanes.lane[lane, at.NOW_S]
    c = lanes.job[lane, job, at.OFFER]
    executors = episodes.job[slot, job, at.EXECUTORS]
    start = lanes.job[lane, job, at.BILLED_FROM_S]
    uptime = t - start
    idle = 0
    if is_client(episodes, slot, job):
        settle_idle(lanes, episodes, lane, job)
        idle = lanes.job[lane, job, at.IDLE_CHARGE]
        lanes.job[lane, job, at.IDLE_CHARGE] = 0
        lanes.when[lane, job, at.LATE_S] = NEVER
    log_event(lanes, lane, at.SEGMENT, job, c, start, 1 if lanes.job[lane, job, at.MISSES] > 0 else 0)
    if offers.fixed[c, at.QUEUES] == 1:
        lanes.counters[lane, at.OWNED_EXECUTOR_S] += executors * uptime
        lanes.job[lane, job, at.OWNED_S] += executors * uptime
        return
    if by_provider and uptime < offers.fixed[c, at.FREE_FIRST_S]:
        return
    charge = closing_charge(lanes, episodes, offers, lane, job)
    lanes.job[lane, job, at.CHARGE] += charge
    lanes.counters[lane, at.SPOT_CHARGES if offers.fixed[c, at.SPOT] == 1 else at.ON_DEMAND_CHARGES] += charge
    lanes.counters[lane, at.IDLE_CHARGES] += idle


@inner
def owned_executor_s(lanes: Lanes, episodes: Episodes, offers: Offers, lane: int, job: int) -> int:
    """Executor-seconds that a job has used on owned clusters so far."""
    closed = int(lanes.job[lane, job, at.OWNED_S])
    phase, c = lanes.job[lane, job, at.PHASE], lanes.job[lane, job, at.OFFER]
    if phase in (at.SETTING_UP, at.WORKING, at.IDLE, at.MOVING) and offers.fixed[c, at.QUEUES] == 1:
        executors = episodes.job[lanes.episode_of_lane[lane], job, at.EXECUTORS]
        closed += int(executors * (lanes.lane[lane, at.NOW_S] - lanes.job[lane, job, at.BILLED_FROM_S]))
    return closed


@inner
def closing_charge(lanes: Lanes, episodes: Episodes, offers: Offers, lane: int, job: int) -> int:
    """What the open bill of a job comes to if its instances end now."""
    c = lanes.job[lane, job, at.OFFER]
    if offers.fixed[c, at.QUEUES] == 1:
        return 0
    end = max(lanes.lane[lane, at.NOW_S], lanes.job[lane, job, at.BILLED_FROM_S] + MINIMUM_S)
    integral = price_integral(lanes, episodes, lane, c, end) - lanes.job[lane, job, at.INTEGRAL_FROM]
    return int(episodes.job[lanes.episode_of_lane[lane], job, at.EXECUTORS] * integral)


@inner
def disk_charge(lanes: Lanes, episodes: Episodes, offers: Offers, lane: int, job: int) -> int:
    """What the disks of a job's hibernated instances cost, from the hibernation until now."""
    slot = lanes.episode_of_lane[lane]
    seconds = lanes.lane[lane, at.NOW_S] - lanes.job[lane, job, at.PAUSED_S]
    rate = offers.fixed[lanes.job[lane, job, at.OFFER], at.DISK_CHARGE_S]
    return int(episodes.job[slot, job, at.EXECUTORS] * rate * seconds)


@inner
def charge_disk(lanes: Lanes, episodes: Episodes, offers: Offers, lane: int, job: int) -> None:
    """Pay for the disks as a hibernation ends."""
    charge = disk_charge(lanes, episodes, offers, lane, job)
    lanes.job[lane, job, at.CHARGE] += charge
    lanes.counters[lane, at.DISK_CHARGES] += charge


@inner
def egress_charge(
    episodes: Episodes, offers: Offers, slot: int, job: int, region: int, checkpoint_region: int
) -> int:
    """Moving a job's input, and its checkpoint (if `checkpoint_region` >= 0), into a region."""
    home, size = episodes.job[slot, job, at.HOME], episodes.job_real[slot, job]
    charge = size[at.DATA_GB] * offers.egress_charge_gb[home, region]
    if checkpoint_region >= 0:
        charge += size[at.CHECKPOINT_GB] * offers.egress_charge_gb[checkpoint_region, region]
    return int(charge + 0.5)


@inner
def charge_egress(lanes: Lanes, episodes: Episodes, offers: Offers, lane: int, job: int) -> None:
    """Pay for the data that a job reads as it is set up on its offer."""
    slot = lanes.episode_of_lane[lane]
    region = offers.fixed[lanes.job[lane, job, at.OFFER], at.REGION]
    charge = egress_charge(episodes, offers, slot, job, region, lanes.job[lane, job, at.CHECKPOINT_REGION])
    lanes.job[lane, job, at.CHARGE] += charge
    lanes.counters[lane, at.EGRESS_CHARGES] += charge


@inner
def accrued_charge(lanes: Lanes, episodes: Episodes, offers: Offers, lane: int, job: int) -> int:
    """What a job owes at this moment beyond its closed bills."""
    phase = lanes.job[lane, job, at.PHASE]
    if phase == at.HIBERNATED:
        return int(disk_charge(lanes, episodes, offers, lane, job))
    c = lanes.job[lane, job, at.OFFER]
    if phase in (at.SETTING_UP, at.WORKING, at.IDLE, at.MOVING) and offers.fixed[c, at.QUEUES] == 0:
        integral = price_integral(lanes, episodes, lane, c, lanes.lane[lane, at.NOW_S])
        executors = episodes.job[lanes.episode_of_lane[lane], job, at.EXECUTORS]
        return int(executors * (integral - lanes.job[lane, job, at.INTEGRAL_FROM]))
    return 0


# How far a job is: work, checkpoints and what a stop would lose.
#
# On an offer an execution is `work_s` seconds of work; after every `interval_s` of it a checkpoint takes
# `dump_s` more (none after the last piece). Progress between offers is a share of the execution.


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
