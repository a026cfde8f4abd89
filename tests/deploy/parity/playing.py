"""The same episode twice: by the environment, and by the live loop over the simulation core; compared."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spotweave.agents.policy import Policy
from spotweave.agents.rules.policy import from_python
from spotweave.deploy.billing import CHARGES_PER_USD
from spotweave.deploy.model.instances import Offer
from spotweave.deploy.model.jobs import Flower, JobState, SparkBatch, SparkStreaming
from spotweave.deploy.scheduler.chooser import Policies
from spotweave.deploy.scheduler.decider import (
    Decider,
    Decision,
    Loaded,
    combined,
    load_market_policy,
    load_round_policy,
)
from spotweave.deploy.scheduler.loop import Scheduler
from spotweave.deploy.scheduler.needs import Need
from spotweave.deploy.scheduler.settings import SchedulerSettings
from spotweave.deploy.store.instances import Instance
from spotweave.deploy.store.jobs import Job
from spotweave.deploy.store.store import Store
from spotweave.envs.market_data import MarketWorldConfig, build_market, market_data
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.guards import GuardsConfig
from spotweave.envs.simulation.market import columns as at
from spotweave.envs.simulation.market.config import WorkloadConfig
from spotweave.envs.simulation.market.members import is_client
from spotweave.envs.simulation.market.world import MarketWorld
from spotweave.envs.simulation.snapshot import Observation, Snapshot, encode
from spotweave.envs.simulation.world import EpisodeKey
from spotweave.envs.single import WorldEnv
from tests.agents.inputs import CLUSTERS, JOBS, PAIRS
from tests.deploy.bills import bill_of
from tests.deploy.parity.core import ORIGIN_S, SimulationCore
from tests.deploy.parity.views import (
    Arrivals,
    CoreClock,
    CoreProvider,
    CoreRunner,
    providers_of,
    transfers_of,
)
from tests.deploy.parity.workload import (
    is_first,
    is_server,
    members,
    row_of,
    serve_at_once,
    server_place,
    world_of,
)


class Step(NamedTuple):
    """A decision: when (episode seconds), which job, where to (None: none for now)."""

    time_s: int
    job: int
    offer: str | None


@dataclass
class Played:
    """What came of an episode."""

    steps: list[Step] = field(default_factory=list)  # all decisions, in order
    observations: list[Observation] = field(default_factory=list)  # what the policy saw at each
    metrics: dict[str, float] = field(default_factory=dict)
    ends_s: list[int] = field(default_factory=list)  # when each job ended, by arrival


def config_of(
    jobs: int,
    *,
    guards: bool = True,
    training: bool = False,
    bags: float = 0.0,
    workflows: float = 0.0,
    **rules: float,
) -> MarketWorldConfig:
    """MultiCloud-v5 with this many jobs and streams, and these shares of bags and workflows among them.

    Owned clusters are of fixed size, as live. With `training` one job is a federated application of three
    clients, all offers being of one speed and epochs as long as they were. `rules` are other settings of the
    guards.
    """
    config = MarketWorldConfig(WorkloadConfig(jobs=jobs))
    fixed = [replace(owned, elastic=0) for owned in config.market.more_owned]
    config.market = replace(config.market, owned_elastic=0, more_owned=fixed)
    config.guards = GuardsConfig(safety_net=guards, gain_test=guards, **rules)
    if training:
        config.market.providers = ["aws"]
        config.market.owned_executors, config.market.more_owned = 1, []
        config.workload.federated = True
        applications = config.workload.applications
        applications.share, applications.clients = 1e-9, [3, 3]
        applications.budget, applications.epoch_spread = 0.0, 0.0
    config.workload.bags.share, config.workload.workflows.share = bags, workflows
    # The start of a stage takes 300 s by default; live it is what on-demand capacity takes to be set up.
    slowest_s = max(offer.launch_s for offer in market_data(config.market).offers if offer.market != "spot")
    config.workload.workflows.start_s = slowest_s + config.market.restart_s
    return config


def by_environment(policy: Policy, config: MarketWorldConfig, key: EpisodeKey) -> Played:
    """As training and evaluation play it."""
    world = world_of(config)
    env = WorldEnv(world)
    names = world.spec.cluster_names
    observation, _ = env.reset(seed=key.seed, options={"split": key.split, "index": key.index})
    policy.begin(0, key.seed)
    played = Played()
    done = False
    while not done:
        asking = _server(world)
        if asking is not None:
            server = int(world.lanes.window[0, asking])
            action = asking * (len(names) + 1) + server_place(world)
        else:
            action = int(policy.act(observation))
            row, place = divmod(action, len(names) + 1)
            job = int(world.lanes.window[0, row])
            now_s = int(world.lanes.lane[0, at.NOW_S])
            played.steps.append(Step(now_s, job, names[place] if place < len(names) else None))
            played.observations.append(observation)
        observation, _, terminated, truncated, info = env.step(action)
        done = terminated or truncated
        if asking is not None:
            serve_at_once(world, server)
    played.metrics = info["metrics"]
    played.ends_s = _ends_s(world)
    return played


def _server(world: MarketWorld) -> int | None:
    """The first row that asks for a server's place, which is no decision live."""
    shown = world.lanes.window[0, : world.lanes.lane[0, at.WINDOW_N]]
    slot = int(world.lanes.episode_of_lane[0])
    return next((k for k, job in enumerate(shown) if is_server(world.episodes, slot, int(job))), None)


