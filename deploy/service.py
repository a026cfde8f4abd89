"""One deployment put together: store, provider, runners, policies, loop."""

from __future__ import annotations

import gc
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import structlog
from prometheus_client import CollectorRegistry

from spotweave.deploy.clouds import (
    count_offers,
    missing,
    open_checkpoints,
    open_providers,
    require_all_rented,
    transfers_of,
)
from spotweave.deploy.config import DeploymentConfig, RunnersConfig
from spotweave.deploy.heartbeats import Heartbeats
from spotweave.deploy.model.clock import SystemClock
from spotweave.deploy.model.instances import Offer
from spotweave.deploy.model.jobs import JobSpec, TaskKey
from spotweave.deploy.model.tasks import Assignment
from spotweave.deploy.node.api import NodeStatus
from spotweave.deploy.node.client import NodeClient, NodeError
from spotweave.deploy.objects.location import Objects
from spotweave.deploy.providers.base import ProviderError
from spotweave.deploy.pruning import Pruning
from spotweave.deploy.runners.bag.runner import BagRunner
from spotweave.deploy.runners.bag.task import BagSettings
from spotweave.deploy.runners.base import Printed, Runner, RunnerError, StartingError
from spotweave.deploy.runners.detached import Limits
from spotweave.deploy.runners.flower.runner import FlowerRunner, FlowerSettings
from spotweave.deploy.runners.spark.runner import SparkRunner
from spotweave.deploy.runners.spark.settings import SparkSettings
from spotweave.deploy.runners.workers import PATIENCE_S
from spotweave.deploy.runners.workflow.files import WorkflowSettings
from spotweave.deploy.runners.workflow.runner import WorkflowRunner
from spotweave.deploy.scheduler.chooser import Policies
from spotweave.deploy.scheduler.decider import Decider, combined, load_federated_policy, load_market_policy
from spotweave.deploy.scheduler.loop import Scheduler
from spotweave.deploy.scheduler.metrics import SchedulerMetrics
from spotweave.deploy.scheduler.plans import Plans
from spotweave.deploy.scheduler.settings import SchedulerSettings
from spotweave.deploy.security.sandbox import NO_SANDBOX, Sandbox
from spotweave.deploy.security.trial import choose
from spotweave.deploy.store.instances import Instance
from spotweave.deploy.store.intents import Mode
from spotweave.deploy.store.jobs import Job
from spotweave.deploy.store.store import Store
from spotweave.deploy.yamlfile import ConfigError

_HEARTBEAT_WITHIN_S = 5.0
log = structlog.get_logger("service")


def open_store(config: DeploymentConfig, now_s: float) -> Store:
    """The deployment's store, made if there is none.

    Raises ValueError (one line) if the state folder cannot be written or the database cannot be used.
    """
    state = config.state_folder
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Probes for permissions would not tell of a file system that is mounted read-only.
        with tempfile.TemporaryFile(dir=state):
            pass
    except OSError as error:
        raise ConfigError(
            f"cannot write to the state folder {state}: {error.strerror}; give this user the right, or set "
            "another folder as state"
        ) from error
    return Store.open(config.store_url, now_s, key_file=config.key_file)


