"""One deployment put together: store, provider, runners, policies, loop."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Sequence
from pathlib import Path

import structlog

from deploy.config import DeploymentConfig
from deploy.jobfile import copy_files, read_job
from deploy.model.clock import SystemClock
from deploy.model.instances import Offer
from deploy.model.jobs import JobSpec, JobState
from deploy.node.client import NodeClient, NodeError
from deploy.providers.base import Provider
from deploy.providers.local.provider import LocalProvider
from deploy.runners.base import Runner, RunnerError
from deploy.runners.flower.runner import FlowerRunner, FlowerSettings
from deploy.runners.spark.runner import SparkRunner
from deploy.runners.spark.settings import SparkSettings
from deploy.scheduler.choosing import Policies
from deploy.scheduler.decider import Decider
from deploy.scheduler.loop import Scheduler
from deploy.scheduler.policies import load_market_policy, load_round_policy
from deploy.scheduler.settings import SchedulerSettings
from deploy.store.instances import Instance
from deploy.store.jobs import Job
from deploy.store.store import Store

log = structlog.get_logger("service")


class Service:
    """A deployment on this machine. One process leads it at a time.

    Args:
        config: of the deployment.

    Raises:
        ValueError: one line, for a configuration, policy or store that cannot be used, or a deployment that
            another process leads.
    """

    def __init__(self, config: DeploymentConfig) -> None:
        state = config.state_folder
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.config = config
        self.clock = SystemClock()
        local = LocalProvider(config.local_provider())
        self.providers: dict[str, Provider] = {local.name: local}
        self.runners: list[Runner] = [
            SparkRunner(SparkSettings(state=state / "spark")),
            FlowerRunner(FlowerSettings(state=state / "flower")),
        ]
        n_offers = len(local.offers())
        policy = config.policy
        market = load_market_policy(policy.market, n_offers, policy.weights)
        rounds = load_round_policy(policy.federated, n_offers)
        policies = Policies(
            market=Decider(market.policy, components=market.components),
            rounds=Decider(rounds.policy, window=1),
            mode=policy.mode,
        )
        self.store = Store.open(config.store_url, self.clock.now())
        self._lead = self.store.lead()
        loop = config.scheduler
        self.scheduler = Scheduler(
            self.store,
            self.providers,
            self.runners,
            policies,
            self.clock,
            node_answers,
            SchedulerSettings(
                period_s=loop.period_s,
                ask_again_s=loop.ask_again_s,
                cool_down_s=loop.cool_down_s,
                ready_within_s=loop.ready_within_s,
            ),
        )
        self.stopping = threading.Event()
        self._last_pass_s: float | None = None

    # What the policy server asks (`deploy.server.context.SchedulerView`).

    def offers(self) -> Sequence[Offer]:
        """As they were in the latest pass."""
        return self.scheduler.observer.offers

    def last_pass_s(self) -> float | None:
        """Epoch seconds of the latest pass; None before the first."""
        return self._last_pass_s

    def check(self, spec: JobSpec, folder: str) -> None:
        """Refuse a job that its runner could not run. Raises ValueError (one line)."""
        for runner in self.runners:
            if spec.work.kind in runner.kinds:
                runner.check(spec, folder)
                return
        raise ValueError(f"nothing here runs jobs of kind {spec.work.kind}")

    def submit(self, path: Path, submitter: str) -> str:
        """Take a job file: its files are copied, checked, and then it waits for a place. Returns its id.

        Raises:
            ValueError: one line; nothing is kept then.
        """
        spec = read_job(path)
        job_id = f"{spec.name}-{secrets.token_hex(4)}"
        workdir = self.config.state_folder / "jobs" / job_id
        workdir.mkdir(mode=0o700, parents=True)
        copy_files(spec, path.parent, workdir)
        self.check(spec, str(workdir))
        now_s = self.clock.now()
        with self.store.transaction():
            self.store.jobs.add(Job(job_id, spec, JobState.PENDING, now_s, str(workdir), submitter))
            self.store.events.add("job.submitted", now_s, {"by": submitter}, job_id=job_id)
        return job_id

    def run(self) -> None:
        """Passes until `stopping` is set. A pass that fails is logged; the next one goes on."""
        for runner in self.runners:
            try:
                runner.start()
            except RunnerError as error:
                log.warning("a runner did not start; it is tried again with each job", error=str(error))
        while not self.stopping.is_set():
            try:
                self.scheduler.step()
                self._last_pass_s = self.clock.now()
            except Exception:
                # The world goes on without us: whatever it was, the next pass looks anew.
                log.exception("a pass failed")
            self.stopping.wait(self.scheduler.settings.period_s)

    def close(self) -> None:
        """Let go of the store and of connections. What runs goes on running."""
        self._lead.release()
        self.store.close()
        for provider in self.providers.values():
            provider.close()


def node_answers(instance: Instance) -> bool:
    """Whether an instance's node agent answers and takes work."""
    try:
        with NodeClient(instance.address, instance.port, instance.node_token) as node:
            return not node.status().draining
    except NodeError:
        return False
