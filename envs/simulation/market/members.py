"""Tasks of federated applications: which job is one, whether it owes a result, what it pays for idleness.

The rows of an application are its server, then its clients. A client's `EXECUTED` are the rounds for which it
has delivered, its server's those that are aggregated: a client owes a result while the two are equal.
"""

from __future__ import annotations

from spotweave.envs.simulation.compiled import inner
from spotweave.envs.simulation.market import columns as at
from spotweave.envs.simulation.market.episodes import Episodes, price_integral, sync_price
from spotweave.envs.simulation.market.state import NEVER, Lanes, Offers, Rules, capacity_now
from spotweave.envs.simulation.snapshot import Category


@inner
def is_member(episodes: Episodes, slot: int, job: int) -> bool:
    """Whether a job is a task of a federated application."""
    return bool(episodes.job[slot, job, at.CATEGORY] == Category.FEDERATED.value)


@inner
def is_client(episodes: Episodes, slot: int, job: int) -> bool:
    """Whether a job is a client of a federated application."""
    row = episodes.job[slot, job]
    return bool(row[at.CATEGORY] == Category.FEDERATED.value and row[at.SERVER] != job)


@inner
def owes(lanes: Lanes, episodes: Episodes, lane: int, client: int) -> bool:
    """Whether a client's result of the current round is still to come."""
    server = episodes.job[lanes.episode_of_lane[lane], client, at.SERVER]
    here, there = lanes.job[lane, client], lanes.job[lane, server]
    return bool(here[at.PHASE] != at.DONE and here[at.EXECUTED] == there[at.EXECUTED])


@inner
def server_is_up(lanes: Lanes, lane: int, server: int) -> bool:
    """Whether a server runs: it waits for its clients or aggregates."""
    phase = lanes.job[lane, server, at.PHASE]
    return bool(phase in (at.IDLE, at.WORKING))


@inner
def freezes(episodes: Episodes, offers: Offers, slot: int, job: int, c: int) -> bool:
    """Whether an interruption hibernates the job; with a budget, which disks would eat up, it does not."""
    return bool(offers.fixed[c, at.HIBERNATES] == 1 and episodes.job[slot, job, at.BUDGET] == 0)


@inner
def has_room(lanes: Lanes, offers: Offers, rules: Rules, lane: int, c: int, executors: int) -> bool:
    """Whether a task that goes to an offer would not wait in a queue there."""
    if offers.fixed[c, at.QUEUES] == 0:
        return True
    blocked = rules.strict_fifo == 1 and lanes.offer[lane, c, at.HALTED] > 0
    free = capacity_now(lanes, offers, lane, c) - lanes.offer[lane, c, at.USED]
    return bool(not blocked and executors <= free)


@inner
def begin_idle(lanes: Lanes, episodes: Episodes, lane: int, client: int) -> None:
    """A client's instance has nothing to do from now on."""
    c = lanes.job[lane, client, at.OFFER]
    now = lanes.lane[lane, at.NOW_S]
    lanes.job[lane, client, at.IDLE_FROM] = price_integral(lanes, episodes, lane, c, now)
    lanes.job[lane, client, at.ENTERED_S] = now


@inner
def settle_idle(lanes: Lanes, episodes: Episodes, lane: int, client: int) -> None:
    """Note what the idle time that ends now costs, if the client was idle."""
    if lanes.job[lane, client, at.PHASE] != at.IDLE:
        return
    c = lanes.job[lane, client, at.OFFER]
    integral = price_integral(lanes, episodes, lane, c, lanes.lane[lane, at.NOW_S])
    executors = episodes.job[lanes.episode_of_lane[lane], client, at.EXECUTORS]
    spent = executors * (integral - lanes.job[lane, client, at.IDLE_FROM])
    lanes.job[lane, client, at.IDLE_CHARGE] += spent
    lanes.job[lane, client, at.IDLE_FROM] = integral


@inner
def notify(lanes: Lanes, episodes: Episodes, lane: int, cause: int) -> None:
    """Something happened to the application of `cause`: its other clients that wait are asked at once."""
    slot = lanes.episode_of_lane[lane]
    t = lanes.lane[lane, at.NOW_S]
    server = episodes.job[slot, cause, at.SERVER]
    for client in range(server + 1, server + 1 + episodes.job[slot, server, at.CLIENTS]):
        unfinished = lanes.job[lane, client, at.EXECUTED] < episodes.job[slot, client, at.EXECUTIONS]
        waits = lanes.job[lane, client, at.PHASE] in (at.BUFFERED, at.IDLE)
        if client != cause and waits and unfinished:
            lanes.when[lane, client, at.DUE_S] = t


# What is left of a client's budget, and how long it pays for an instance.


@inner
def budget_left(lanes: Lanes, episodes: Episodes, lane: int, client: int) -> int:
    """Charges that closed bills have left of a budget."""
    budget = episodes.job[lanes.episode_of_lane[lane], client, at.BUDGET]
    return int(budget - lanes.job[lane, client, at.CHARGE])


@inner
def can_begin(
    lanes: Lanes, episodes: Episodes, offers: Offers, lane: int, client: int, egress: int, minimum_s: int
) -> bool:
    """Whether a budget pays for the data and the shortest bill on the client's offer, from now on."""
    slot = lanes.episode_of_lane[lane]
    c = lanes.job[lane, client, at.OFFER]
    charge = egress
    if offers.fixed[c, at.QUEUES] == 0:
        t = lanes.lane[lane, at.NOW_S]
        integral = price_integral(lanes, episodes, lane, c, t + minimum_s)
        integral -= price_integral(lanes, episodes, lane, c, t)
        charge += episodes.job[slot, client, at.EXECUTORS] * integral
    return bool(charge <= budget_left(lanes, episodes, lane, client))


@inner
def budget_end_s(lanes: Lanes, episodes: Episodes, offers: Offers, lane: int, client: int) -> int:
    """The last second that a budget pays for on the instance whose bill is open."""
    slot = lanes.episode_of_lane[lane]
    c = lanes.job[lane, client, at.OFFER]
    if offers.fixed[c, at.QUEUES] == 1:
        return NEVER
    executors = episodes.job[slot, client, at.EXECUTORS]
    end = lanes.job[lane, client, at.INTEGRAL_FROM]
    end += budget_left(lanes, episodes, lane, client) // executors
    rows = episodes.price[slot, c]
    row = sync_price(lanes, episodes, lane, c)
    while rows[row, at.UNTIL] != NEVER and rows[row + 1, at.PRICE_INTEGRAL] <= end:
        row += 1
    if rows[row, at.PRICE] == 0:
        return NEVER
    return int(rows[row, at.SINCE] + (end - rows[row, at.PRICE_INTEGRAL]) // rows[row, at.PRICE])
