"""What is left of a client's budget, and how long it pays for an instance."""

from __future__ import annotations

from envs.simulation.market import columns as at
from envs.simulation.market.compiled import inner
from envs.simulation.market.episodes import Episodes
from envs.simulation.market.quotes import price_integral, sync_price
from envs.simulation.market.state import NEVER, Lanes, Offers


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