def _ends_s(world: MarketWorld) -> list[int]:
    """Of jobs, applications and bags, by arrival."""
    slot, ends = int(world.lanes.episode_of_lane[0]), world.lanes.job[0, :, at.FINISH_S]
    return [
        int(ends[list(members(world.episodes, slot, job))].max())
        for job in range(int(world.episodes.n_jobs[slot]))
        if is_first(world.episodes, slot, job) and not from_python(is_client)(world.episodes, slot, job)
    ]


class Recorder(Decider):
    """A decider that remembers what it saw and chose."""

    def __init__(self, policy: Policy, clock: CoreClock, window: int, components: Sequence[str]) -> None:
        super().__init__(policy, window, components)
        self._clock = clock
        self.played = Played()

    def decide(self, snapshot: Snapshot, needs: Sequence[Need], offers: Sequence[Offer]) -> Decision:
        decision = super().decide(snapshot, needs, offers)
        now_s = int(self._clock.now()) - ORIGIN_S
        self.played.steps.append(Step(now_s, row_of(decision.need.key), decision.offer_id))
        self.played.observations.append(encode(snapshot, self.window))
        return decision


class CoreNodes:
    """Agents on the core's instances: they answer as long as these run."""

    def __init__(self, providers: Mapping[str, CoreProvider]) -> None:
        self._providers = providers

    def answers(self, instance: Instance) -> bool:
        return self._providers[instance.offer.provider].runs(instance.client_token)

    def silent_s(self, instance_id: str, now_s: float) -> float:
        return 0.0

    def lacks(self, instance_id: str) -> str:
        return ""


