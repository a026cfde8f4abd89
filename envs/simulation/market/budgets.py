"""Budgets of federated clients: never exceeded, and without the means for another round a client leaves.

An instance of a client ends in the last second that its budget pays for.
"""

from __future__ import annotations

from envs.simulation.market import columns as at
from envs.simulation.market.applications import close_server, end_round, give_back
from envs.simulation.market.billing import closing_charge, egress_charge
from envs.simulation.market.compiled import inner
from envs.simulation.market.episodes import Episodes
from envs.simulation.market.execution import close_job
from envs.simulation.market.members import is_client, notify
from envs.simulation.market.progress import set_up_s, share_done, wall_s, work_left_s
from envs.simulation.market.quotes import sync_price
from envs.simulation.market.spending import budget_left
from envs.simulation.market.state import (
    Lanes,
    Offers,
    Rules,
)

_ROUNDING = 1e-5
"""Relative tolerance between amounts as compared here (float64) and as shown (float32)."""


@inner
def budget_ends(lanes: Lanes, episodes: Episodes, offers: Offers, lane: int, client: int) -> None:
    """The last second that a client's budget pays for is over; that was foreseen, so its work is saved."""
    if lanes.job[lane, client, at.PHASE] == at.WORKING:
        lanes.job_real[lane, client, at.SAVED] = share_done(lanes, episodes, lane, client)
        region = offers.fixed[lanes.job[lane, client, at.OFFER], at.REGION]
        lanes.job[lane, client, at.CHECKPOINT_REGION] = region
    give_back(lanes, episodes, offers, lane, client)
    notify(lanes, episodes, lane, client)


@inner
def round_charge(
    lanes: Lanes, episodes: Episodes, offers: Offers, rules: Rules, lane: int, client: int, c: int
) -> float:
    """Charges at the price of now for data, start and the next epoch of a client on a fresh instance."""
    slot = lanes.episode_of_lane[lane]
    region, checkpoint = offers.fixed[c, at.REGION], lanes.job[lane, client, at.CHECKPOINT_REGION]
    charge = float(egress_charge(episodes, offers, slot, client, region, checkpoint))
    work = work_left_s(episodes.execution_s[slot, client, c], lanes.job_real[lane, client, at.SAVED])
    work += episodes.job[slot, client, at.COLD_S]
    seconds = wall_s(work, episodes.job[slot, client, at.INTERVAL_S], episodes.job[slot, client, at.DUMP_S])
    seconds += offers.fixed[c, at.LAUNCH_S]
    seconds += set_up_s(episodes, offers, slot, client, region, checkpoint, rules.restart_s)
    price = episodes.price[slot, c, sync_price(lanes, episodes, lane, c), at.PRICE]
    return float(charge + episodes.job[slot, client, at.EXECUTORS] * price * seconds)


@inner
def affordable(
    lanes: Lanes, episodes: Episodes, offers: Offers, rules: Rules, lane: int, client: int, c: int
) -> bool:
    """Whether what is left of a budget, once the open bill is paid, pays a round on a fresh instance."""
    left = budget_left(lanes, episodes, lane, client)
    if lanes.job[lane, client, at.PHASE] == at.IDLE:
        left -= closing_charge(lanes, episodes, offers, lane, client)
    return bool(round_charge(lanes, episodes, offers, rules, lane, client, c) <= left * (1.0 - _ROUNDING))


@inner
def dismiss_broke(lanes: Lanes, episodes: Episodes, offers: Offers, rules: Rules, lane: int) -> None:
    """Clients that would ask for a place, and whose budget pays another round nowhere, leave."""
    slot = lanes.episode_of_lane[lane]
    for k in range(lanes.lane[lane, at.OPEN_N]):
        job = lanes.open[lane, k]
        asks = lanes.when[lane, job, at.DUE_S] <= lanes.lane[lane, at.NOW_S]
        if not asks or lanes.job[lane, job, at.PHASE] != at.BUFFERED:
            continue
        if not is_client(episodes, slot, job) or episodes.job[slot, job, at.BUDGET] == 0:
            continue
        broke = True
        for c in range(offers.fixed.shape[0]):
            if affordable(lanes, episodes, offers, rules, lane, job, c):
                broke = False
                break
        if broke:
            leave(lanes, episodes, offers, lane, job)


@inner
def leave(lanes: Lanes, episodes: Episodes, offers: Offers, lane: int, client: int) -> None:
    """A client takes no further part; without any client the application ends, and counts as late."""
    slot = lanes.episode_of_lane[lane]
    server = episodes.job[slot, client, at.SERVER]
    lanes.counters[lane, at.CLIENTS_LEFT] += 1
    lanes.job[lane, client, at.LEFT] = 1
    close_job(lanes, lane, client)
    for other in range(server + 1, server + 1 + episodes.job[slot, server, at.CLIENTS]):
        if lanes.job[lane, other, at.PHASE] != at.DONE:
            end_round(lanes, episodes, lane, server)
            notify(lanes, episodes, lane, client)
            return
    lanes.job[lane, server, at.LEFT] = 1
    if lanes.job[lane, server, at.MISSES] == 0:
        lanes.job[lane, server, at.MISSES] = 1
        lanes.counters[lane, at.MISSES_TC] += 1
    close_server(lanes, episodes, offers, lane, server)
