"""The first version of the tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """From an empty database."""
    op.create_table(
        "decisions",
        sa.Column("decision_id", _NUMBER, autoincrement=True, nullable=False),
        sa.Column("time_s", sa.Double(), nullable=False),
        sa.Column("policy", sa.Text(), nullable=False),
        sa.Column("mode", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("candidates", sa.JSON(), nullable=False),
        sa.Column("chosen", sa.Text(), nullable=True),
        sa.Column("latency_s", sa.Double(), nullable=False),
        sa.Column("shadow_policy", sa.Text(), nullable=True),
        sa.Column("shadow_choice", sa.Text(), nullable=True),
        sa.Column("shadow_difference", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("decision_id", name=op.f("pk_decisions")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_decisions_job_id", "decisions", ["job_id", "decision_id"], unique=False)
    op.create_index("ix_decisions_time_s", "decisions", ["time_s"], unique=False)
    op.create_table(
        "deployment",
        sa.Column("row", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("deployment_id", sa.Text(), nullable=False),
        sa.Column("schema_version", sa.Text(), nullable=False),
        sa.Column("key_mark", sa.Text(), nullable=False),
        sa.Column("created_s", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("row", name=op.f("pk_deployment")),
    )
    op.create_table(
        "events",
        sa.Column("sequence", _NUMBER, autoincrement=True, nullable=False),
        sa.Column("time_s", sa.Double(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=True),
        sa.Column("task", sa.Text(), nullable=True),
        sa.Column("instance_id", sa.Text(), nullable=True),
        sa.Column("decision_id", sa.BigInteger(), nullable=True),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("sequence", name=op.f("pk_events")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_events_job_id", "events", ["job_id", "sequence"], unique=False)
    op.create_index("ix_events_time_s", "events", ["time_s"], unique=False)
    op.create_table(
        "intents",
        sa.Column("intent_id", _NUMBER, autoincrement=True, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("payload", sa.JSON(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("not_before_s", sa.Double(), nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("created_s", sa.Double(), nullable=False),
        sa.Column("ended_s", sa.Double(), nullable=True),
        sa.Column("decision_id", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("intent_id", name=op.f("pk_intents")),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "uq_intents_pending",
        "intents",
        ["kind", "target"],
        unique=True,
        sqlite_where=sa.text("state = 'pending'"),
        postgresql_where=sa.text("state = 'pending'"),
    )
    op.create_table(
        "jobs",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("submitted_s", sa.Double(), nullable=False),
        sa.Column("ended_s", sa.Double(), nullable=True),
        sa.Column("workdir", sa.Text(), nullable=False),
        sa.Column("submitter", sa.Text(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=True),
        sa.Column("user_failures", sa.Integer(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_jobs")),
    )
    op.create_index("ix_jobs_state_submitted_s", "jobs", ["state", "submitted_s"], unique=False)
    op.create_index("uq_jobs_submitter_request_id", "jobs", ["submitter", "request_id"], unique=True)
    op.create_table(
        "prices",
        sa.Column("offer_id", sa.Text(), nullable=False),
        sa.Column("seen_s", sa.Double(), nullable=False),
        sa.Column("price_micro_usd_hour", sa.BigInteger(), nullable=False),
        sa.Column("on_demand_micro_usd_hour", sa.BigInteger(), nullable=False),
        sa.Column("available", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("offer_id", "seen_s", name=op.f("pk_prices")),
    )
    op.create_index("ix_prices_seen_s", "prices", ["seen_s"], unique=False)
    op.create_table(
        "tokens",
        sa.Column("token_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("created_s", sa.Double(), nullable=False),
        sa.Column("expires_s", sa.Double(), nullable=True),
        sa.Column("revoked_s", sa.Double(), nullable=True),
        sa.Column("last_used_s", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("token_id", name=op.f("pk_tokens")),
    )
    op.create_table(
        "instances",
        sa.Column("instance_id", sa.Text(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("provider_id", sa.Text(), nullable=True),
        sa.Column("client_token", sa.Text(), nullable=False),
        sa.Column("offer_id", sa.Text(), nullable=False),
        sa.Column("offer", sa.JSON(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("port", sa.Integer(), nullable=False),
        sa.Column("node_token", sa.LargeBinary(), nullable=False),
        sa.Column("max_price_usd_hour", sa.Double(), nullable=True),
        sa.Column("requested_s", sa.Double(), nullable=False),
        sa.Column("launched_s", sa.Double(), nullable=True),
        sa.Column("ready_s", sa.Double(), nullable=True),
        sa.Column("ended_s", sa.Double(), nullable=True),
        sa.Column("by_provider", sa.Boolean(), nullable=False),
        sa.Column("notice_s", sa.Double(), nullable=True),
        sa.Column("rebalance", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.job_id"], name=op.f("fk_instances_job_id")),
        sa.PrimaryKeyConstraint("instance_id", name=op.f("pk_instances")),
    )
    op.create_index("ix_instances_job_id", "instances", ["job_id"], unique=False)
    op.create_index("ix_instances_state", "instances", ["state"], unique=False)
    op.create_index("uq_instances_client_token", "instances", ["client_token"], unique=True)
    op.create_index(
        "uq_instances_provider_provider_id", "instances", ["provider", "provider_id"], unique=True
    )
    op.create_table(
        "tasks",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("phase", sa.Text(), nullable=True),
        sa.Column("progress", sa.Double(), nullable=False),
        sa.Column("saved", sa.Double(), nullable=False),
        sa.Column("instances", sa.JSON(), nullable=False),
        sa.Column("misses", sa.Integer(), nullable=False),
        sa.Column("executions_done", sa.Integer(), nullable=False),
        sa.Column("last_execution_s", sa.Double(), nullable=True),
        sa.Column("round_left_s", sa.Double(), nullable=True),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("details", sa.JSON(), nullable=False),
        sa.Column("reported_s", sa.Double(), nullable=True),
        sa.Column("waiting_since_s", sa.Double(), nullable=True),
        sa.Column("losses", sa.Integer(), nullable=False),
        sa.Column("not_before_s", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.job_id"], name=op.f("fk_tasks_job_id")),
        sa.PrimaryKeyConstraint("job_id", "task", name=op.f("pk_tasks")),
    )
    op.create_table(
        "charges",
        sa.Column("instance_id", sa.Text(), nullable=False),
        sa.Column("day", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("zone", sa.Text(), nullable=False),
        sa.Column("market", sa.Text(), nullable=False),
        sa.Column("seconds", sa.BigInteger(), nullable=False),
        sa.Column("cost", sa.BigInteger(), nullable=False),
        sa.Column("on_demand", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["instance_id"], ["instances.instance_id"], name=op.f("fk_charges_instance_id")
        ),
        sa.PrimaryKeyConstraint("instance_id", "day", name=op.f("pk_charges")),
    )
    op.create_index("ix_charges_job_id", "charges", ["job_id"], unique=False)
    op.create_table(
        "price_segments",
        sa.Column("instance_id", sa.Text(), nullable=False),
        sa.Column("start_s", sa.Double(), nullable=False),
        sa.Column("price_micro_usd_hour", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["instance_id"], ["instances.instance_id"], name=op.f("fk_price_segments_instance_id")
        ),
        sa.PrimaryKeyConstraint("instance_id", "start_s", name=op.f("pk_price_segments")),
    )
