"""What can be expected of a federated application: from measured times, before that from standard times."""

from __future__ import annotations

from spotweave.envs.simulation.compiled import inner
from spotweave.envs.simulation.market import columns as at
from spotweave.envs.simulation.market.episodes import Episodes, sync_price
from spotweave.envs.simulation.market.ledger import set_up_s, work_left_s
from spotweave.envs.simulation.market.members import owes, server_is_up
from spotweave.envs.simulation.market.state import Lanes, Offers, Rules
from spotweave.envs.simulation.round_estimates import (
    ERROR_WEIGHT,
    N_TIMES,
    UNKNOWN,
    WARM_S,
    ask_again_s,
    average,
    epoch_left_s,
    error_s,
    slack_s,
)


@inner
def note_launch(lanes: Lanes, episodes: Episodes, offers: Offers, lane: int, job: int) -> None:
    """An instance of a task is set up, whose launch took as long as it did."""
    state = lanes.job[lane, job]
    if offers.fixed[state[at.OFFER], at.QUEUES] == 1:
        return
    took = state[at.BILLED_FROM_S] - state[at.LAUNCHED_S]
    error = float(abs(took - offers.fixed[state[at.OFFER], at.LAUNCH_S]))
    real = lanes.job_real[lane, episodes.job[lanes.episode_of_lane[lane], job, at.SERVER]]
    real[at.LAUNCH_ERROR_S] = average(real[at.LAUNCH_ERROR_S], error, ERROR_WEIGHT)


@inner
def time_error_s(lanes: Lanes, episodes: Episodes, lane: int, job: int) -> float:
    """How far off the expected end of the slowest other client's epoch and the launches were lately."""
    slot = lanes.episode_of_lane[lane]
    server = episodes.job[slot, job, at.SERVER]
    first, n = server + 1, episodes.job[slot, server, at.CLIENTS]
    times = lanes.job_real[lane, first : first + n, at.TIMES : at.TIMES + N_TIMES]
    return float(error_s(times, lanes.job_real[lane, server, at.LAUNCH_ERROR_S], job - first))


@inner
def epoch_s(lanes: Lanes, episodes: Episodes, lane: int, client: int) -> float:
    """Expected seconds of a client's warm epoch; the standard time until one was measured."""
    measured = lanes.job_real[lane, client, at.TIMES + WARM_S]
    if measured != UNKNOWN:
        return float(measured)
    return float(episodes.job[lanes.episode_of_lane[lane], client, at.STANDARD_S])


@inner
def start_up_s(lanes: Lanes, episodes: Episodes, offers: Offers, rules: Rules, lane: int, job: int) -> float:
    """Expected seconds from a decision until the task's instance is ready, where it comes to, or soonest."""
    c = lanes.job[lane, job, at.OFFER]
    if c >= 0:
        return float(start_on_s(lanes, episodes, offers, rules, lane, job, c))
    least = start_on_s(lanes, episodes, offers, rules, lane, job, 0)
    for offer in range(1, offers.fixed.shape[0]):
        least = min(least, start_on_s(lanes, episodes, offers, rules, lane, job, offer))
    return float(least)


@inner
def start_on_s(
    lanes: Lanes, episodes: Episodes, offers: Offers, rules: Rules, lane: int, job: int, c: int
) -> float:
    """Expected seconds from a decision for an offer until the task's instance there is ready."""
    slot = lanes.episode_of_lane[lane]
    region, checkpoint = offers.fixed[c, at.REGION], lanes.job[lane, job, at.CHECKPOINT_REGION]
    fetched = set_up_s(episodes, offers, slot, job, region, checkpoint, rules.restart_s)
    return float(offers.fixed[c, at.LAUNCH_S] + fetched)


@inner
def fresh_s(lanes: Lanes, episodes: Episodes, lane: int, client: int, c: int) -> float:
    """Seconds of a client's next epoch on a fresh instance of an offer."""
    slot = lanes.episode_of_lane[lane]
    left = work_left_s(episodes.execution_s[slot, client, c], lanes.job_real[lane, client, at.SAVED])
    return float(left + episodes.job[slot, client, at.COLD_S])


@inner
def soonest_s(
    lanes: Lanes, episodes: Episodes, offers: Offers, rules: Rules, lane: int, client: int
) -> float:
    """Expected seconds until a client without an instance has delivered, where that is soonest.

    Were it slower than it can be, clients would wait for each other for ever: each would seem to have time.
    """
    least = start_on_s(lanes, episodes, offers, rules, lane, client, 0)
    least += fresh_s(lanes, episodes, lane, client, 0)
    for c in range(1, offers.fixed.shape[0]):
        finish = start_on_s(lanes, episodes, offers, rules, lane, client, c)
        least = min(least, finish + fresh_s(lanes, episodes, lane, client, c))
    return float(least)


