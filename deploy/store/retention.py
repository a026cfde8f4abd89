"""How long what is kept, and the removal of what is older."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import delete, func, or_, select

from deploy.store.database import Database
from deploy.store.jobs import LIVE
from deploy.store.schema import decisions, events, intents, jobs, prices

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
    """Remove older rows, in the current transaction. Returns how many of each table."""
    connection = database.writing
    live = select(jobs.c.job_id).where(jobs.c.state.in_(LIVE))
    later = prices.alias()
    superseded_s = (
        select(func.min(later.c.seen_s))
        .where(later.c.offer_id == prices.c.offer_id, later.c.seen_s > prices.c.seen_s)
        .scalar_subquery()
    )
    statements = {
        "events": delete(events).where(
            events.c.time_s < now_s - retention.events * _DAY_S,
            or_(events.c.job_id.is_(None), events.c.job_id.not_in(live)),
        ),
        "decisions": delete(decisions).where(
            decisions.c.time_s < now_s - retention.decisions * _DAY_S, decisions.c.job_id.not_in(live)
        ),
        "intents": delete(intents).where(intents.c.ended_s < now_s - retention.intents * _DAY_S),
        "prices": delete(prices).where(
            prices.c.seen_s < now_s - retention.prices * _DAY_S,
            superseded_s < now_s - retention.prices * _DAY_S,
        ),
    }
    return {name: connection.execute(statement).rowcount for name, statement in statements.items()}
