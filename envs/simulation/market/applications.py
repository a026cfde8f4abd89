"""Federated applications: rounds that begin, end, are interrupted, and clients that leave.

A round begins for a client when the server runs, the previous round is aggregated and the client's instance
is ready. It ends when the last client has delivered: then the server aggregates. A client that has delivered
is idle and is asked whether it keeps its instance, moves or releases it. What a server that is interrupted
without sufficient notice had received in the round is lost, unless the client still holds its instance: then
it delivers again.
"""

from __future__ import annotations

import numpy as np

from spotweave.envs.simulation.compiled import inner
from spotweave.envs.simulation.market import columns as at
from spotweave.envs.simulation.market.episodes import Episodes, sync_price
from spotweave.envs.simulation.market.execution import close_job, return_to_buffer, vacate, work_for
from spotweave.envs.simulation.market.forecast import asked_after_s, note_launch
from spotweave.envs.simulation.market.ledger import (
    charge_disk,
    close_bill,
    closing_charge,
    egress_charge,
    set_up_s,
    share_done,
    wall_s,
    work_left_s,
)
from spotweave.envs.simulation.market.members import (
    begin_idle,
    budget_left,
    is_client,
    notify,
    owes,
    server_is_up,
    settle_idle,
)
from spotweave.envs.simulation.market.state import EPOCH, NEVER, Lanes, Offers, Rules, uniform
from spotweave.envs.simulation.round_estimates import ASK_AGAIN_MOST_S, N_TIMES, WEIGHT, note_epoch


@inner
def member_ready(lanes: Lanes, episodes: Episodes, offers: Offers, rules: Rules, lane: int, job: int) -> None:
    """A task's instance is set up."""
    server = episodes.job[lanes.episode_of_lane[lane], job, at.SERVER]
    lanes.job[lane, job, at.PHASE] = at.IDLE
    lanes.job[lane, job, at.WARM] = 0
    note_launch(lanes, episodes, offers, lane, job)
    lanes.when[lane, job, at.EVENT_S] = NEVER
    if job == server:
        round_opens(lanes, episodes, offers, rules, lane, server)
        return
    begin_idle(lanes, episodes, lane, job)
    lanes.when[lane, job, at.DUE_S] = lanes.lane[lane, at.NOW_S] + int(ASK_AGAIN_MOST_S)
    go_on(lanes, episodes, offers, rules, lane, job)


@inner
def member_resumes(
    lanes: Lanes, episodes: Episodes, offers: Offers, rules: Rules, lane: int, job: int
) -> None:
    """A hibernated instance that had nothing to do runs again."""
    lanes.when[lane, job, at.EVENT_S] = NEVER
    server = episodes.job[lanes.episode_of_lane[lane], job, at.SERVER]
    if job == server:
        round_opens(lanes, episodes, offers, rules, lane, server)
        return
    begin_idle(lanes, episodes, lane, job)
    lanes.when[lane, job, at.DUE_S] = lanes.lane[lane, at.NOW_S]
    go_on(lanes, episodes, offers, rules, lane, job)


@inner
def round_opens(
    lanes: Lanes, episodes: Episodes, offers: Offers, rules: Rules, lane: int, server: int
) -> None:
    """The server waits for results: who holds one delivers, who can begin does, the others are asked."""
    slot = lanes.episode_of_lane[lane]
    notify(lanes, episodes, lane, server)
    for client in range(server + 1, server + 1 + episodes.job[slot, server, at.CLIENTS]):
        if lanes.job[lane, client, at.PHASE] == at.IDLE:
            go_on(lanes, episodes, offers, rules, lane, client)
    end_round(lanes, episodes, lane, server)


@inner
def go_on(lanes: Lanes, episodes: Episodes, offers: Offers, rules: Rules, lane: int, client: int) -> None:
    """A client with an idle instance delivers what it holds, or begins the epoch that it owes."""
    slot = lanes.episode_of_lane[lane]
    if not server_is_up(lanes, lane, episodes.job[slot, client, at.SERVER]):
        return
    if not owes(lanes, episodes, lane, client):
        return
    if lanes.job_real[lane, client, at.SAVED] >= 1.0:
        deliver(lanes, episodes, offers, lane, client)
    else:
        begin_epoch(lanes, episodes, rules, lane, client)