class Live:
    """The live loop in front of a simulation core, with a store on disk.

    Everything is the code that runs in front of clouds. Safety net, moves and reconsideration are as they
    ship. Settings make the rest as it is in the environment: no back-off, no cooling down, and the same times
    between two questions.
    """

    def __init__(
        self,
        policy: Policy,
        components: Sequence[str],
        config: MarketWorldConfig,
        key: EpisodeKey,
        folder: Path,
    ) -> None:
        self.core = SimulationCore(world_of(config), key)
        self.clock = CoreClock(self.core)
        self.arrivals = Arrivals(self.core)
        self.store = Store.open(f"sqlite:///{folder / 'store.db'}", self.clock.now(), durable=False)
        self.folder = folder
        providers = providers_of(self.core)
        policy.begin(0, key.seed)
        self.recorder = Recorder(policy, self.clock, config.market.window, components)
        self.scheduler = Scheduler(
            self.store,
            dict(providers),
            [CoreRunner(self.core)],
            Policies(self.recorder),
            self.clock,
            CoreNodes(providers),
            SchedulerSettings(
                decisions_per_pass=100_000,
                ask_again_s=float(config.market.decision_interval_s),
                back_off_s=0.0,
                cool_down_s=0.0,
                ready_within_s=float("inf"),
                losses_most=1_000_000,
                failures_most=1_000_000,
                guards=config.guards,
                reconsider_s=float(config.market.reconsider_interval_s),
                set_up_s=float(config.market.restart_s),
                transfers=transfers_of(self.core),
            ),
        )

    def play(self) -> Played:
        while True:
            for job_id, spec, submitted_s in self.arrivals.new():
                with self.store.transaction():
                    self.store.jobs.add(
                        Job(job_id, spec, JobState.PENDING, submitted_s, str(self.folder), "core")
                    )
            self.scheduler.step()
            if self.core.over:
                break
            self.clock.sleep_until(self._next_question_s())
        played = self.recorder.played
        played.metrics = self.core.metrics()
        played.ends_s = _ends_s(self.core.world)
        return played

    def _next_question_s(self) -> float:
        """When the next federated client is asked about, if nothing happens before."""
        asked = self.scheduler.chooser._roster.questions._next_s
        later = (s for key, s in asked.items() if key.task != "main" and s > self.clock.now())
        return min(later, default=math.inf)

    def books(self) -> dict[str, float]:
        """What the store alone knows of the same metrics, from its jobs, tasks, instances and bills."""
        jobs = self.store.jobs.latest(1_000_000)
        tasks = [task for job in jobs for task in self.store.tasks.of_job(job.job_id)]
        late = [
            job
            for job in jobs
            if isinstance(job.spec.work, SparkBatch | Flower)
            and job.spec.work.deadline_s is not None
            and job.ended_s is not None
            and job.ended_s > job.submitted_s + job.spec.work.deadline_s
        ]
        # The core bills no launch that failed; in the store it is an instance that ran until that was known.
        charges = sum(
            bill_of(self.store, one.instance_id, self.clock.now()).cost
            for job in jobs
            for one in self.store.instances.of_job(job.job_id)
            if one.ready_s is not None
        )
        return {
            "succeeded": float(sum(job.state is JobState.SUCCEEDED for job in jobs)),
            "miss_tc": float(
                len(late) + sum(task.misses for task in tasks if task.key.task.startswith(("task-", "step-")))
            ),
            "miss_batches": float(sum(task.misses for task in tasks if self._streams(task.key.job_id))),
            "interruptions": float(sum(task.interruptions for task in tasks)),
            "rented_usd": charges / CHARGES_PER_USD,
            "egress_usd": self.store.costs.total(self.clock.now()).egress / CHARGES_PER_USD,
        }

    def events(self, kind: str) -> int:
        return sum(event.kind == kind for event in self.store.events.after(0, 1_000_000))

    def _streams(self, job_id: str) -> bool:
        return isinstance(self.store.jobs.get(job_id).spec.work, SparkStreaming)

    def ends_in_store(self) -> list[int]:
        jobs = sorted(self.store.jobs.latest(1_000_000), key=lambda job: job.job_id)
        return [-1 if job.ended_s is None else int(job.ended_s) - ORIGIN_S for job in jobs]


def by_live_loop(name: str, config: MarketWorldConfig, key: EpisodeKey, folder: Path) -> tuple[Played, Live]:
    loaded = _loaded(name, config)
    live = Live(loaded.policy, loaded.components, config, key, folder)
    return live.play(), live


def policy_named(name: str, config: MarketWorldConfig) -> Policy:
    return _loaded(name, config).policy


def _loaded(name: str, config: MarketWorldConfig) -> Loaded:
    """A policy, or two of them as "SPARK+FEDERATED"."""
    n_offers = build_market(config).spec.n_clusters
    market, _, federated = name.partition("+")
    loaded = load_market_policy(market, n_offers)
    if not federated:
        return loaded
    both = combined(loaded, load_round_policy(federated, n_offers))
    return Loaded(both, loaded.components, name)


# How far two plays of an episode are the same, decision by decision and column by column.


