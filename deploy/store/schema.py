"""The tables, as they are now. How a database of an earlier version gets there: `migrations/versions`.

Times are epoch seconds. Prices and money are integers as in `deploy.billing`. Values of state columns are
those of the enumerations in `deploy.model`. A default is what a new row begins with.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeAlias

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    text,
)
from sqlalchemy.types import TypeEngine

VERSION_TABLE = "schema_version"

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# SQLite numbers rows by itself only where the column is exactly INTEGER.
_Number = BigInteger().with_variant(Integer, "sqlite")


def _numbered(name: str) -> Column[int]:
    return Column(name, _Number, primary_key=True, autoincrement=True)


def _filled(kind: type[TypeEngine[Any]], *names: str, default: object = None) -> list[Column[Any]]:
    return [Column(name, kind, nullable=False, default=default) for name in names]


def _empty(kind: type[TypeEngine[Any]], *names: str) -> list[Column[Any]]:
    return [Column(name, kind) for name in names]


deployment = Table(
    "deployment",
    metadata,
    Column("row", Integer, primary_key=True, autoincrement=False),
    *_filled(Text, "deployment_id", "schema_version", "key_mark"),
    Column("created_s", Double, nullable=False),
)

lease = Table(
    "lease",
    metadata,
    Column("row", Integer, primary_key=True, autoincrement=False),
    Column("holder", Text, nullable=False),
    *_filled(Double, "taken_s", "renewed_s"),
)

jobs = Table(
    "jobs",
    metadata,
    Column("job_id", Text, primary_key=True),
    *_filled(Text, "spec", "state"),
    Column("submitted_s", Double, nullable=False),
    Column("ended_s", Double),
    *_filled(Text, "workdir", "submitter"),
    Column("request_id", Text),
    Column("user_failures", Integer, nullable=False),
    Column("reason", Text, nullable=False),
    Index("ix_jobs_state_submitted_s", "state", "submitted_s"),
    Index("ix_jobs_submitter_submitted_s", "submitter", "submitted_s"),
    Index("uq_jobs_submitter_request_id", "submitter", "request_id", unique=True),
)

# A job has one until its folder is removed, long after its end.
folders = Table(
    "folders",
    metadata,
    Column("job_id", ForeignKey("jobs.job_id"), primary_key=True),
    Column("submitter", Text, nullable=False),
    Column("uploaded_bytes", BigInteger, nullable=False),
    Index("ix_folders_submitter", "submitter"),
)

tasks = Table(
    "tasks",
    metadata,
    Column("job_id", ForeignKey("jobs.job_id"), primary_key=True),
    Column("task", Text, primary_key=True),
    Column("position", Integer, nullable=False),
    Column("attempt", Integer, nullable=False, default=0),
    Column("phase", Text),
    *_filled(Double, "progress", "saved", default=0.0),
    Column("instances", JSON, nullable=False, default=list),
    *_filled(Integer, "misses", "executions_done", default=0),
    *_empty(Double, "last_execution_s", "next_due_s"),
    Column("execution_saved", Double, nullable=False, default=0.0),
    Column("saved_region", Text, nullable=False, default=""),
    Column("message", Text, nullable=False),
    Column("details", JSON, nullable=False, default=dict),
    *_empty(Double, "reported_s", "waiting_since_s"),
    *_filled(Integer, "losses", "failures", "interruptions", default=0),
    Column("not_before_s", Double, nullable=False),
)

instances = Table(
    "instances",
    metadata,
    Column("instance_id", Text, primary_key=True),
    Column("provider", Text, nullable=False),
    Column("provider_id", Text),
    *_filled(Text, "client_token", "offer_id"),
    Column("offer", JSON, nullable=False),
    Column("job_id", ForeignKey("jobs.job_id"), nullable=False),
    *_filled(Text, "task", "state"),
    Column("address", Text, nullable=False, default=""),
    Column("port", Integer, nullable=False, default=0),
    Column("node_token", LargeBinary, nullable=False),
    Column("certificate", Text, nullable=False, default=""),
    Column("max_price_usd_hour", Double),  # always null: what limits a price is the provider's to know
    Column("requested_s", Double, nullable=False),
    *_empty(Double, "launched_s", "ready_s", "ended_s"),
    Column("by_provider", Boolean, nullable=False, default=False),
    Column("notice_s", Double),
    Column("rebalance", Boolean, nullable=False, default=False),
    Column("stops", JSON, nullable=False, default=list),
    Index("ix_instances_state", "state"),
    Index("ix_instances_job_id", "job_id"),
    Index("uq_instances_provider_provider_id", "provider", "provider_id", unique=True),
    Index("uq_instances_client_token", "client_token", unique=True),
)

price_segments = Table(
    "price_segments",
    metadata,
    Column("instance_id", ForeignKey("instances.instance_id"), primary_key=True),
    Column("start_s", Double, primary_key=True),
    Column("price_micro_usd_hour", BigInteger, nullable=False),
)

# What ended instances have cost, so that sums need not go through every bill.
charges = Table(
    "charges",
    metadata,
    Column("instance_id", ForeignKey("instances.instance_id"), primary_key=True),
    Column("day", Text, primary_key=True),
    *_filled(Text, "job_id", "zone", "market"),
    *_filled(BigInteger, "seconds", "cost", "on_demand", "disk"),
    Index("ix_charges_job_id", "job_id"),
)

# What it cost to move data to where attempts started.
egress = Table(
    "egress",
    metadata,
    Column("job_id", Text, primary_key=True),
    Column("task", Text, primary_key=True),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("instance_id", ForeignKey("instances.instance_id"), nullable=False),
    *_filled(Text, "day", "zone", "market"),
    Column("cost", BigInteger, nullable=False),
    ForeignKeyConstraint(["job_id", "task"], ["tasks.job_id", "tasks.task"]),
)

intents = Table(
    "intents",
    metadata,
    _numbered("intent_id"),
    *_filled(Text, "kind", "state"),
    Column("payload", JSON, nullable=False),
    Column("target", Text, nullable=False),
    Column("attempts", Integer, nullable=False, default=0),
    Column("not_before_s", Double, nullable=False),
    Column("error", Text, nullable=False),
    Column("created_s", Double, nullable=False),
    Column("ended_s", Double),
    Column("decision_id", BigInteger),
    # Not the partial index below: SQLite cannot tell that a bound parameter will be 'pending'.
    Index("ix_intents_state", "state", "intent_id"),
    Index(
        "uq_intents_pending",
        "kind",
        "target",
        unique=True,
        sqlite_where=text("state = 'pending'"),
        postgresql_where=text("state = 'pending'"),
    ),
    sqlite_autoincrement=True,
)

decisions = Table(
    "decisions",
    metadata,
    _numbered("decision_id"),
    Column("time_s", Double, nullable=False),
    *_filled(Text, "policy", "mode", "job_id", "task"),
    Column("candidates", JSON, nullable=False),
    Column("chosen", Text),
    Column("latency_s", Double, nullable=False),
    *_empty(Text, "shadow_policy", "shadow_choice"),
    Column("shadow_difference", Double),
    Index("ix_decisions_job_id", "job_id", "decision_id"),
    Index("ix_decisions_time_s", "time_s"),
    sqlite_autoincrement=True,
)

events = Table(
    "events",
    metadata,
    _numbered("sequence"),
    Column("time_s", Double, nullable=False),
    Column("kind", Text, nullable=False),
    *_empty(Text, "job_id", "task", "instance_id"),
    Column("decision_id", BigInteger),
    Column("data", JSON, nullable=False),
    Index("ix_events_job_id", "job_id", "sequence"),
    Index("ix_events_time_s", "time_s"),
    sqlite_autoincrement=True,
)

prices = Table(
    "prices",
    metadata,
    Column("offer_id", Text, primary_key=True),
    Column("seen_s", Double, primary_key=True),
    *_filled(BigInteger, "price_micro_usd_hour", "on_demand_micro_usd_hour"),
    Column("available", Boolean, nullable=False),
    Index("ix_prices_seen_s", "seen_s"),
)

tokens = Table(
    "tokens",
    metadata,
    Column("token_id", Text, primary_key=True),
    *_filled(Text, "name", "role"),
    Column("digest", LargeBinary, nullable=False),
    Column("created_s", Double, nullable=False),
    *_empty(Double, "expires_s", "revoked_s", "last_used_s"),
)


# What goes into columns.

Json: TypeAlias = "str | int | float | bool | Mapping[str, Json] | Sequence[Json] | None"
"""Anything that JSON can hold; NaN and infinity it cannot."""

MAX_TEXT = 4_000
_PORTION = 10_000  # names in one IN (...); both databases take at least three times as many parameters


def portions(names: Collection[str]) -> Iterator[list[str]]:
    """The names in lists that one statement can hold."""
    rest = iter(names)
    while some := list(islice(rest, _PORTION)):
        yield some


def plain(text: str) -> str:
    """A message as both databases can hold it: no NUL, no lone surrogates, at most `MAX_TEXT` characters.

    Messages come from logs of users' programs, and a byte in them must not stop the scheduler.
    """
    cleaned = text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode("utf-8")
    return cleaned if len(cleaned) <= MAX_TEXT else cleaned[: MAX_TEXT - 1] + "…"