@inner
def begin_epoch(lanes: Lanes, episodes: Episodes, rules: Rules, lane: int, client: int) -> None:
    """Train; how long this epoch takes belongs to the client and the round and to nothing else."""
    slot = lanes.episode_of_lane[lane]
    settle_idle(lanes, episodes, lane, client)
    number = lanes.job[lane, client, at.EXECUTED] + 1
    luck = uniform(episodes.keys[slot, 0], client, number, EPOCH)
    usual = episodes.execution_s[slot, client, lanes.job[lane, client, at.OFFER]]
    execution = int(np.ceil(usual * (1.0 + rules.epoch_spread * (2.0 * luck - 1.0))))
    cold = episodes.job[slot, client, at.COLD_S] if lanes.job[lane, client, at.WARM] == 0 else 0
    work_for(lanes, episodes, lane, client, execution, cold)
    lanes.when[lane, client, at.DUE_S] = NEVER


@inner
def epoch_ends(
    lanes: Lanes, episodes: Episodes, offers: Offers, rules: Rules, lane: int, client: int
) -> None:
    """A client has its result; without a server it keeps it as a checkpoint."""
    slot = lanes.episode_of_lane[lane]
    state, t = lanes.job[lane, client], lanes.lane[lane, at.NOW_S]
    if lanes.job_real[lane, client, at.BASE] == 0.0:
        took = float(t - state[at.WORK_START_S])
        if state[at.WARM] == 0:
            took = max(1.0, took - episodes.job[slot, client, at.COLD_S])
        note_epoch(lanes.job_real[lane, client, at.TIMES : at.TIMES + N_TIMES], took, False, WEIGHT)
    state[at.WARM] = 1
    state[at.CHECKPOINT_REGION] = offers.fixed[state[at.OFFER], at.REGION]
    state[at.PHASE] = at.IDLE
    lanes.job_real[lane, client, at.SAVED] = 1.0
    lanes.when[lane, client, at.EVENT_S] = NEVER
    lanes.when[lane, client, at.DUE_S] = t
    begin_idle(lanes, episodes, lane, client)
    go_on(lanes, episodes, offers, rules, lane, client)


@inner
def deliver(lanes: Lanes, episodes: Episodes, offers: Offers, lane: int, client: int) -> None:
    """The server has a client's result; after its last one the client's instance ends."""
    slot = lanes.episode_of_lane[lane]
    lanes.job[lane, client, at.EXECUTED] += 1
    lanes.job_real[lane, client, at.SAVED] = 0.0
    lanes.when[lane, client, at.DUE_S] = lanes.lane[lane, at.NOW_S]
    if lanes.job[lane, client, at.EXECUTED] == episodes.job[slot, client, at.EXECUTIONS]:
        give_back(lanes, episodes, offers, lane, client)
        lanes.when[lane, client, at.DUE_S] = NEVER
    end_round(lanes, episodes, lane, episodes.job[slot, client, at.SERVER])


@inner
def end_round(lanes: Lanes, episodes: Episodes, lane: int, server: int) -> None:
    """Aggregate, if the server waits and nobody owes."""
    slot = lanes.episode_of_lane[lane]
    if lanes.job[lane, server, at.PHASE] != at.IDLE:
        return
    for client in range(server + 1, server + 1 + episodes.job[slot, server, at.CLIENTS]):
        if owes(lanes, episodes, lane, client):
            return
    saved = lanes.job_real[lane, server, at.SAVED]
    work = work_left_s(episodes.execution_s[slot, server, lanes.job[lane, server, at.OFFER]], saved)
    lanes.job[lane, server, at.PHASE] = at.WORKING
    lanes.job_real[lane, server, at.BASE] = saved
    lanes.job[lane, server, at.WORK_S] = work
    lanes.job[lane, server, at.WORK_START_S] = lanes.lane[lane, at.NOW_S]
    lanes.when[lane, server, at.EVENT_S] = lanes.lane[lane, at.NOW_S] + work


