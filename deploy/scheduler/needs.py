"""A task that awaits a decision, in physical units: what the encoder is told about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from deploy.model.instances import Offer
from deploy.model.jobs import Places, Resources, TaskKey
from envs.simulation.snapshot import Category

Kind = Literal["general", "deadline", "streaming", "federated"]

_CATEGORIES = {
    "general": Category.GENERAL,
    "deadline": Category.TIME_CRITICAL,
    "streaming": Category.STREAMING,
    "federated": Category.FEDERATED,
}


@dataclass(frozen=True)
class Round:
    """What is particular to a task that trains in rounds; times as measured so far.

    Attributes:
        idle: it holds its instances and waits for others.
        is_server: whether it is the server.
        owes: whether its result of the current round is still to come.
        round_left_s: expected seconds until all others of its round have delivered.
        round_s: expected seconds of a whole round.
        cold_s: what its first execution on new instances takes longer.
        budget_left_usd: None without a budget.
        others_usd_hour: price of all instances that its application holds beside its own.
        time_error_s: by how much such expectations were off lately.
    """

    idle: bool = False
    is_server: bool = False
    owes: bool = True
    round_left_s: float = 0.0
    round_s: float = 0.0
    cold_s: float = 0.0
    budget_left_usd: float | None = None
    others_usd_hour: float = 0.0
    time_error_s: float = 0.0


@dataclass(frozen=True)
class Need:
    """One task that awaits a decision.

    Attributes:
        key: which task.
        kind: of its work.
        resources: of each instance, and how many it needs at once.
        places: where it may run.
        standard_s: seconds of one execution (batch, epoch), or of all the work, at speed 1.
        age_s: since it was submitted.
        waited_s: since it entered, or re-entered, the buffer; 0 while it runs.
        slack_s: until its next deadline, negative when late; None without one.
        executions_left: batches or rounds left; 1 for others.
        period_s: between two batches; 0 for others.
        progress: share of the work that is done and saved, 0..1.
        restart_s: to set up on fresh instances.
        checkpoint_s: between two periodic checkpoints; 0 without.
        data_gb: to be read where it starts.
        checkpoint_gb: to be restored where it starts.
        interruptions: so far.
        misses: deadlines missed so far.
        backlog: batches that are due and not finished.
        running: it runs now and may be moved; "none" leaves it.
        here: id of the offer on which it runs or waits, None for none.
        left_here_s: until the end of the current execution there.
        round: of tasks of kind "federated".
    """

    key: TaskKey
    kind: Kind
    resources: Resources
    places: Places
    standard_s: float
    age_s: float = 0.0
    waited_s: float = 0.0
    slack_s: float | None = None
    executions_left: int = 1
    period_s: float = 0.0
    progress: float = 0.0
    restart_s: float = 0.0
    checkpoint_s: float = 0.0
    data_gb: float = 0.0
    checkpoint_gb: float = 0.0
    interruptions: int = 0
    misses: int = 0
    backlog: int = 0
    running: bool = False
    here: str | None = None
    left_here_s: float = 0.0
    round: Round = field(default_factory=Round)

    @property
    def category(self) -> Category:
        """As the snapshot counts it."""
        return _CATEGORIES[self.kind]

    def refusal(self, offer: Offer) -> str | None:
        """Why this task may never run on such an offer, whatever is free; None if it may."""
        for what, allowed, value in (
            ("market", self.places.markets, offer.market),
            ("provider", self.places.providers, offer.provider),
            ("region", self.places.regions, offer.region),
            ("instance type", self.places.instance_types, offer.instance_type),
        ):
            if allowed is not None and value not in allowed:
                return f"the job allows {what} {', '.join(allowed)}, this is {value}"
        wanted = self.resources
        if offer.vcpus < wanted.vcpus:
            return f"has {offer.vcpus} vCPUs, the job needs {wanted.vcpus}"
        if offer.memory_gib < wanted.memory_gib:
            return f"has {offer.memory_gib:g} GiB, the job needs {wanted.memory_gib:g}"
        if wanted.gpu is not None and offer.gpu != wanted.gpu:
            return f"has {offer.gpu or 'no GPU'}, the job needs {wanted.gpu}"
        if offer.quota < wanted.instances:
            return f"at most {offer.quota} instances may run, the job needs {wanted.instances}"
        return None
