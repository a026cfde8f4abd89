"""What a market world can be told: its offers, prices of waste, job mix and timing."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal, get_args

from spotweave.envs.simulation.arrivals import ArrivalConfig
from spotweave.envs.simulation.guards.rules import GuardsConfig
from spotweave.envs.simulation.world import at_least, bounds, require, shares

# What federated applications, bags and workflows of a market world's workload are like.


def _number(share: float, arrivals: int) -> int:
    """How many arrivals a share is: none of 0, else at least one."""
    return min(arrivals, max(1, round(share * arrivals))) if share > 0 else 0


_GROUP = "workload.applications"


@dataclass
class ApplicationsConfig:
    """Federated applications among the arrivals, used with `workload.federated`. [a, b] are inclusive bounds.

    Attributes:
        share: of the arrivals, how many are applications (at least one is; its tasks come on top of
            `workload.jobs`).
        clients: clients of an application.
        rounds: synchronous rounds of an application.
        epoch_s: standard time of its slowest possible client's epoch, log-uniform.
        client_share: a client's epoch as a share of that: how unequal the clients' data are.
        epoch_spread: an epoch takes up to this share more or less than usual, drawn again for each.
        cold_share: what a first epoch on a new instance takes longer, as a share of the client's epoch.
        aggregation_s: standard time that the server takes to aggregate.
        data_gb: a client's data, log-uniform; they lie in a region of their own.
        checkpoint_gb: size of the model, log-uniform.
        checkpoint_interval_s: seconds of an epoch between checkpoints; 0 takes none.
        deadline: share of the applications that have a deadline.
        slack: time allowed as a multiple of the application's standard time.
        slack_s: fixed allowance on top, seconds.
        budget: share of the clients that have a budget.
        budget_usd_hour: USD of budget per hour of the client's standard time in all rounds.
    """

    share: float = 0.1
    clients: list[int] = field(default_factory=lambda: [3, 8])
    rounds: list[int] = field(default_factory=lambda: [5, 20])
    epoch_s: list[int] = field(default_factory=lambda: [300, 1800])
    client_share: list[float] = field(default_factory=lambda: [0.25, 1.0])
    epoch_spread: float = 0.1
    cold_share: list[float] = field(default_factory=lambda: [0.1, 0.5])
    aggregation_s: list[int] = field(default_factory=lambda: [5, 30])
    data_gb: list[float] = field(default_factory=lambda: [0.5, 20.0])
    checkpoint_gb: list[float] = field(default_factory=lambda: [0.1, 2.0])
    checkpoint_interval_s: int = 300
    deadline: float = 0.5
    slack: list[float] = field(default_factory=lambda: [1.5, 3.0])
    slack_s: int = 1800
    budget: float = 0.25
    budget_usd_hour: list[float] = field(default_factory=lambda: [2.0, 6.0])

    def validate(self) -> None:
        """Check every parameter. Raises WorldError naming it, its value and what is expected."""
        require(0.0 < self.share <= 1.0, f"{_GROUP}.share is {self.share}", "a share in (0, 1]")
        shares(self, _GROUP, "deadline", "budget")
        require(
            0.0 <= self.epoch_spread < 1.0, f"{_GROUP}.epoch_spread is {self.epoch_spread}", "0 <= spread < 1"
        )
        bounds(self, _GROUP, 1, "clients", "rounds", "epoch_s", "aggregation_s")
        bounds(self, _GROUP, 0, "cold_share")
        bounds(self, _GROUP, 1e-9, "client_share", "data_gb", "checkpoint_gb", "slack", "budget_usd_hour")
        at_least(self, _GROUP, 0, "checkpoint_interval_s", "slack_s")

    def number(self, arrivals: int) -> int:
        """How many of these arrivals are applications."""
        return _number(self.share, arrivals)


@dataclass
class BagsConfig:
    """Bags of tasks among the arrivals: one-executor tasks that arrive together, with one deadline if any.

    Attributes:
        share: of the arrivals, how many are bags (0: none, else at least one). Their tasks come on top
            of `workload.jobs`.
        tasks: tasks of a bag.
        task_s: standard time of a task, log-uniform.
        deadline: share of the bags that have a deadline.
        slack: time allowed as a multiple of the longest task's standard time.
        slack_s: fixed allowance on top, seconds.
        data_gb: input of a task, log-uniform.
    """

    share: float = 0.0
    tasks: list[int] = field(default_factory=lambda: [5, 20])
    task_s: list[int] = field(default_factory=lambda: [300, 7200])
    deadline: float = 0.75
    slack: list[float] = field(default_factory=lambda: [1.5, 4.0])
    slack_s: int = 1800
    data_gb: list[float] = field(default_factory=lambda: [0.1, 5.0])

    def validate(self) -> None:
        """Check every parameter. Raises WorldError naming it, its value and what is expected."""
        shares(self, "workload.bags", "share", "deadline")
        bounds(self, "workload.bags", 1, "tasks", "task_s")
        bounds(self, "workload.bags", 1e-9, "slack", "data_gb")
        at_least(self, "workload.bags", 0, "slack_s")

    def number(self, arrivals: int) -> int:
        """How many of these arrivals are bags."""
        return _number(self.share, arrivals)


@dataclass
class WorkflowsConfig:
    """Workflows among the arrivals: stages of steps, each of which waits for all steps of the stage before.

    A step must end so early that the stages after it, each with a start of `start_s`, can be in time.

    Attributes:
        share: of the arrivals, how many are workflows (0: none, else at least one). Their steps come on
            top of `workload.jobs`.
        stages: stages of a workflow.
        width: steps of a stage.
        step_s: standard time of a step, log-uniform.
        executors: that a step needs at once.
        start_s: what the start of a stage is taken to need.
        slack: time allowed for the whole as a multiple of its longest path, starts included.
        data_gb: input of a step, log-uniform, read where the workflow's data lie.
    """

    share: float = 0.0
    stages: list[int] = field(default_factory=lambda: [2, 5])
    width: list[int] = field(default_factory=lambda: [1, 4])
    step_s: list[int] = field(default_factory=lambda: [300, 5400])
    executors: list[int] = field(default_factory=lambda: [1, 4])
    start_s: int = 300
    slack: list[float] = field(default_factory=lambda: [1.5, 3.0])
    data_gb: list[float] = field(default_factory=lambda: [0.5, 20.0])

    def validate(self) -> None:
        """Check every parameter. Raises WorldError naming it, its value and what is expected."""
        shares(self, "workload.workflows", "share")
        bounds(self, "workload.workflows", 1, "stages", "width", "step_s", "executors")
        bounds(self, "workload.workflows", 1e-9, "slack", "data_gb")
        at_least(self, "workload.workflows", 0, "start_s")

    def number(self, arrivals: int) -> int:
        """How many of these arrivals are workflows."""
        return _number(self.share, arrivals)


Provider = Literal["owned", "aws", "gcp", "azure"]
Market = Literal["spot", "on_demand", "owned"]
Interruption = Literal["terminate", "hibernate"]

PROVIDERS: tuple[Provider, ...] = get_args(Provider)


@dataclass(frozen=True)
class OfferConfig:
    """One place where jobs run: a pool of equal instances, or the owned cluster.

    Attributes:
        provider: who runs it.
        region: region name; data inside a region move free and fast.
        zone: zone name, "" where the whole region is one pool.
        instance_type: instance type; one instance is one executor.
        market: "spot" may be interrupted by the provider, "owned" has a local FIFO queue and no price.
        hetero_factor: speed on the scale of Liu 2022, section 5.2; larger is faster.
        quota: most executors (instances) at once.
        elastic: executors that an owned cluster has beyond its quota while it is extended.
        launch_s: mean seconds from request to running; a launch takes 0.5 to 1.5 times that.
        launch_failure: probability that a launch fails although the offer is available.
        notice_s: seconds of interruption notice.
        notice_missed: probability that the notice does not arrive (notices are best effort).
        interruption: what the provider does to an interrupted instance.
        free_first_s: an instance that the provider interrupts earlier than this costs nothing.
    """

    provider: Provider
    region: str
    zone: str
    instance_type: str
    market: Market
    hetero_factor: int
    quota: int
    launch_s: int = 90
    launch_failure: float = 0.02
    notice_s: int = 0
    notice_missed: float = 0.0
    interruption: Interruption = "terminate"
    free_first_s: int = 0
    elastic: int = field(default=0, repr=False)  # fingerprints of workflows, where none is, hold the repr

    def __post_init__(self) -> None:
        name = f"offer {self.name}"
        require(self.provider in PROVIDERS, f"{name} has provider {self.provider!r}", ", ".join(PROVIDERS))
        require(
            self.market in get_args(Market), f"{name} has market {self.market!r}", "spot, on_demand or owned"
        )
        require(
            self.interruption in get_args(Interruption),
            f"{name} has interruption {self.interruption!r}",
            "terminate or hibernate",
        )
        require(self.quota >= 1, f"{name} has quota {self.quota}", "at least 1 executor")
        require(self.hetero_factor >= 1, f"{name} has hetero_factor {self.hetero_factor}", "at least 1")
        for label in ("launch_s", "notice_s", "free_first_s"):
            value = getattr(self, label)
            require(value >= 0, f"{name} has {label} {value}", "seconds >= 0")
        for label in ("launch_failure", "notice_missed"):
            value = getattr(self, label)
            require(0.0 <= value <= 1.0, f"{name} has {label} {value}", "a probability in [0, 1]")

    @property
    def name(self) -> str:
        """Name for people, unique within a sensible world."""
        if self.market == "owned":
            return f"owned/{self.region}"
        return f"{self.provider}/{self.zone or self.region}/{self.instance_type}/{self.market}"


ARRIVAL_UNIT_S = 160
"""Seconds per time unit of the arrival pattern, unless configured."""


def _poisson() -> ArrivalConfig:
    return ArrivalConfig(pattern="poisson")


@dataclass
class WorkloadConfig:
    """The job mix. [a, b] are inclusive bounds; see `envs.simulation.market.workload` for the laws.

    Attributes:
        jobs: jobs per episode.
        trace: folder of a job trace (docs/traces.md), whose arrivals, durations and executors the jobs have;
            none of them is a stream. "": they are drawn.
        arrivals: arrival pattern; one time unit of it is `arrival_unit_s` seconds (`times` are in seconds).
        arrival_unit_s: seconds per time unit of the pattern: the load knob. A job trace keeps its pace at
            160; at 80 its jobs arrive twice as fast.
        hourly: whether the load follows the recorded hours of the day (not for a trace).
        general: share of jobs without a deadline (the categories are those of Liu 2022, section 5.2).
        time_critical: share of jobs with one deadline.
        streaming: share of jobs that work through batches, each with a deadline.
        gangs: executors that a job may need at once; empty: as fitted to the Philly cluster.
        gang_weights: how often each of `gangs` occurs.
        standard_s: bounds that the standard time of one-shot jobs is clipped to.
        expected_hetero: hetero factor that a standard time refers to.
        sensitivity: heterogeneity sensitivity `sen` of Liu 2022, section 5.3.
        zeta: the range of that sensitivity is expected_hetero +- sensitivity * zeta.
        slack: time-critical: allowed time as a multiple of the standard time.
        slack_s: time-critical: fixed allowance on top, seconds.
        period_s: streaming: seconds between batches.
        batches: streaming: number of batches.
        batch_work: streaming: standard time of a batch / period.
        batch_allowance: streaming: time allowed for a batch once its data are complete / period.
        data_gb_median: of the lognormal size of the input.
        data_gb_sigma: standard deviation of its logarithm.
        data_gb: bounds that it is clipped to.
        checkpoint_gb: bounds of the checkpoint's size (log-uniform).
        checkpoint_interval_s: seconds of work between checkpoints of one-shot jobs; 0 takes none.
        federated: whether some arrivals are federated applications: servers and clients that train in rounds.
        applications: what these are like.
        bags: how many arrivals are bags of tasks, and what these are like.
        workflows: how many arrivals are workflows, and what these are like.
    """

    jobs: int = 120
    trace: str = ""
    arrivals: ArrivalConfig = field(default_factory=_poisson)
    arrival_unit_s: int = ARRIVAL_UNIT_S
    hourly: bool = True
    general: float = 0.4
    time_critical: float = 0.35
    streaming: float = 0.25
    gangs: list[int] = field(default_factory=list)
    gang_weights: list[float] = field(default_factory=list)
    standard_s: list[int] = field(default_factory=lambda: [600, 36_000])
    expected_hetero: list[int] = field(default_factory=lambda: [55, 100])
    sensitivity: list[int] = field(default_factory=lambda: [1, 5])
    zeta: float = 10.0
    slack: list[float] = field(default_factory=lambda: [1.3, 3.0])
    slack_s: int = 900
    period_s: list[int] = field(default_factory=lambda: [600, 1800])
    batches: list[int] = field(default_factory=lambda: [12, 48])
    batch_work: list[float] = field(default_factory=lambda: [0.3, 0.6])
    batch_allowance: list[float] = field(default_factory=lambda: [1.0, 1.5])
    data_gb_median: float = 30.0
    data_gb_sigma: float = 0.9
    data_gb: list[float] = field(default_factory=lambda: [5.0, 200.0])
    checkpoint_gb: list[float] = field(default_factory=lambda: [1.0, 20.0])
    checkpoint_interval_s: int = 1800
    federated: bool = False
    applications: ApplicationsConfig = field(default_factory=ApplicationsConfig)
    bags: BagsConfig = field(default_factory=BagsConfig)
    workflows: WorkflowsConfig = field(default_factory=WorkflowsConfig)

    @property
    def has_groups(self) -> bool:
        """Whether some arrivals are bags or workflows."""
        return self.bags.number(self.jobs) + self.workflows.number(self.jobs) > 0

    @property
    def most_tasks(self) -> int:
        """The most jobs and tasks that an episode may hold."""
        clients = self.applications.number(self.jobs) * self.applications.clients[1] if self.federated else 0
        tasks = self.bags.number(self.jobs) * (self.bags.tasks[1] - 1)
        most_steps = self.workflows.stages[1] * self.workflows.width[1]
        return self.jobs + clients + tasks + self.workflows.number(self.jobs) * (most_steps - 1)

    def validate(self) -> None:
        """Check every parameter. Raises WorldError naming it, its value and what is expected."""
        require(self.jobs >= 1, f"the workload is empty: workload.jobs is {self.jobs}", "at least 1 job")
        self.arrivals.validate()
        at_least(self, "workload", 1, "arrival_unit_s")
        at_least(self, "workload", 0, "slack_s", "checkpoint_interval_s", "zeta", "data_gb_sigma")
        categories = (self.general, self.time_critical, self.streaming)
        require(
            min(categories) >= 0.0 and abs(sum(categories) - 1.0) < 1e-9,
            f"workload.general, time_critical and streaming are {categories}",
            "shares >= 0 that sum to 1",
        )
        require(
            len(self.gangs) == len(self.gang_weights)
            and all(size >= 1 for size in self.gangs)
            and all(weight > 0 for weight in self.gang_weights),
            f"workload.gangs {list(self.gangs)} with gang_weights {list(self.gang_weights)}",
            "sizes >= 1 with one weight > 0 each (both empty: as fitted)",
        )
        require(
            not self.trace or self.general + self.time_critical > 0,
            f"workload.trace with general {self.general:g} and time_critical {self.time_critical:g}",
            "one of them > 0: jobs of a log are no streams",
        )
        bounds(self, "workload", 1, "standard_s", "expected_hetero", "sensitivity", "period_s", "batches")
        bounds(self, "workload", 1e-9, "slack", "batch_work", "batch_allowance", "data_gb", "checkpoint_gb")
        require(self.data_gb_median > 0, f"workload.data_gb_median is {self.data_gb_median}", "GB > 0")
        if self.federated:
            self.applications.validate()
        self.bags.validate()
        self.workflows.validate()
        taken = self.bags.number(self.jobs) + self.workflows.number(self.jobs)
        taken += self.applications.number(self.jobs) if self.federated else 0
        require(
            taken <= self.jobs,
            f"workload.bags, workflows and applications are {taken} of {self.jobs} arrivals",
            "shares that sum to 1 at most",
        )


@dataclass
class OwnedConfig:
    """A further owned cluster: the region it stands beside, its executors, and their hetero factor.

    `elastic` executors more are added while it is full.
    """

    region: str
    executors: int
    hetero_factor: int
    elastic: int = 0


@dataclass
class MarketConfig:
    """The world around the jobs.

    Attributes:
        providers: clouds whose recorded offers are part of the world ("aws", "gcp").
        offers: names of the only offers of clouds that are part of it; empty: all.
        owned_executors: executors of the first owned cluster; 0: there is no owned cluster.
        owned_elastic: executors added to the first owned cluster while it is full, at most.
        more_owned: further owned clusters, each beside another region.
        elastic_step: executors added to an elastic cluster, or taken back, at once, every 300 s.
        elastic_window_s: how long after it was full an elastic cluster stays extended.
        spot_quota: most spot instances per offer.
        on_demand_quota: most on-demand instances per offer.
        notice_missed: probability that an interruption comes without its notice.
        window: J, jobs shown in one observation.
        decision_interval_s: a job that was told "none" asks again after this.
        reconsider_interval_s: a job on on-demand capacity may be moved this often; 0 is never.
        failure_s: seconds until a failed launch is known.
        restart_s: seconds to set a job up on fresh instances.
        bandwidth_inside_gb_s: transfer speed inside a region.
        bandwidth_across_gb_s: transfer speed between regions.
        dump_base_s: a checkpoint takes dump_base_s + GB / dump_gb_s seconds.
        dump_gb_s: see above.
        hibernate: whether interrupted AWS spot instances hibernate (else they terminate).
        disk_gb: disk kept per hibernated instance.
        disk_usd_gb_hour: its price.
        strict_fifo: whether a job that does not fit blocks those behind it in an owned cluster's queue.
        beta: decay of mutual misses per later deployment on a cluster (Liu 2022, section 5.3).
        miss_usd: what a missed time-critical job costs in the objective.
        batch_miss_usd: what a late batch costs.
        delay_usd_hour: what an hour of delay costs, per job.
        mutual_weight: default weight of mutual misses in the scalarised value, as a share of `miss_usd`.
        owned_usd_hour: default weight of an owned executor-hour there: what it is worth to other jobs.
        margin_s: recorded time wanted after the last arrival when an episode's window is drawn.
        max_decisions: an episode is truncated beyond these.
        max_s: an episode is truncated beyond these.
        traces: a user's own traces (docs/traces.md); "" uses the recorded bundle.
    """

    providers: list[str] = field(default_factory=lambda: ["aws", "gcp"])
    offers: list[str] = field(default_factory=list)
    owned_executors: int = 8
    owned_elastic: int = 0
    more_owned: list[OwnedConfig] = field(default_factory=list)
    elastic_step: int = 2
    elastic_window_s: int = 3600
    spot_quota: int = 8
    on_demand_quota: int = 16
    notice_missed: float = 0.05
    window: int = 8
    decision_interval_s: int = 300
    reconsider_interval_s: int = 1800
    failure_s: int = 60
    restart_s: int = 120
    bandwidth_inside_gb_s: float = 1.0
    bandwidth_across_gb_s: float = 0.25
    dump_base_s: float = 2.0
    dump_gb_s: float = 1.0
    hibernate: bool = False
    disk_gb: float = 100.0
    disk_usd_gb_hour: float = 0.08 / 730.0
    strict_fifo: bool = False
    beta: float = 0.95
    miss_usd: float = 25.0
    batch_miss_usd: float = 5.0
    delay_usd_hour: float = 0.25
    mutual_weight: float = 0.2
    owned_usd_hour: float = 0.2
    margin_s: int = 12 * 3600
    max_decisions: int = 50_000
    max_s: int = 14 * 86_400
    traces: str = ""

    def validate(self) -> None:
        """Check every parameter. Raises WorldError naming it, its value and what is expected."""
        require(
            all(name in PROVIDERS[1:] for name in self.providers),
            f"market.providers is {list(self.providers)}",
            "names among " + ", ".join(PROVIDERS[1:]),
        )
        shares(self, "market", "notice_missed")
        at_least(self, "market", 0, "owned_executors", "owned_elastic", "elastic_window_s")
        at_least(self, "market", 1, "elastic_step")
        for owned in self.more_owned:
            at_least(owned, f"market.more_owned of {owned.region}", 1, "executors", "hetero_factor")
            at_least(owned, f"market.more_owned of {owned.region}", 0, "elastic")
        at_least(self, "market", 1, "spot_quota", "on_demand_quota")
        at_least(self, "market", 1, "window", "decision_interval_s", "failure_s", "max_decisions", "max_s")
        at_least(self, "market", 0, "reconsider_interval_s", "restart_s", "margin_s", "dump_base_s")
        at_least(self, "market", 0, "disk_gb", "disk_usd_gb_hour", "batch_miss_usd", "delay_usd_hour")
        at_least(self, "market", 0, "mutual_weight", "owned_usd_hour")
        for label in ("bandwidth_inside_gb_s", "bandwidth_across_gb_s", "dump_gb_s", "miss_usd"):
            value = getattr(self, label)
            require(0 < value < math.inf, f"market.{label} is {value}", "a number > 0")
        require(0.0 < self.beta <= 1.0, f"market.beta is {self.beta}", "a decay in (0, 1]")


def _every_kind() -> WorkloadConfig:
    return WorkloadConfig(
        federated=True,
        applications=ApplicationsConfig(share=0.05),
        bags=BagsConfig(share=0.05),
        workflows=WorkflowsConfig(share=0.1),
    )


def _three_owned() -> MarketConfig:
    # The first has the factor of a V100, 70.
    return MarketConfig(more_owned=[OwnedConfig("us-west-2", 6, 55), OwnedConfig("us-central1", 4, 100)])


@dataclass
class MarketWorldConfig:
    """What arrives in a market world, where it may run, and what bounds every policy.

    By default every kind of work arrives, and there are three owned clusters of different speed.
    """

    workload: WorkloadConfig = field(default_factory=_every_kind)
    market: MarketConfig = field(default_factory=_three_owned)
    guards: GuardsConfig = field(default_factory=GuardsConfig)

    def validate(self) -> None:
        """Check all parts. Raises WorldError naming the parameter, its value and what is expected."""
        self.workload.validate()
        self.market.validate()
        self.guards.validate()
