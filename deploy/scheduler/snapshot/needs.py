"""A task that awaits a decision, in physical units: what the encoder is told about it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from deploy.model.instances import SHORTEST_MONTH_S, Offer
from deploy.model.jobs import Places, Resources, TaskKey
from deploy.model.speeds import slowness
from deploy.model.transfers import Move
from envs.simulation.snapshot import Category

Kind = Literal["general", "deadline", "streaming", "federated"]

_CATEGORIES = {
    "general": Category.GENERAL,
    "deadline": Category.TIME_CRITICAL,
    "streaming": Category.STREAMING,
    "federated": Category.FEDERATED,
}


def ban(wanted: Resources, places: Places, offer: Offer) -> str | None:
    """Why a task that wants this may never run on such an offer, whatever it costs; None if it may."""
    for what, allowed, value in (
        ("market", places.markets, offer.market),
        ("provider", places.providers, offer.provider),
        ("region", places.regions, offer.region),
        ("instance type", places.instance_types, offer.instance_type),
    ):
        if allowed is not None and value not in allowed:
            return f"the job allows {what} {', '.join(allowed)}, this is {value}"
    if offer.vcpus < wanted.vcpus:
        return f"has {offer.vcpus} vCPUs, the job needs {wanted.vcpus}"
    if offer.memory_gib < wanted.memory_gib:
        return f"has {offer.memory_gib:g} GiB, the job needs {wanted.memory_gib:g}"
    if lacking := wanted.lacking(offer.gpus, offer.gpu, offer.gpu_memory_gib):
        return lacking
    if offer.quota < wanted.instances:
        return f"at most {offer.quota} instances may run, the job needs {wanted.instances}"
    return None


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
        others_usd_hour: price of all instances that its application holds besides its own.
        time_error_s: by how much such expectations were off lately.
        aggregation_s: expected seconds of an aggregation, which `round_s` includes.
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
    aggregation_s: float = 0.0


@dataclass(frozen=True)
class Need:
    """One task that awaits a decision.

    Attributes:
        key: which task.
        kind: of its work.
        resources: of each instance, and how many it needs at once.
        places: where it may run.
        standard_s: seconds of one execution (batch, epoch), or of all the work, at its reference speed.
        age_s: since it was submitted.
        waited_s: since it entered, or re-entered, the buffer; 0 while it runs.
        slack_s: until its next deadline, negative when late; None without one.
        executions_left: batches or rounds left; 1 for others.
        period_s: between two batches; 0 for others.
        progress: share of the work that is done and saved, 0..1.
        execution_saved: streaming: share of the next batch that is done and saved.
        restart_s: to set up on fresh instances.
        checkpoint_s: between two periodic checkpoints; 0 without.
        save_s: what saving one takes.
        data_gb: to be read where it starts.
        checkpoint_gb: to be restored where it starts.
        interruptions: so far.
        misses: deadlines missed so far.
        backlog: batches that are due and not finished.
        running: it runs now and may be moved; "none" leaves it.
        here: id of the offer on which it runs or waits, None for none.
        left_here_s: until the end of the current execution there.
        reference_speed: that `standard_s` refers to.
        sensitivity: how far other speeds count (see `Profile`); None: all the way.
        moves: by region: what putting it there takes; none for regions that are left out.
        budget_left_usd: what its job's budget, and the deployment's, still pay.
        cooling_s: by offer: for how much longer it is left alone, since the task came to nothing there.
        least_s: every instance is paid for at least so long: ending it takes a while.
        round: of tasks of kind "federated".
        planned: of a step of a workflow: the region in which its plan puts it; None: wherever it may run.
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
    execution_saved: float = 0.0
    restart_s: float = 0.0
    checkpoint_s: float = 0.0
    save_s: float = 0.0
    data_gb: float = 0.0
    checkpoint_gb: float = 0.0
    interruptions: int = 0
    misses: int = 0
    backlog: int = 0
    running: bool = False
    here: str | None = None
    left_here_s: float = 0.0
    reference_speed: float = 1.0
    sensitivity: float | None = None
    moves: Mapping[str, Move] = field(default_factory=dict)
    budget_left_usd: float = math.inf
    cooling_s: Mapping[str, float] = field(default_factory=dict)
    least_s: float = 0.0
    round: Round = field(default_factory=Round)
    planned: str | None = None

    @property
    def category(self) -> Category:
        """As the snapshot counts it."""
        return _CATEGORIES[self.kind]

    def execution_s(self, speed: float) -> float:
        """Whole seconds of one execution (of all the work of a task that has only one) at a speed."""
        # The simulated markets count in whole seconds too; rounding first keeps noise from adding one.
        return math.ceil(round(self.standard_s * self._slowness(speed), 6))

    def measured(self, took_s: float, speed: float) -> Need:
        """The same task, of which it is known how long an execution took at a speed."""
        return replace(self, standard_s=took_s / self._slowness(speed))

    def _slowness(self, speed: float) -> float:
        """How many times as long as at the reference speed it takes."""
        return slowness(speed, self.reference_speed, self.sensitivity)

    def left_s(self, speed: float) -> float:
        """Expected seconds of work left (streaming: of its next batch) at a speed, once it has started."""
        done = self.execution_saved if self.kind == "streaming" else self.progress
        work_s = max(1, math.ceil((1.0 - done) * self.execution_s(speed)))
        if self.kind == "streaming" or self.checkpoint_s <= 0:
            return work_s
        return work_s + self.save_s * ((work_s - 1) // self.checkpoint_s)

    def finish_s(self, offer: Offer) -> float:
        """Expected seconds until its work (of a stream: its next batch) ends on an offer, from now."""
        if offer.offer_id == self.here:
            return self.left_here_s
        move = self.moves.get(offer.region)
        moved_s = 0.0 if move is None else move.seconds
        saves_s = self.save_s if self.running else 0.0
        start_s = offer.launch_s + self.restart_s + moved_s + saves_s
        return start_s + self.left_s(offer.speed) + self.round.cold_s / offer.speed

    @property
    def allowed_s(self) -> float:
        """Seconds allowed for the next execution: what later rounds need is not; 0 without a deadline."""
        if self.slack_s is None:
            return 0.0
        if self.kind != "federated":
            return self.slack_s
        later = max(0, self.executions_left - 1)
        return self.slack_s - int(later * self.round.round_s) - self.round.aggregation_s

    def refusal(self, offer: Offer) -> str | None:
        """Why this task may not run on such an offer, whatever is free; None if it may."""
        return self.ban(offer) or self._elsewhere(offer) or self._cools(offer) or self.unpaid(offer)

    def unpaid(self, offer: Offer) -> str | None:
        """Why budgets do not pay this task on such an offer; None if they do."""
        return self._too_dear(offer) or self._beyond_budget(offer)

    def start_usd(self, offer: Offer) -> float:
        """The least that a start on an offer costs: its instances, their disks, and moving its data there."""
        return self.resources.instances * offer.least_usd(self.least_s) + self.egress_usd(offer)

    def egress_usd(self, offer: Offer) -> float:
        """What moving its data to an offer costs when it starts there."""
        move = self.moves.get(offer.region)
        return 0.0 if move is None else move.usd

    def ban(self, offer: Offer) -> str | None:
        """Why this task may never run on such an offer, whatever it costs; None if it may."""
        return ban(self.resources, self.places, offer)

    def _elsewhere(self, offer: Offer) -> str | None:
        if self.planned is None or offer.region == self.planned:
            return None
        return f"its plan puts it in {self.planned}"

    def _cools(self, offer: Offer) -> str | None:
        """Why it leaves the offer alone for a while."""
        left_s = self.cooling_s.get(offer.offer_id, 0.0)
        return f"it came to nothing there; left alone for {left_s:.0f} s more" if left_s > 0 else None

    def _too_dear(self, offer: Offer) -> str | None:
        """Why its own budget does not pay the next round there."""
        left_usd = self.round.budget_left_usd
        if left_usd is None or offer.offer_id == self.here:
            return None
        seconds = offer.launch_s + self.restart_s + self.left_s(offer.speed) + self.round.cold_s / offer.speed
        seconds = max(seconds, offer.billing_minimum_s)
        usd = offer.price_usd_hour * self.resources.instances * seconds / 3600.0
        usd += offer.disk_usd_month * self.resources.instances * seconds / SHORTEST_MONTH_S
        if usd <= left_usd:
            return None
        return f"its budget leaves {max(0.0, left_usd):.4f} USD, a round there costs {usd:.4f}"

    def _beyond_budget(self, offer: Offer) -> str | None:
        """Why what is left of budgets does not pay a start there."""
        if offer.offer_id == self.here or self.start_usd(offer) <= self.budget_left_usd:
            return None
        left_usd = max(0.0, self.budget_left_usd)
        return (
            f"the budget leaves {left_usd:.4f} USD, a start there costs at least {self.start_usd(offer):.4f}"
        )
