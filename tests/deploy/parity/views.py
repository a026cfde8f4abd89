"""What a scheduler sees of a simulation core: its clock, its providers, its runner, and its arriving jobs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from spotweave.agents.rules.policy import from_python
from spotweave.deploy.billing import Transfers
from spotweave.deploy.model.instances import InstanceReport, InstanceState, LaunchRequest, Offer
from spotweave.deploy.model.jobs import Bag, JobSpec, Profile, Resources, SparkBatch, SparkStreaming, TaskKey
from spotweave.deploy.model.tasks import Assignment, Phase, TaskReport
from spotweave.deploy.model.workflows import Workflow
from spotweave.deploy.runners.base import Printed
from spotweave.envs.simulation.market import columns as at
from spotweave.envs.simulation.market.episodes import recent_availability, sync_price
from spotweave.envs.simulation.market.ledger import share_done
from spotweave.envs.simulation.market.members import is_client
from spotweave.envs.simulation.snapshot import REFERENCE_HETERO, Category
from tests.deploy.parity.core import ORIGIN_S, SimulationCore, Stay
from tests.deploy.parity.workload import (
    bag_of,
    is_first,
    is_server,
    is_workflow,
    row_of,
    server_place,
    training_of,
    workflow_of,
)

KEPT_S = 3600
"""Ended instances are reported for so long."""
_LANE = 0


class CoreClock:
    """The core's time. Sleeping lets it go on to the next moment at which something can be seen."""

    def __init__(self, core: SimulationCore) -> None:
        self._core = core

    def now(self) -> float:
        return float(ORIGIN_S + self._core.now)

    def sleep(self, seconds: float) -> None:
        self.sleep_until(math.inf)

    def sleep_until(self, moment_s: float) -> None:
        self._core.go_on(moment_s - ORIGIN_S)


class CoreProvider:
    """One of the providers of a core: "owned", "aws", "gcp", "azure"."""

    def __init__(self, core: SimulationCore, name: str) -> None:
        self._core = core
        self.name = name
        self._numbers = [k for k, one in enumerate(core.world.data.offers) if one.provider == name]
        self._tokens: dict[str, Stay] = {}

    def offers(self) -> Sequence[Offer]:
        return [self._offer(number) for number in self._numbers]

    def _offer(self, c: int) -> Offer:
        core, config = self._core, self._core.world.data.offers[c]
        fixed = core.offers.fixed[c]
        available, up_ratio, spell_s, mean_up_s = from_python(recent_availability)(
            core.lanes, core.episodes, _LANE, c
        )
        price = core.episodes.price[
            core.slot, c, from_python(sync_price)(core.lanes, core.episodes, _LANE, c), at.PRICE
        ]
        return Offer(
            offer_id=config.name,
            provider=config.provider,
            region=config.region,
            zone=config.zone,
            instance_type=config.instance_type,
            market=config.market,
            vcpus=1,
            memory_gib=1.0,
            gpu=None,
            speed=config.hetero_factor / REFERENCE_HETERO,
            price_usd_hour=price / 1e6,
            on_demand_usd_hour=float(core.episodes.on_demand_usd[core.slot, c]),
            available=bool(available),
            quota=config.quota,
            up_ratio=float(up_ratio),
            spell_s=float(spell_s),
            mean_up_s=float(mean_up_s),
            launch_s=float(fixed[at.LAUNCH_S]),
            notice_s=float(fixed[at.NOTICE_S]),
            free_first_s=float(config.free_first_s),
            reason="" if available else "no capacity",
            queues=bool(fixed[at.QUEUES]),
            halted=int(core.lanes.offer[_LANE, c, at.HALTED]),
        )

    def launch(self, request: LaunchRequest) -> InstanceReport:
        """Rent an instance; with the first one the core is asked for all that the job needs."""
        if request.client_token not in self._tokens:
            names = self._core.world.spec.cluster_names
            job = row_of(TaskKey(request.job_id, request.task))
            stay = self._core.put(job, names.index(request.offer_id))
            stay.names.append(request.client_token.removeprefix(f"{request.deployment}-"))
            self._tokens[request.client_token] = stay
        return self._report(request.client_token, request.deployment)

    def describe(self, deployment: str) -> Sequence[InstanceReport]:
        now_s = self._core.now
        for token, stay in list(self._tokens.items()):
            if stay.ended_s is not None and now_s - stay.ended_s > KEPT_S:
                del self._tokens[token]
        return [self._report(token, deployment) for token in self._tokens]

    def runs(self, client_token: str) -> bool:
        """Whether the node of an instance would answer."""
        stay = self._tokens.get(client_token)
        return stay is not None and stay.ran_s is not None and stay.ended_s is None

    def terminate(self, instance_ids: Sequence[str]) -> None:
        """Nothing is to be done for instances that have ended. Raises RefusedError for those that work."""
        for token, stay in self._tokens.items():
            if token in instance_ids and stay.ended_s is None:
                self._core.release(stay)

    def close(self) -> None: ...

    def _report(self, token: str, deployment: str) -> InstanceReport:
        stay = self._tokens[token]
        began_s = stay.asked_s if stay.ran_s is None else stay.ran_s
        state = InstanceState.LAUNCHING if stay.ran_s is None else InstanceState.RUNNING
        if stay.ended_s is not None:
            state = InstanceState.TERMINATED
        return InstanceReport(
            instance_id=token,
            client_token=token,
            offer_id=self._core.world.spec.cluster_names[stay.offer],
            address="127.0.0.1",
            node_port=1,
            state=state,
            launched_s=float(ORIGIN_S + began_s),
            ended_s=None if stay.ended_s is None else float(ORIGIN_S + stay.ended_s),
            by_provider=stay.by_provider,
            tags={"deployment": deployment},
        )