@inner
def aggregation_ends(
    lanes: Lanes, episodes: Episodes, offers: Offers, rules: Rules, lane: int, server: int
) -> None:
    """A round is complete; after the last one the application is."""
    slot = lanes.episode_of_lane[lane]
    lanes.job[lane, server, at.EXECUTED] += 1
    lanes.job_real[lane, server, at.SAVED] = 0.0
    lanes.counters[lane, at.ROUNDS] += 1
    region = offers.fixed[lanes.job[lane, server, at.OFFER], at.REGION]
    lanes.job[lane, server, at.CHECKPOINT_REGION] = region
    if lanes.job[lane, server, at.EXECUTED] < episodes.job[slot, server, at.EXECUTIONS]:
        lanes.job[lane, server, at.PHASE] = at.IDLE
        lanes.when[lane, server, at.EVENT_S] = NEVER
        round_opens(lanes, episodes, offers, rules, lane, server)
        return
    for client in range(server + 1, server + 1 + episodes.job[slot, server, at.CLIENTS]):
        if lanes.job[lane, client, at.PHASE] != at.DONE:
            close_job(lanes, lane, client)
    close_server(lanes, episodes, offers, lane, server)


@inner
def close_server(lanes: Lanes, episodes: Episodes, offers: Offers, lane: int, server: int) -> None:
    """The application is over, wherever its server is."""
    slot = lanes.episode_of_lane[lane]
    phase, c = lanes.job[lane, server, at.PHASE], lanes.job[lane, server, at.OFFER]
    response = lanes.lane[lane, at.NOW_S] - episodes.job[slot, server, at.ARRIVAL_S]
    done = lanes.job[lane, server, at.EXECUTED] / episodes.job[slot, server, at.EXECUTIONS]
    standard = episodes.job[slot, server, at.WHOLE_S] * done
    lanes.job_real[lane, server, at.DELAY] = (response - standard) / 3600.0
    if phase in (at.SETTING_UP, at.WORKING, at.IDLE):
        close_bill(lanes, episodes, offers, lane, server, False)
        vacate(lanes, episodes, lane, server)
    elif phase == at.LAUNCHING:
        vacate(lanes, episodes, lane, server)
    elif phase == at.HIBERNATED:
        charge_disk(lanes, episodes, offers, lane, server)
        lanes.offer[lane, c, at.PRESENT] -= 1
    close_job(lanes, lane, server)


@inner
def give_back(lanes: Lanes, episodes: Episodes, offers: Offers, lane: int, client: int) -> None:
    """A client with an idle instance ends it and is in the buffer."""
    close_bill(lanes, episodes, offers, lane, client, False)
    vacate(lanes, episodes, lane, client)
    return_to_buffer(lanes, lane, client)


@inner
def release(lanes: Lanes, episodes: Episodes, offers: Offers, rules: Rules, lane: int, client: int) -> None:
    """End an idle instance; the client asks again in time to be ready."""
    give_back(lanes, episodes, offers, lane, client)
    again = asked_after_s(lanes, episodes, offers, rules, lane, client)
    lanes.when[lane, client, at.DUE_S] = lanes.lane[lane, at.NOW_S] + again


@inner
def member_interrupted(lanes: Lanes, episodes: Episodes, lane: int, job: int, kept: bool) -> None:
    """The instance of a task stopped; `kept`: a server's results of the round survive."""
    if not kept and job == episodes.job[lanes.episode_of_lane[lane], job, at.SERVER]:
        lose_results(lanes, episodes, lane, job)
    notify(lanes, episodes, lane, job)


@inner
def lose_results(lanes: Lanes, episodes: Episodes, lane: int, server: int) -> None:
    """What the server had received in the round is gone: who is idle holds it still, others train again."""
    slot = lanes.episode_of_lane[lane]
    for client in range(server + 1, server + 1 + episodes.job[slot, server, at.CLIENTS]):
        state = lanes.job[lane, client]
        if state[at.PHASE] == at.DONE or state[at.EXECUTED] <= lanes.job[lane, server, at.EXECUTED]:
            continue
        state[at.EXECUTED] -= 1
        if state[at.PHASE] == at.IDLE:
            lanes.job_real[lane, client, at.SAVED] = 1.0
        else:
            lost = episodes.job[slot, client, at.EXECUTORS] * episodes.job[slot, client, at.STANDARD_S]
            lanes.counters[lane, at.LOST_EXECUTOR_S] += lost


# Budgets of federated clients: never exceeded, and without the means for another round a client leaves.
#
# An instance of a client ends in the last second that its budget pays for.

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
