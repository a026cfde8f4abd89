"""How long what is kept, and the removal of what is older."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Delete, delete, func, or_, select, tuple_

from deploy.store.database import Database
from deploy.store.jobs import LIVE
from deploy.store.schema import decisions, events, intents, jobs, prices

PORTION = 2_000
MOST = 50_000
_DAY_S = 86_400.0


@dataclass(frozen=True)
class Retention:
    """Days for which rows are kept. Jobs, tasks, instances and charges stay for ever: they are the books.

    Attributes:
        events: and events and decisions of live jobs as long as these live.
        decisions: likewise.
        intents: after they are done or given up.
        prices: the quote in force at that moment stays, so that the price is known at every later one.
        folders: of jobs' files, after their ends; see `deploy.pruning`.
    """

    events: float = 90.0
    decisions: float = 30.0
    intents: float = 30.0
    prices: float = 90.0
    folders: float = 30.0


def prune(database: Database, now_s: float, retention: Retention) -> dict[str, int]:
    """Remove older rows, `PORTION` in each transaction: others who write get their turn in between.

    Returns:
        How many of each table; `MOST` at most, the rest next time.
    """
    found = {}
    for name, statement in _older(now_s, retention).items():
        found[name] = 0
        while found[name] < MOST:
            with database.transaction() as connection:
                removed = connection.execute(statement).rowcount
            found[name] += removed
            if removed < PORTION:
                break
    return found


def _older(now_s: float, retention: Retention) -> dict[str, Delete]:
    """By table: the removal of a portion of what is older than it is kept."""
    live = select(jobs.c.job_id).where(jobs.c.state.in_(LIVE))
    later = prices.alias()
    superseded_s = (
        select(func.min(later.c.seen_s))
        .where(later.c.offer_id == prices.c.offer_id, later.c.seen_s > prices.c.seen_s)
        .scalar_subquery()
    )
    old_events = select(events.c.sequence).where(
        events.c.time_s < now_s - retention.events * _DAY_S,
        or_(events.c.job_id.is_(None), events.c.job_id.not_in(live)),
    )
    old_decisions = select(decisions.c.decision_id).where(
        decisions.c.time_s < now_s - retention.decisions * _DAY_S, decisions.c.job_id.not_in(live)
    )
    old_intents = select(intents.c.intent_id).where(intents.c.ended_s < now_s - retention.intents * _DAY_S)
    old_prices = select(prices.c.offer_id, prices.c.seen_s).where(
        prices.c.seen_s < now_s - retention.prices * _DAY_S,
        superseded_s < now_s - retention.prices * _DAY_S,
    )
    which = tuple_(prices.c.offer_id, prices.c.seen_s)
    return {
        "events": delete(events).where(events.c.sequence.in_(old_events.limit(PORTION))),
        "decisions": delete(decisions).where(decisions.c.decision_id.in_(old_decisions.limit(PORTION))),
        "intents": delete(intents).where(intents.c.intent_id.in_(old_intents.limit(PORTION))),
        "prices": delete(prices).where(which.in_(old_prices.limit(PORTION))),
    }