class CoreRunner:
    """Says how the jobs of a core are; they start and end by themselves once they have instances."""

    kinds = ("spark-batch", "spark-streaming", "flower", "bag", "workflow")

    def __init__(self, core: SimulationCore) -> None:
        self._core = core

    def reports(self, assignments: Sequence[Assignment]) -> Sequence[TaskReport]:
        stays = {name: stay for stay in self._core.stays for name in stay.names}
        return [
            self._of_client(one, stays)
            if one.spec.work.kind == "flower"
            else self._report(one, stays[one.nodes[0].instance_id])
            for one in assignments
        ]

    def _of_client(self, assignment: Assignment, stays: Mapping[str, Stay]) -> TaskReport:
        core, job = self._core, row_of(assignment.key)
        state, server = core.lanes.job[_LANE, job], int(core.job[job, at.SERVER])
        rounds = int(core.lanes.job[_LANE, server, at.EXECUTED])
        owes = int(state[at.EXECUTED]) == rounds
        works = core.phase(job) == at.WORKING
        begins = core.phase(job) in (at.QUEUED, at.LAUNCHING, at.SETTING_UP)
        phase = Phase.STARTING if owes or begins else Phase.WAITING
        if core.phase(server) == at.DONE:
            phase = Phase.SUCCEEDED
        elif assignment.nodes and stays[assignment.nodes[0].instance_id].ended_s is not None:
            phase = Phase.LOST
        elif works:
            phase = Phase.RUNNING
        return TaskReport(
            assignment.key,
            assignment.attempt,
            phase,
            progress=rounds / int(core.job[job, at.EXECUTIONS]),
            saved=rounds / int(core.job[job, at.EXECUTIONS]),
            executions_done=rounds,
            last_execution_s=core.epochs_s.get(job),
            delivered=not owes,
            execution_since_s=float(ORIGIN_S + state[at.WORK_START_S]) if works else None,
        )

    def _report(self, assignment: Assignment, stay: Stay) -> TaskReport:
        core = self._core
        facts, state = core.job[stay.job], core.lanes.job[_LANE, stay.job]
        begins = core.phase(stay.job) in (at.QUEUED, at.LAUNCHING, at.SETTING_UP)
        phase = Phase.STARTING if begins and not stay.moved else Phase.RUNNING
        if stay.ended_s is not None:
            phase = Phase.LOST if stay.by_provider or stay.moved else Phase.SUCCEEDED
        executed = int(state[at.EXECUTED])
        region = int(state[at.CHECKPOINT_REGION])
        report = TaskReport(
            assignment.key,
            assignment.attempt,
            phase,
            executions_done=executed,
            saved_region=core.world.data.regions[region] if region >= 0 else "",
        )
        saved = core.saved(stay.job)
        if facts[at.CATEGORY] != Category.STREAMING:
            done = (
                1.0
                if phase is Phase.SUCCEEDED
                else from_python(share_done)(core.lanes, core.episodes, _LANE, stay.job)
            )
            return replace(report, progress=float(done), saved=saved, misses=int(state[at.MISSES]))
        due_s = facts[at.ARRIVAL_S] + (executed + 1) * facts[at.PERIOD_S]
        # Batches that are late and not finished yet are seen by the clock.
        overdue = max(0, int(state[at.LATE_NEXT]) - executed)
        share = executed / int(facts[at.EXECUTIONS])
        return replace(
            report,
            progress=share,
            saved=share,
            misses=int(state[at.MISSES]) - overdue,
            next_due_s=float(ORIGIN_S + due_s),
            execution_saved=saved,
        )

    def log(self, assignment: Assignment, offset: int, most_bytes: int) -> Printed:
        return Printed(b"", 0)

    # What it is told to do, it need not.

    def check(self, spec: JobSpec, folder: str) -> None: ...
    def start(self) -> None: ...
    def ensure(self, assignment: Assignment) -> None: ...
    def drain(self, assignment: Assignment, instance_ids: Sequence[str], within_s: float) -> None: ...
    def stop(self, assignment: Assignment) -> None: ...
    def leave(self, assignment: Assignment) -> None: ...
    def forget(self, job_id: str) -> None: ...
    def shutdown(self) -> None: ...


