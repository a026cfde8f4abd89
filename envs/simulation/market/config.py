"""What a market world can be told: its offers, prices of waste, job mix and timing."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal, get_args

from spotweave.envs.simulation.arrivals import ArrivalConfig
from spotweave.envs.simulation.guards import GuardsConfig
from spotweave.envs.simulation.world import at_least, bounds, require, shares

# What federated applications, bags and workflows of a market world's workload are like.


def _number(share: float, arrivals: int) -> int:
    """How many arrivals a share is: none of 0, else at least one."""
    return min(arrivals, max(1, round(share * arrivals))) if share > 0 else 0


_GROUP = "workload.applications"


@dataclass
class ApplicationsConfig:
    """Federated applications among the arrivals, with `workload.federated`; [a, b] are inclusive bounds."""

    # of the arrivals, how many are applications (at least one is; its tasks come on top of `workload.jobs`)
    share: float = 0.1
    clients: list[int] = field(default_factory=lambda: [3, 8])  # clients of an application
    rounds: list[int] = field(default_factory=lambda: [5, 20])  # synchronous rounds of an application
    # standard time of its slowest possible client's epoch, log-uniform
    epoch_s: list[int] = field(default_factory=lambda: [300, 1800])
    # a client's epoch as a share of that: how unequal the clients' data are
    client_share: list[float] = field(default_factory=lambda: [0.25, 1.0])
    epoch_spread: float = 0.1  # an epoch takes up to this share more or less than usual, drawn again for each
    # what a first epoch on a new instance takes longer, as a share of the client's epoch
    cold_share: list[float] = field(default_factory=lambda: [0.1, 0.5])
    # standard time that the server takes to aggregate
    aggregation_s: list[int] = field(default_factory=lambda: [5, 30])
    # a client's data, log-uniform; they lie in a region of their own
    data_gb: list[float] = field(default_factory=lambda: [0.5, 20.0])
    checkpoint_gb: list[float] = field(default_factory=lambda: [0.1, 2.0])  # size of the model, log-uniform
    checkpoint_interval_s: int = 300  # seconds of an epoch between checkpoints; 0 takes none
    deadline: float = 0.5  # share of the applications that have a deadline
    # time allowed as a multiple of the application's standard time
    slack: list[float] = field(default_factory=lambda: [1.5, 3.0])
    slack_s: int = 1800  # fixed allowance on top, seconds
    budget: float = 0.25  # share of the clients that have a budget
    # USD of budget per hour of the client's standard time in all rounds
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
    """Bags of tasks among the arrivals: one-executor tasks that arrive together, with one deadline if any."""

    # of the arrivals, how many are bags (0: none, else at least one). Their tasks come on top of
    # `workload.jobs`.
    share: float = 0.0
    tasks: list[int] = field(default_factory=lambda: [5, 20])  # tasks of a bag
    task_s: list[int] = field(default_factory=lambda: [300, 7200])  # standard time of a task, log-uniform
    deadline: float = 0.75  # share of the bags that have a deadline
    # time allowed as a multiple of the longest task's standard time
    slack: list[float] = field(default_factory=lambda: [1.5, 4.0])
    slack_s: int = 1800  # fixed allowance on top, seconds
    data_gb: list[float] = field(default_factory=lambda: [0.1, 5.0])  # input of a task, log-uniform

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
    """

    # of the arrivals, how many are workflows (0: none, else at least one). Their steps come on top of
    # `workload.jobs`.
    share: float = 0.0
    stages: list[int] = field(default_factory=lambda: [2, 5])  # stages of a workflow
    width: list[int] = field(default_factory=lambda: [1, 4])  # steps of a stage
    step_s: list[int] = field(default_factory=lambda: [300, 5400])  # standard time of a step, log-uniform
    executors: list[int] = field(default_factory=lambda: [1, 4])  # that a step needs at once
    start_s: int = 300  # what the start of a stage is taken to need
    # time allowed for the whole as a multiple of its longest path, starts included
    slack: list[float] = field(default_factory=lambda: [1.5, 3.0])
    # input of a step, log-uniform, read where the workflow's data lie
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
    """The job mix. [a, b] are inclusive bounds; see `envs.simulation.market.workload` for the laws."""

    jobs: int = 120  # jobs per episode
    # folder of a job trace (docs/traces.md), whose arrivals, durations and executors the jobs have; none of
    # them is a stream. "": they are drawn.
    trace: str = ""
    # arrival pattern; one time unit of it is `arrival_unit_s` seconds (`times` are in seconds)
    arrivals: ArrivalConfig = field(default_factory=_poisson)
    # seconds per time unit of the pattern: the load knob. A job trace keeps its pace at 160; at 80 its jobs
    # arrive twice as fast.
    arrival_unit_s: int = ARRIVAL_UNIT_S
    hourly: bool = True  # whether the load follows the recorded hours of the day (not for a trace)
    # share of jobs without a deadline (the categories are those of Liu 2022, section 5.2)
    general: float = 0.4
    time_critical: float = 0.35  # share of jobs with one deadline
    streaming: float = 0.25  # share of jobs that work through batches, each with a deadline
    # executors that a job may need at once; empty: as fitted to the Philly cluster
    gangs: list[int] = field(default_factory=list)
    gang_weights: list[float] = field(default_factory=list)  # how often each of `gangs` occurs
    # bounds that the standard time of one-shot jobs is clipped to
    standard_s: list[int] = field(default_factory=lambda: [600, 36_000])
    # hetero factor that a standard time refers to
    expected_hetero: list[int] = field(default_factory=lambda: [55, 100])
    # heterogeneity sensitivity `sen` of Liu 2022, section 5.3
    sensitivity: list[int] = field(default_factory=lambda: [1, 5])
    zeta: float = 10.0  # the range of that sensitivity is expected_hetero +- sensitivity * zeta
    # time-critical: allowed time as a multiple of the standard time
    slack: list[float] = field(default_factory=lambda: [1.3, 3.0])
    slack_s: int = 900  # time-critical: fixed allowance on top, seconds
    period_s: list[int] = field(default_factory=lambda: [600, 1800])  # streaming: seconds between batches
    batches: list[int] = field(default_factory=lambda: [12, 48])  # streaming: number of batches
    # streaming: standard time of a batch / period
    batch_work: list[float] = field(default_factory=lambda: [0.3, 0.6])
    # streaming: time allowed for a batch once its data are complete / period
    batch_allowance: list[float] = field(default_factory=lambda: [1.0, 1.5])
    data_gb_median: float = 30.0  # of the lognormal size of the input
    data_gb_sigma: float = 0.9  # standard deviation of its logarithm
    data_gb: list[float] = field(default_factory=lambda: [5.0, 200.0])  # bounds that it is clipped to
    # bounds of the checkpoint's size (log-uniform)
    checkpoint_gb: list[float] = field(default_factory=lambda: [1.0, 20.0])
    checkpoint_interval_s: int = 1800  # seconds of work between checkpoints of one-shot jobs; 0 takes none
    # whether some arrivals are federated applications: servers and clients that train in rounds
    federated: bool = False
    applications: ApplicationsConfig = field(default_factory=ApplicationsConfig)  # what these are like
    # how many arrivals are bags of tasks, and what these are like
    bags: BagsConfig = field(default_factory=BagsConfig)
    # how many arrivals are workflows, and what these are like
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
    """The world around the jobs."""

    # clouds whose recorded offers are part of the world ("aws", "gcp")
    providers: list[str] = field(default_factory=lambda: ["aws", "gcp"])
    # names of the only offers of clouds that are part of it; empty: all
    offers: list[str] = field(default_factory=list)
    owned_executors: int = 8  # executors of the first owned cluster; 0: there is no owned cluster
    owned_elastic: int = 0  # executors added to the first owned cluster while it is full, at most
    # further owned clusters, each beside another region
    more_owned: list[OwnedConfig] = field(default_factory=list)
    elastic_step: int = 2  # executors added to an elastic cluster, or taken back, at once, every 300 s
    elastic_window_s: int = 3600  # how long after it was full an elastic cluster stays extended
    spot_quota: int = 8  # most spot instances per offer
    on_demand_quota: int = 16  # most on-demand instances per offer
    notice_missed: float = 0.05  # probability that an interruption comes without its notice
    window: int = 8  # J, jobs shown in one observation
    decision_interval_s: int = 300  # a job that was told "none" asks again after this
    reconsider_interval_s: int = 1800  # a job on on-demand capacity may be moved this often; 0 is never
    failure_s: int = 60  # seconds until a failed launch is known
    restart_s: int = 120  # seconds to set a job up on fresh instances
    bandwidth_inside_gb_s: float = 1.0  # transfer speed inside a region
    bandwidth_across_gb_s: float = 0.25  # transfer speed between regions
    dump_base_s: float = 2.0  # a checkpoint takes dump_base_s + GB / dump_gb_s seconds
    dump_gb_s: float = 1.0  # see above
    hibernate: bool = False  # whether interrupted AWS spot instances hibernate (else they terminate)
    disk_gb: float = 100.0  # disk kept per hibernated instance
    disk_usd_gb_hour: float = 0.08 / 730.0  # its price
    # whether a job that does not fit blocks those behind it in an owned cluster's queue
    strict_fifo: bool = False
    beta: float = 0.95  # decay of mutual misses per later deployment on a cluster (Liu 2022, section 5.3)
    miss_usd: float = 25.0  # what a missed time-critical job costs in the objective
    batch_miss_usd: float = 5.0  # what a late batch costs
    delay_usd_hour: float = 0.25  # what an hour of delay costs, per job
    # default weight of mutual misses in the scalarised value, as a share of `miss_usd`
    mutual_weight: float = 0.2
    # default weight of an owned executor-hour there: what it is worth to other jobs
    owned_usd_hour: float = 0.2
    margin_s: int = 12 * 3600  # recorded time wanted after the last arrival when an episode's window is drawn
    max_decisions: int = 1_000_000  # an episode is truncated beyond these
    max_s: int = 14 * 86_400  # an episode is truncated beyond these
    traces: str = ""  # a user's own traces (docs/traces.md); "" uses the recorded bundle

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
    # The first has the factor of a V100, 70. First and last double while they are full.
    return MarketConfig(
        owned_elastic=8,
        more_owned=[OwnedConfig("us-west-2", 6, 55), OwnedConfig("us-central1", 4, 100, elastic=4)],
    )


@dataclass
class MarketWorldConfig:
    """What arrives in a market world, where it may run, and what bounds every policy.

    By default every kind of work arrives, and of three owned clusters of different speed two are elastic.
    """

    workload: WorkloadConfig = field(default_factory=_every_kind)
    market: MarketConfig = field(default_factory=_three_owned)
    guards: GuardsConfig = field(default_factory=GuardsConfig)

    def validate(self) -> None:
        """Check all parts. Raises WorldError naming the parameter, its value and what is expected."""
        self.workload.validate()
        self.market.validate()
        self.guards.validate()