CHECKPOINT_S = 25.0
"""The largest checkpoint of the default workload takes 22 s."""
_Floats = NDArray[np.float32]
_COLUMNS = {"clusters": CLUSTERS, "jobs": JOBS, "pairs": PAIRS}


@dataclass(frozen=True)
class Comparison:
    """Two plays of an episode."""

    environment: Played
    live: Played
    # columns of the observations in which entries differed before the first decision that was another, and
    # how many
    columns: dict[str, int]
    books: dict[str, float]  # what the store alone says
    ends_in_store: list[int]
    caught: int  # tasks that the safety net took off spot capacity
    moved: int  # tasks that changed their place while they ran

    @property
    def metrics(self) -> dict[str, tuple[float, float]]:
        """Metrics that differ: (environment's, live loop's).

        The core is not told of decisions that leave a federated client as it is, and counts those on servers;
        all others are compared one by one.
        """
        ours, theirs = self.live.metrics, self.environment.metrics
        counted = "rounds_per_application" not in theirs
        return {
            name: (theirs[name], ours[name])
            for name in theirs
            if theirs[name] != ours[name] and (counted or name != "decisions")
        }

    @property
    def in_store(self) -> dict[str, tuple[float, float]]:
        """What the store alone, which knows nothing of the core, has otherwise: (environment's, store's)."""
        theirs = self.environment.metrics
        expected = {
            "succeeded": float(len(self.environment.ends_s)),
            "miss_tc": theirs["miss_tc"],
            "miss_batches": theirs["miss_batches"],
            "interruptions": theirs["interruptions"],
            "rented_usd": theirs["spot_usd"] + theirs["on_demand_usd"],
            "egress_usd": theirs["egress_usd"],
        }
        # Both sums of money are of whole charges, and each is rounded once when it becomes dollars.
        return {
            name: (value, self.books[name])
            for name, value in expected.items()
            if abs(value - self.books[name]) > 1e-9
        }


def compare(policy: str, seed: int, jobs: int, folder: Path, **parts: Any) -> Comparison:
    """Play an episode of the test days twice; `parts` as in `config_of`."""
    config = config_of(jobs, **parts)
    key = EpisodeKey(seed, "test", 0)
    environment = by_environment(policy_named(policy, config), config, key)
    played, live = by_live_loop(policy, config, key, folder)
    steps = zip(played.steps, environment.steps, strict=False)
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], steps))
    try:
        return Comparison(
            environment=environment,
            live=played,
            columns=_columns(environment, played, same),
            books=live.books(),
            ends_in_store=live.ends_in_store(),
            caught=live.events("task.caught"),
            moved=live.events("task.moved"),
        )
    finally:
        live.store.close()


def _being_saved(theirs: _Floats, ours: _Floats) -> NDArray[np.bool_]:
    """(J, C, N_PAIR_FIELDS) what may differ of a job that runs: whether the checkpoint it writes counts.

    The world knows its end to the second; live it is estimated from the share that is done.
    """
    here = theirs[..., col.HERE] > 0
    close = np.abs(theirs[..., col.EXECUTION_S] - ours[..., col.EXECUTION_S]) <= CHECKPOINT_S
    may = np.zeros(theirs.shape, np.bool_)
    for column in (col.EXECUTION_S, col.EXECUTION_RATIO, col.FINISH_S, col.COST_USD):
        may[..., column] = here & close
    return may


def _columns(environment: Played, live: Played, steps: int) -> dict[str, int]:
    found: Counter[str] = Counter()
    for k in range(steps):
        theirs, ours = environment.observations[k], live.observations[k]
        for part in ("clusters", "jobs", "pairs", "occupation", "action_mask"):
            differs = np.asarray(theirs[part]) != np.asarray(ours[part])
            if part == "pairs":
                differs = differs & ~_being_saved(np.asarray(theirs[part]), np.asarray(ours[part]))
            if part not in _COLUMNS:
                found[part] += int(differs.sum())
            for column, name in enumerate(_COLUMNS.get(part, ())):
                found[f"{part}.{name}"] += int(differs[..., column].sum())
    return {name: count for name, count in found.items() if count}