def providers_of(core: SimulationCore) -> dict[str, CoreProvider]:
    """One for each provider whose offers the core has, in their order."""
    return {one.provider: CoreProvider(core, one.provider) for one in core.world.data.offers}


def transfers_of(core: SimulationCore) -> Transfers:
    regions, offers = core.world.data.regions, core.offers
    pairs = [(i, j) for i in range(len(regions)) for j in range(len(regions))]
    return Transfers(
        regions,
        {(regions[i], regions[j]): float(core.world.data.egress_usd_gb[i, j]) for i, j in pairs},
        {(regions[i], regions[j]): float(offers.seconds_per_gb[i, j]) for i, j in pairs},
    )


def job_id_of(number: int) -> str:
    """A name by which jobs sort as they arrive."""
    return f"job-{number:06d}"


class Arrivals:
    """The jobs of a core as users would submit them."""

    def __init__(self, core: SimulationCore) -> None:
        self._core = core
        self._seen = 0

    def new(self) -> Iterator[tuple[str, JobSpec, float]]:
        """(job id, spec, epoch seconds of its arrival) of those that arrived since the last call."""
        for number in range(self._seen, self._core.arrived):
            whole = self._core.episodes, self._core.slot, number
            if from_python(is_client)(*whole) or not is_first(*whole):
                continue
            yield (
                job_id_of(number),
                self._spec(number),
                float(ORIGIN_S + self._core.job[number, at.ARRIVAL_S]),
            )
        self._seen = self._core.arrived

    def _spec(self, number: int) -> JobSpec:
        core, facts = self._core, self._core.job[number]
        if is_server(core.episodes, core.slot, number):
            place = server_place(core.world)
            return JobSpec(name=job_id_of(number), work=training_of(core.episodes, core.slot, number, place))
        sizes = core.episodes.job_real[core.slot, number]
        allowance_s, standard_s = float(facts[at.ALLOWANCE_S]), float(facts[at.STANDARD_S])
        home = core.world.data.regions[facts[at.HOME]]
        work: SparkBatch | SparkStreaming | Bag | Workflow
        if is_workflow(core.episodes, core.slot, number):
            work = workflow_of(core.episodes, core.slot, number, home)
        elif facts[at.LAST_ROW] > number:
            work = bag_of(core.episodes, core.slot, number)
        elif facts[at.CATEGORY] == Category.STREAMING:
            work = SparkStreaming(
                script="simulated",
                period_s=float(facts[at.PERIOD_S]),
                batch_deadline_s=allowance_s,
                batches=int(facts[at.EXECUTIONS]),
                standard_s=standard_s,
            )
        else:
            critical = facts[at.CATEGORY] == Category.TIME_CRITICAL
            work = SparkBatch(
                script="simulated", deadline_s=allowance_s if critical else None, standard_s=standard_s
            )
        return JobSpec(
            name=job_id_of(number),
            work=work,
            resources=Resources(instances=int(facts[at.EXECUTORS])),
            profile=Profile(
                reference_speed=float(facts[at.EXPECTED_HETERO]) / REFERENCE_HETERO,
                sensitivity=float(facts[at.SENSITIVITY]),
                data_region=home,
                data_gb=float(sizes[at.DATA_GB]),
                checkpoint_gb=float(sizes[at.CHECKPOINT_GB]),
                checkpoint_s=float(facts[at.DUMP_S]),
                checkpoint_interval_s=float(facts[at.INTERVAL_S]),
            ),
        )
