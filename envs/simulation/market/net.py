"""The safety net over jobs on spot capacity, which no policy is asked about (see `guards.safety`).

A job that is caught leaves at once and goes on from its latest periodic checkpoint.
"""

from __future__ import annotations

import numpy as np

from envs.simulation import columns as col
from envs.simulation.guards.safety import fallback, likely_to_end, spare_s
from envs.simulation.market import columns as at
from envs.simulation.market.billing import close_bill, share_after, work_done_s
from envs.simulation.market.compiled import inner
from envs.simulation.market.episodes import Episodes
from envs.simulation.market.execution import vacate
from envs.simulation.market.interruption import keep_checkpoint
from envs.simulation.market.observation import observe_job, observe_offer
from envs.simulation.market.placement import arrive, lost_executor_s
from envs.simulation.market.state import NEVER, Lanes, Offers, Rules
from envs.simulation.snapshot import FloatArray, derive_into

LOOK_AGAIN_S = 300
"""How soon the net looks again at a job that it left on spot capacity."""


@inner
def watch_deadlines(lanes: Lanes, episodes: Episodes, offers: Offers, rules: Rules, lane: int) -> None:
    """Take the jobs off spot capacity that have no more time to spare there."""
    for k in range(lanes.lane[lane, at.OPEN_N]):
        job = lanes.open[lane, k]
        if lanes.when[lane, job, at.NET_S] <= lanes.lane[lane, at.NOW_S]:
            place = look_at(lanes, episodes, offers, rules, lane, job)
            if place >= 0:
                catch(lanes, episodes, offers, rules, lane, job, place)


@inner
def look_at(lanes: Lanes, episodes: Episodes, offers: Offers, rules: Rules, lane: int, job: int) -> int:
    """Offer that a job must take now, or -1; then the time of its next check is set."""
    phase, t = lanes.job[lane, job, at.PHASE], lanes.lane[lane, at.NOW_S]
    slot, n_offers = lanes.episode_of_lane[lane], offers.fixed.shape[0]
    left_s = episodes.job[slot, job, at.ARRIVAL_S] + episodes.job[slot, job, at.ALLOWANCE_S] - t
    if phase not in (at.LAUNCHING, at.SETTING_UP, at.WORKING) or left_s <= 0:
        lanes.when[lane, job, at.NET_S] = NEVER
        return -1
    clusters, jobs, pairs = lanes.net_clusters[lane], lanes.net_job[lane], lanes.net_pairs[lane]
    mask = lanes.net_mask[lane]
    for c in range(n_offers):  # what is told of other spot offers is not read
        if offers.fixed[c, at.SPOT] == 0 or c == lanes.job[lane, job, at.OFFER]:
            observe_offer(lanes, episodes, offers, lane, c, clusters[c])
        clusters[c, col.IS_SPOT] = offers.fixed[c, at.SPOT]
    saved = lanes.job_real[lane, job, at.SAVED]
    if phase == at.WORKING:
        saved = share_after(lanes, lane, job, work_done_s(lanes, episodes, lane, job, t, True))
    jobs[0, :] = 0.0
    pairs[0, :, :] = 0.0
    observe_job(lanes, episodes, offers, rules, lane, job, jobs[0], pairs[0], saved)
    derive_into(clusters, jobs, pairs, True, mask)
    place = fallback(clusters, pairs[0], mask)
    if place == n_offers:  # everything is full, or too slow: with the next event it is looked at again
        return -1
    spare = spare_s(pairs[0, place, col.DEADLINE_S], pairs[0, place, col.FINISH_S], rules.guards)
    if spare <= 0.0:
        if likely_to_end(
            clusters[lanes.job[lane, job, at.OFFER]], left_on_spot_s(lanes, lane, job, pairs[0]), rules.guards
        ):
            lanes.when[lane, job, at.NET_S] = t + LOOK_AGAIN_S
            return -1
        return place
    lanes.when[lane, job, at.NET_S] = t + int(np.ceil(spare))
    return -1


@inner
def left_on_spot_s(lanes: Lanes, lane: int, job: int, pairs: FloatArray) -> float:
    """Seconds until a job ends where it is."""
    phase_s = float(lanes.when[lane, job, at.EVENT_S] - lanes.lane[lane, at.NOW_S])
    if lanes.job[lane, job, at.PHASE] == at.WORKING:
        return phase_s
    row = pairs[lanes.job[lane, job, at.OFFER]]
    set_up_s = row[col.TRANSFER_S] if lanes.job[lane, job, at.PHASE] == at.LAUNCHING else 0.0
    return float(phase_s + set_up_s + row[col.EXECUTION_S])


@inner
def catch(
    lanes: Lanes, episodes: Episodes, offers: Offers, rules: Rules, lane: int, job: int, place: int
) -> None:
    """A job leaves its spot capacity for another offer."""
    phase, slot = lanes.job[lane, job, at.PHASE], lanes.episode_of_lane[lane]
    if phase == at.WORKING:
        keep_checkpoint(lanes, episodes, offers, lane, job)
        elapsed = lanes.lane[lane, at.NOW_S] - lanes.job[lane, job, at.WORK_START_S]
        lanes.counters[lane, at.LOST_EXECUTOR_S] += lost_executor_s(lanes, episodes, slot, lane, job, elapsed)
    if phase != at.LAUNCHING:
        close_bill(lanes, episodes, offers, lane, job, False)
    vacate(lanes, episodes, lane, job)
    lanes.when[lane, job, at.NET_S] = NEVER
    counted = offers.fixed[place, at.QUEUES] == 0
    if counted:
        lanes.offer[lane, place, at.USED] += episodes.job[slot, job, at.EXECUTORS]
    arrive(lanes, episodes, offers, rules, lane, job, place, counted)