class Service:
    """A deployment on this machine. One process leads it at a time. Nothing runs before `run`.

    Attributes:
        registry: metrics of everything but HTTP.
        stopping: set it, and `run` returns after its pass.

    Raises:
        ValueError: one line, for a configuration, policy, store or cloud account that cannot be used, or a
            deployment that another process leads.
    """

    def __init__(self, config: DeploymentConfig) -> None:
        self.config = config
        self.clock = SystemClock()
        self.registry = CollectorRegistry()
        self.stopping = threading.Event()
        self._last_pass_s: float | None = None
        with ExitStack() as opened:
            self.store = open_store(config, self.clock.now())
            opened.callback(self.store.close)
            self._lead = self.store.lead()
            opened.callback(self._lead.release)
            require_all_rented(config, self.store.instances.live())
            self._refuse_in_vain()
            self.sandbox = open_sandbox(config)
            self.providers = open_providers(config, sandbox=self.sandbox)
            for provider in self.providers.values():
                opened.callback(provider.close)
            self.runners = make_runners(
                config.runners,
                config.state_folder,
                open_checkpoints(config),
                self.sandbox,
                config.data_folders(),
            )
            offers = self._first_offers()
            self.heartbeats = Heartbeats(self.store, self.clock, node_status)
            opened.callback(self.heartbeats.close)
            settings = SchedulerSettings(
                **config.scheduler.model_dump(), transfers=transfers_of(config), budget_usd=config.budget_usd
            )
            policies = load_policies(config, sum(count_offers(config).values()), strict=False)
            for reason in policies.unusable:
                log.error("policy unusable; its rule decides", error=reason)
                with self.store.transaction():
                    self.store.events.add("policy.unusable", self.clock.now(), {"reason": reason})
            if config.policy.workflows is not None:
                policies.plans = Plans(config.policy.workflows, settings.set_up_s, settings.transfers)
            self.scheduler = Scheduler(
                self.store,
                self.providers,
                self.runners,
                policies,
                self.clock,
                self.heartbeats,
                settings,
                SchedulerMetrics(self.registry),
            )
            # Jobs are judged by them from the first request on, also before the first pass has ended.
            self.scheduler.observer.offers = offers
            opened.pop_all()

    def _refuse_in_vain(self) -> None:
        """Refuse to begin where no launch could succeed; but what is rented already must be looked after."""
        wrong = "" if self.config.policy.mode is Mode.DRY_RUN else missing(self.config)
        if wrong and not self.store.instances.live():
            raise ConfigError(wrong)
        if wrong:
            log.error("nothing can be launched; what runs is looked after", error=wrong)

    def _first_offers(self) -> list[Offer]:
        found: list[Offer] = []
        for name, provider in self.providers.items():
            try:
                found += provider.offers()
            except ProviderError as error:
                if not self.store.instances.live():
                    raise ConfigError(str(error)) from error
                log.warning("offers unknown", provider=name, error=str(error))
        return found

    # What the policy server asks (`deploy.server.context.SchedulerView`).

    def offers(self) -> Sequence[Offer]:
        """As they were in the latest pass."""
        return self.scheduler.observer.offers

    def last_pass_s(self) -> float | None:
        """Epoch seconds of the latest pass; None before the first."""
        return self._last_pass_s

    def check(self, spec: JobSpec, folder: str) -> None:
        """Refuse a job that its runner could not run. Raises ValueError (one line)."""
        self._runner(spec).check(spec, folder)

    def log(self, job: Job, name: str, attempt: int, offset: int, most_bytes: int) -> Printed:
        """Part of what an attempt has printed; see `Runner.log`. Raises ValueError (one line)."""
        key = TaskKey(job.job_id, name)
        nodes = tuple(
            one.node
            for one in self.store.instances.of_job(job.job_id)
            if one.key == key and one.state.live and one.port
        )
        assignment = Assignment(key, attempt, job.spec, nodes, job.workdir)
        try:
            return self._runner(job.spec).log(assignment, offset, most_bytes)
        except RunnerError as error:
            raise ValueError(str(error)) from error

    def _runner(self, spec: JobSpec) -> Runner:
        for runner in self.runners:
            if spec.work.kind in runner.kinds:
                return runner
        raise ValueError(f"nothing here runs jobs of kind {spec.work.kind}")

    def run(self) -> None:
        """Passes until `stopping` is set. A pass that fails is logged; the next one goes on.

        It ends also when the lead is lost: somebody who removes its lock, or a database server that restarts,
        lets it go, and then another process may act. While it is not known, no pass is made.
        """
        if self.sandbox.apart:
            log.info("jobs run in a sandbox", mode=str(self.sandbox.mode))
        else:
            log.warning("jobs run with all rights of the scheduler: a submitter is its operator")
        for runner in self.runners:
            try:
                runner.start()
            except StartingError as error:
                log.info("a runner starts", progress=str(error))
            except RunnerError as error:
                log.warning("a runner did not start; it is tried again with each job", error=str(error))
        pruning = Pruning(self.store, self.config.jobs_folder, self.clock)
        pruning.start()
        self.heartbeats.start()
        # What is there by now stays: looking through it for garbage would take a fifth of a second each time.
        gc.freeze()
        try:
            while not self.stopping.is_set():
                try:
                    if not self.leads():
                        log.error("the lead of the deployment is lost")
                        return
                    self.scheduler.step()
                    self._last_pass_s = self.clock.now()
                except Exception:
                    # The world goes on without us: whatever it was, the next pass looks again.
                    log.exception("a pass failed")
                self.stopping.wait(self.scheduler.settings.period_s)
        finally:
            self.heartbeats.close()
            pruning.close()

    def leads(self) -> bool:
        """Whether this process still is the one that acts. Raises StoreError if that is not known now."""
        return self._lead.held()

    def idle(self) -> bool:
        """Whether there is nothing that a next `run` would have to look after."""
        store = self.store
        return not (store.jobs.live() or store.instances.live() or store.intents.pending())

    def shutdown(self) -> None:
        """End what all jobs share (Spark's master). For a deployment that is idle, or shall be."""
        for runner in self.runners:
            runner.shutdown()

    def close(self) -> None:
        """Let go of the store and of connections. What runs goes on running."""
        self._lead.release()
        self.store.close()
        for provider in self.providers.values():
            provider.close()


