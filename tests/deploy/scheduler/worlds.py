"""A scheduler in front of a simulated cloud, with jobs to submit."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry

from benchmarks.simulated import (
    SimulatedCloud,
    SimulatedNodes,
    SimulatedOffer,
    SimulatedProvider,
    SimulatedRunner,
)
from spotweave.agents.policy import Policy
from spotweave.deploy.model.clock import VirtualClock
from spotweave.deploy.model.instances import InstanceReport, LaunchRequest, Market, Offer
from spotweave.deploy.model.jobs import JobSpec, JobState, Places, Resources, SparkBatch, TaskKey
from spotweave.deploy.providers.base import Provider
from spotweave.deploy.scheduler.chooser import Policies
from spotweave.deploy.scheduler.decider import Decider, combined, load_federated_policy, load_market_policy
from spotweave.deploy.scheduler.loop import Scheduler
from spotweave.deploy.scheduler.metrics import SchedulerMetrics
from spotweave.deploy.scheduler.needs import Kind, Need
from spotweave.deploy.scheduler.retries import end_job
from spotweave.deploy.scheduler.settings import SchedulerSettings
from spotweave.deploy.store.events import Event
from spotweave.deploy.store.intents import CandidateRecord, DecisionRecord, Mode
from spotweave.deploy.store.jobs import Job
from spotweave.deploy.store.store import Store
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.snapshot import Observation
from tests.deploy.bills import wrong_charges

SETTINGS = SchedulerSettings(period_s=10.0, ask_again_s=10.0, cool_down_s=60.0)


def batch(name: str = "job", work_s: float = 300.0, instances: int = 1, **changes: Any) -> JobSpec:
    work = SparkBatch(script="x.py", standard_s=work_s, deadline_s=changes.pop("deadline_s", None))
    return JobSpec(name=name, work=work, resources=Resources(instances=instances), **changes)


def cheap_and_sure(**spot: Any) -> list[SimulatedOffer]:
    return [SimulatedOffer(rentable("spot").offer, **spot), rentable("sure", "on_demand")]


def rentable(
    name: str,
    market: Market = "spot",
    available: Callable[[float], bool] = lambda _: True,
    prices: Callable[[float], float] | None = None,
    **facts: Any,
) -> SimulatedOffer:
    """An offer of the simulated cloud; the last two say what it is over time."""
    made = offer(name, market, **{"provider": "simulated", "launch_s": 30.0, **facts})
    return SimulatedOffer(made, available, prices)


class World:
    """A cloud that goes on, a store on disk, and the scheduler of the moment."""

    def __init__(
        self,
        folder: Path,
        offers: list[SimulatedOffer],
        policy: str | Policy = "cheapest",
        mode: Mode = Mode.ACT,
        settings: SchedulerSettings = SETTINGS,
        watched: str | Policy | None = None,
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.clock = VirtualClock()
        self.cloud = SimulatedCloud(self.clock, offers)
        self.url = f"sqlite:///{folder / 'store.db'}"
        self.acting, self.watched, self.mode, self.settings = policy, watched, mode, settings
        self.folder = folder
        self._opened: Store | None = None
        self.restart()

    def restart(self) -> None:
        """A new scheduler over the same store and cloud, as after a SIGKILL."""
        if self._opened is not None:
            self._opened.close()
        self._opened = Store.open(self.url, self.clock.now(), durable=False)
        self.anew(self._opened)

    def anew(self, store: Store) -> None:
        self.store = store
        self.runner = self.runs()
        self.registry = CollectorRegistry()
        nodes, metrics = SimulatedNodes(self.cloud), SchedulerMetrics(self.registry)
        providers, runners = self.rents(), [self.runner]
        self.scheduler = Scheduler(
            store, providers, runners, self.decides(), self.clock, nodes, self.settings, metrics
        )

    def rents(self) -> dict[str, Provider]:
        self.provider = SimulatedProvider(self.cloud)
        return {"simulated": self.provider}

    def rents_from(self, provider: SimulatedProvider) -> None:
        """From now on the scheduler knows the cloud by another provider."""
        for part in (self.scheduler.observer, self.scheduler.actions):
            part._providers = {"simulated": provider}

    def decides(self) -> Policies:
        watched = None if self.watched is None else self._decider(self.watched)
        return Policies(self._decider(self.acting), self.mode, watched)

    def _decider(self, policy: str | Policy) -> Decider:
        if isinstance(policy, Policy):
            return Decider(policy)
        n_offers = self.n_offers()
        market = load_market_policy(policy, n_offers)
        federated = load_federated_policy("round_cost", market, n_offers)
        return Decider(combined(market, federated), components=market.components)

    def n_offers(self) -> int:
        return len(self.cloud.offers)

    def runs(self) -> SimulatedRunner:
        return SimulatedRunner(self.cloud)

    def events(self, *kinds: str) -> list[Event]:
        return [event for event in self.store.events.after(0, 100_000) if event.kind in kinds]

    def metric(self, name: str, **labels: str) -> float:
        value = self.registry.get_sample_value(f"spotweave_scheduler_{name}", labels)
        assert value is not None, name
        return value

    def submit(self, spec: JobSpec, number: int = 1) -> str:
        job_id = f"{spec.name}-{number}"
        with self.store.transaction():
            self.store.jobs.add(
                Job(job_id, spec, JobState.PENDING, self.clock.now(), str(self.folder), "tester")
            )
        return job_id

    def go(self, seconds: float) -> None:
        end_s = self.clock.now() + seconds
        while self.clock.now() < end_s:
            self.scheduler.step()
            self.clock.sleep(self.settings.period_s)

    def state(self, job_id: str) -> JobState:
        return self.store.jobs.get(job_id).state

    def until_all_end(self, most_s: float = 40_000.0) -> None:
        end_s = self.clock.now() + most_s
        while self.store.jobs.live():
            assert self.clock.now() < end_s, list(self.store.jobs.live())
            self.go(self.settings.period_s)
        self.go(10 * self.settings.period_s)
        assert unexplained(self.store.decisions.latest(100_000)) == []

    def ends_well(self, *job_ids: str, most_s: float = 40_000.0) -> None:
        """All jobs end, these have succeeded, and nothing is left."""
        self.until_all_end(most_s)
        assert [self.state(one) for one in job_ids] == [JobState.SUCCEEDED] * len(job_ids)
        self.check_nothing_is_left()

    def why_failed(self, job_id: str) -> str:
        """All jobs end and nothing is left: why this one has failed."""
        self.until_all_end()
        self.check_nothing_is_left()
        assert self.state(job_id) is JobState.FAILED
        return self.store.jobs.get(job_id).reason

    def cancel(self, job_id: str) -> None:
        end_job(self.store, job_id, JobState.CANCELLED, self.clock.now(), "by its owner")

    def before_launches(self, call: Callable[[LaunchRequest], None]) -> None:
        """Whatever is launched from now on, this comes first, and may raise."""
        launch = self.provider.launch

        def launching(request: LaunchRequest) -> InstanceReport:
            call(request)
            return launch(request)

        self.provider.launch = launching  # type: ignore[method-assign]

    def took_s(self, job_id: str) -> float:
        """From the submission of a job that has ended to its end."""
        job = self.store.jobs.get(job_id)
        assert job.ended_s is not None
        return job.ended_s - job.submitted_s

    def offers_taken(self) -> list[str]:
        """The offers of all machines that ever were, in the order of their launches."""
        return [machine.report.offer_id for machine in self.cloud.machines.values()]

    def spent_usd(self, job_id: str) -> float:
        return float(self.store.costs.of_job(job_id, self.clock.now()).usd)

    def check_nothing_is_left(self) -> None:
        """No machine runs, none is believed to, nothing waits to be done, the sums are those of the bills."""
        assert self.cloud.live() == []
        assert not self.cloud.drivers
        assert not self.cloud.remembered
        assert self.store.instances.live() == []
        assert self.store.intents.pending() == []
        assert wrong_charges(self.store) == []


class Restless(Policy):
    """Wants to move whatever runs to the cheapest offer of the moment."""

    name = "restless"

    def act_batch(self, observations: Observation, lanes: NDArray[np.int64]) -> NDArray[np.int64]:
        price = observations["clusters"][..., col.PRICE_USD_HOUR]
        n_offers = price.shape[1]
        valid = observations["action_mask"].reshape(len(price), -1, n_offers + 1)
        row = valid.any(2).argmax(1)
        mine = valid[np.arange(len(price)), row]
        here = observations["pairs"][np.arange(len(price)), row, :, col.HERE] > 0
        cost = np.where((mine[:, :n_offers] > 0) | here, price, np.inf)
        best = cost.argmin(1)
        stay = here[np.arange(len(price)), best] | ~np.isfinite(cost.min(1))
        return np.asarray(row * (n_offers + 1) + np.where(stay, n_offers, best), np.int64)


class Stubborn(Policy):
    """Gives one answer to everything, or raises it."""

    name = "stubborn"

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def act_batch(self, observations: Observation, lanes: NDArray[np.int64]) -> NDArray[np.int64]:
        raise AssertionError("the live side asks one by one")

    def act(self, observation: Observation) -> int:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer  # type: ignore[no-any-return]


def unexplained(decisions: Iterable[DecisionRecord]) -> list[str]:
    """Decisions where another candidate looks better than the chosen one, and no reason says why."""
    found = []
    for one in decisions:
        if any(item.reason for item in one.candidates if item.available):
            continue
        chosen = next(item for item in one.candidates if item.offer_id == one.chosen)
        found += [
            f"{one.policy} chose {one.chosen} though {item.offer_id} looks better"
            for item in one.candidates
            if item.available and _worth(item, chosen) > _worth(chosen, item)
        ]
    return found


def _worth(item: CandidateRecord, other: CandidateRecord) -> float:
    """What two candidates are compared by, to the digits that people see."""
    assert item.expected_usd is not None
    by_total = item.total is not None and other.total is not None
    return float(f"{item.total if by_total else -item.expected_usd:.3g}")


# Offers and needs with round numbers.


def offer(name: str, market: Market = "spot", **changes: Any) -> Offer:
    facts: dict[str, Any] = {
        "offer_id": name,
        "provider": "local",
        "region": "here",
        "zone": "here-a",
        "instance_type": "small",
        "market": market,
        "vcpus": 4,
        "memory_gib": 8.0,
        "gpu": None,
        "speed": 1.0,
        "price_usd_hour": 0.3 if market == "spot" else 1.0,
        "on_demand_usd_hour": 1.0,
        "available": True,
        "quota": 4,
        "mean_up_s": 7200.0,
        "launch_s": 60.0,
    }
    return Offer(**{**facts, **changes})


def need(job: str = "job", kind: Kind = "general", **changes: Any) -> Need:
    facts: dict[str, Any] = {
        "key": TaskKey(job, "main"),
        "kind": kind,
        "resources": Resources(),
        "places": Places(),
        "standard_s": 600.0,
    }
    return Need(**{**facts, **changes})