@inner
def ready_s(lanes: Lanes, episodes: Episodes, offers: Offers, rules: Rules, lane: int, job: int) -> float:
    """Expected seconds until a task has a running instance, if it gets one as soon as can be."""
    phase = lanes.job[lane, job, at.PHASE]
    if phase in (at.IDLE, at.WORKING):
        return 0.0
    if phase == at.SETTING_UP:
        return float(lanes.when[lane, job, at.EVENT_S] - lanes.lane[lane, at.NOW_S])
    # How long a launch that is under way will take is not known before it ends.
    return float(start_up_s(lanes, episodes, offers, rules, lane, job))


@inner
def result_s(lanes: Lanes, episodes: Episodes, offers: Offers, rules: Rules, lane: int, client: int) -> float:
    """Expected seconds until a client that owes has delivered; at least 1."""
    state = lanes.job[lane, client]
    epoch = epoch_s(lanes, episodes, lane, client)
    cold = float(episodes.job[lanes.episode_of_lane[lane], client, at.COLD_S])
    if state[at.PHASE] == at.WORKING:
        needed = epoch * (1.0 - lanes.job_real[lane, client, at.BASE])
        needed += cold if state[at.WARM] == 0 else 0.0
        lasted = float(lanes.lane[lane, at.NOW_S] - state[at.WORK_START_S])
        return max(1.0, float(epoch_left_s(needed, lasted, True)))
    if state[at.OFFER] < 0:
        return float(soonest_s(lanes, episodes, offers, rules, lane, client))
    saved = lanes.job_real[lane, client, at.SAVED]
    needed = epoch * (1.0 - saved)
    if state[at.PHASE] != at.IDLE or (state[at.WARM] == 0 and saved < 1.0):
        needed += cold
    return max(1.0, float(needed + ready_s(lanes, episodes, offers, rules, lane, client)))


@inner
def round_left_s(
    lanes: Lanes, episodes: Episodes, offers: Offers, rules: Rules, lane: int, job: int
) -> float:
    """Expected seconds until all other clients have delivered; 0 if none of them owes."""
    slot = lanes.episode_of_lane[lane]
    server = episodes.job[slot, job, at.SERVER]
    left = 0.0
    for client in range(server + 1, server + 1 + episodes.job[slot, server, at.CLIENTS]):
        if client != job and owes(lanes, episodes, lane, client):
            left = max(left, result_s(lanes, episodes, offers, rules, lane, client))
    if left > 0.0 and job != server and not server_is_up(lanes, lane, server):
        left = max(left, ready_s(lanes, episodes, offers, rules, lane, server))
    return left


@inner
def aggregation_s(lanes: Lanes, episodes: Episodes, lane: int, server: int) -> int:
    """Seconds of an aggregation where the server is, else the standard time."""
    slot = lanes.episode_of_lane[lane]
    c = lanes.job[lane, server, at.OFFER]
    if c >= 0:
        return int(episodes.execution_s[slot, server, c])
    return int(episodes.job[slot, server, at.STANDARD_S])


@inner
def round_s(lanes: Lanes, episodes: Episodes, lane: int, job: int) -> float:
    """Expected seconds of a whole round: the slowest warm epoch and the aggregation."""
    slot = lanes.episode_of_lane[lane]
    server = episodes.job[slot, job, at.SERVER]
    slowest = 0.0
    for client in range(server + 1, server + 1 + episodes.job[slot, server, at.CLIENTS]):
        if lanes.job[lane, client, at.PHASE] != at.DONE:
            slowest = max(slowest, epoch_s(lanes, episodes, lane, client))
    return float(slowest + aggregation_s(lanes, episodes, lane, server))


@inner
def others_usd_hour(lanes: Lanes, episodes: Episodes, lane: int, job: int) -> float:
    """USD per hour of all instances that the application holds besides the task's own."""
    slot = lanes.episode_of_lane[lane]
    server = episodes.job[slot, job, at.SERVER]
    micro = 0
    for member in range(server, server + 1 + episodes.job[slot, server, at.CLIENTS]):
        if member != job and lanes.job[lane, member, at.PHASE] in (
            at.SETTING_UP,
            at.WORKING,
            at.IDLE,
            at.MOVING,
        ):
            c = lanes.job[lane, member, at.OFFER]
            price = episodes.price[slot, c, sync_price(lanes, episodes, lane, c), at.PRICE]
            micro += episodes.job[slot, member, at.EXECUTORS] * price
    return float(micro / 1e6)


@inner
def asked_after_s(
    lanes: Lanes, episodes: Episodes, offers: Offers, rules: Rules, lane: int, client: int
) -> int:
    """When a client without an instance is asked again, in seconds from now: like any job if it is late."""
    in_debt = owes(lanes, episodes, lane, client)
    left = round_left_s(lanes, episodes, offers, rules, lane, client)
    whole = round_s(lanes, episodes, lane, client)
    most = 0.0
    for c in range(offers.fixed.shape[0]):
        start = start_on_s(lanes, episodes, offers, rules, lane, client, c)
        most = max(most, slack_s(in_debt, left, whole, start, fresh_s(lanes, episodes, lane, client, c)))
    return int(ask_again_s(most)) if most > 0.0 else rules.decision_interval_s