def load_policies(config: DeploymentConfig, n_offers: int, strict: bool = True) -> Policies:
    """Load the acting policies and, in mode "shadow", the observed ones.

    Raises ValueError (one line) if one of them cannot be used.
    """
    policy, acting = config.policy, config.policy.acting
    market = load_market_policy(policy.market, n_offers, policy.weights, strict)
    federated = load_federated_policy(policy.federated, market, n_offers, strict)
    unusable = [market.unusable, federated.unusable]
    named = Decider(combined(market, federated), components=market.components)
    acts, watched = named, None
    if policy.mode is Mode.SHADOW:
        # Nothing is learned from a policy that watches itself: what both name is one object.
        if acting.market != policy.market:
            market = load_market_policy(acting.market, n_offers, strict=strict)
        if acting.federated != policy.federated:
            federated = load_federated_policy(acting.federated, market, n_offers, strict)
        unusable += [market.unusable, federated.unusable]
        acts, watched = Decider(combined(market, federated), components=market.components), named
    reasons = tuple(dict.fromkeys(filter(None, unusable)))
    return Policies(acts, policy.mode, watched, unusable=reasons)


def open_sandbox(config: DeploymentConfig) -> Sandbox:
    """What keeps jobs apart here, tried out. Raises SandboxError (one line) if nothing does."""
    runners = config.runners
    return choose(
        runners.sandbox,
        trust=runners.trust_submitters,
        state=config.state_folder,
        hidden=(config.folder,),
        readable=runners.readable,
        numbers=runners.ids,
    )


def make_runners(
    config: RunnersConfig,
    state: Path,
    checkpoints: Objects | None = None,
    sandbox: Sandbox = NO_SANDBOX,
    data: Mapping[str, Path] | None = None,
) -> list[Runner]:
    """All runners, for nodes that reach this machine at `config.address`.

    Args:
        config: of the runners.
        state: folder of the deployment.
        checkpoints: of federated jobs and bags; None: they are on this machine only.
        sandbox: around jobs' code.
        data: by region: the folder in which its cluster keeps what workflows read.
    """
    limits = Limits(
        memory_bytes=int(config.driver_memory_most_gib * (1 << 30)),
        folder_bytes=int(config.driver_files_most_gib * (1 << 30)),
        log_bytes=int(config.driver_log_most_mib * (1 << 20)),
        processes=config.driver_processes_most,
    )
    address = str(config.address)
    spark = SparkSettings(
        state=state / "spark",
        address=address,
        node_spark_home=config.node_spark_home,
        node_python=config.node_python,
        node_java_home=config.node_java_home,
        checkpoints=config.checkpoints.spark,
        sandbox=sandbox,
        limits=limits,
    )
    return [
        SparkRunner(spark, PATIENCE_S),
        WorkflowRunner(WorkflowSettings(state=state / "workflow", spark=spark, data=data or {})),
        FlowerRunner(
            FlowerSettings(
                state=state / "flower",
                host=address,
                node_python=config.node_python or sys.executable,
                checkpoints=checkpoints,
                sandbox=sandbox,
                limits=limits,
                server_gpus=config.server_gpus,
            )
        ),
        BagRunner(
            BagSettings(
                state=state / "bag",
                checkpoints=checkpoints,
                node_python=config.node_python or sys.executable,
                sandbox=sandbox,
            )
        ),
    ]


def node_status(instance: Instance) -> NodeStatus | None:
    """What an instance's node agent says; None while it does not answer."""
    try:
        return NodeClient(
            instance.address,
            instance.port,
            instance.node_token,
            instance.certificate,
            within_s=_HEARTBEAT_WITHIN_S,
        ).status()
    except NodeError:
        return None
