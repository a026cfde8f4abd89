"""One training in virtual time: events are responses of participants, nothing waits for a clock."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import torch

from spotweave.agents.federated.asynchronous.aggregator import (
    Aggregator,
    AsynDA,
    AsynMA,
    FedAsync,
    FedAvg,
    FedBuff,
    Invitation,
    Update,
    Vector,
)
from spotweave.agents.federated.asynchronous.brokers import HaleFed
from spotweave.agents.federated.asynchronous.fed_suda import FedSuda, ShadowSelection
from spotweave.agents.federated.asynchronous.hp_asgd import HpAsgd
from spotweave.envs.simulation.federations.rounds.decisions import Awaited
from spotweave.envs.simulation.series import Floats
from spotweave.envs.simulation.streams import Streams
from spotweave.envs.traces.images import Images
from spotweave.training.config import UsageError
from spotweave.training.federated.asynchronous.networks import NETWORKS, Job, LocalWork, Network
from spotweave.training.federated.asynchronous.scenario import (
    FIXED_SHARE,
    Method,
    Scenario,
    holdings_of,
    noisy_labels,
)

BROKERS = 2  # the thesis's experiments have two
COORDINATED = -1  # stands for a participant in the event that the brokers have confirmed a list


class Point(NamedTuple):
    """The state after one new model."""

    time_slices: float  # virtual time
    updates: int  # participant updates used so far, each counted once
    accuracy: float  # on the test images, 0 to 1
    staleness: float  # mean over the updates of this round, in versions


@dataclass
class Training:
    """One method's training with one seed."""

    points: list[Point] = field(default_factory=list)
    model: Vector | None = None

    def column(self, name: str) -> Floats:
        """One field of all points, (rounds,)."""
        return np.array([getattr(point, name) for point in self.points], dtype=float)


class VirtualTime:
    """The world of one seed, the same for every method: data, response times, batches, first model."""

    def __init__(self, scenario: Scenario, images: Images, seed: int) -> None:
        self.updates = scenario.updates  # that end a training
        self._scenario = scenario
        self._images = images
        self._streams = Streams(seed)
        labels = images.training_labels
        self.holdings = holdings_of(  # of each participant, the numbers of its images
            scenario.partition, labels, scenario.participants, self._streams.generator("data_partition")
        )
        self.samples = [len(own) for own in self.holdings]
        self._labels = noisy_labels(scenario.noise, labels, self.holdings)
        height, width = images.training.shape[2:]
        self.network: Network = NETWORKS[scenario.network]((images.training.shape[1], height, width))
        self.first_model = self.network.initial(self._streams.generator("network_weights"))
        self._test_inputs = self.network.prepared(torch.from_numpy(images.test))
        self._test_labels = torch.from_numpy(images.test_labels)

    def train(self, method: Method, *, until: float | None = None) -> Training:
        """Train until the scenario's number of updates, or until this accuracy was kept for five rounds.

        Raises UpdateError if parameters do not fit, or training diverges.
        """
        torch.set_num_threads(1)
        return _play(Learning(self, method, until), self.responses(), method.coordination_slices)

    def aggregator(self, method: Method) -> Aggregator[Any]:
        """The aggregator of a method, with the first model. Raises UpdateError if parameters do not fit."""
        scenario, model, draws = self._scenario, self.first_model, self._streams.generator("policy")
        needed = method.round_updates or scenario.round_updates
        match method.algorithm:
            case "fed_avg":
                return FedAvg(model, scenario.participants, needed, draws, method.uploads, method.rate)
            case "asyn_da":
                return AsynDA(model, needed, method.uploads, method.rate)
            case "asyn_ma":
                return AsynMA(model, needed)
            case "hale_fed":
                return HaleFed(model, needed, BROKERS, method.rate)
            case "fed_suda":
                assert method.staleness_bound is not None, "a Method of Fed-SUDA has one"
                bound = method.staleness_bound
                selection = ShadowSelection(scenario.participants, scenario.slow, needed, bound)
                return FedSuda(model, selection, method.rate)
            case "hp_asgd":
                bounds = method.staleness_bound, method.at_once
                return HpAsgd(model, self.samples, needed, method.rate, draws, *bounds)
            case "fed_buff":
                return FedBuff(model, needed, method.rate)
            case "fed_async":
                return FedAsync(model, method.mixing)

    def accuracy(self, model: Vector) -> float:
        """Accuracy on the test images."""
        found = self.network.classes(torch.from_numpy(np.asarray(model, dtype=np.float32)), self._test_inputs)
        return float((found == self._test_labels).float().mean())

    def local_work(self) -> LocalWork:
        """The participants, at the begin of their batches."""
        return LocalWork(
            self.network,
            self._images.training,
            self._labels,
            self.holdings,
            self._streams.sequence("batches").spawn(self._scenario.participants),
            batch_size=self._scenario.batch_size,
            steps=self._scenario.local_steps,
            rate=self._scenario.local_rate,
        )

    def responses(self) -> list[Iterator[float]]:
        """The response times of each participant in slices, from the first."""
        means = self._scenario.expected_slices(self._streams.generator("response_times"))
        seeds = self._streams.sequence("response_times").spawn(len(means))
        return [_responses(float(mean), seed) for mean, seed in zip(means, seeds, strict=True)]


def _responses(mean_slices: float, seed: np.random.SeedSequence) -> Iterator[float]:
    """Response times of one participant, in slices: half its expectation, plus an exponential half.

    The thesis prints expectations at most; a shifted exponential is the usual model of computing times in
    clusters (Lee et al. 2018, "Speeding up distributed machine learning using codes", section III).
    """
    generator = np.random.Generator(np.random.PCG64(seed))
    while True:
        yield mean_slices * (FIXED_SHARE + (1 - FIXED_SHARE) * float(generator.exponential()))


class Learning:
    """The server of one training, and what its participants compute: everything but the time that it takes.

    It ends when the accuracy `until` was kept for five models in a row; where that is None, with the
    scenario's updates. `training` is what it has come to.
    """

    def __init__(self, world: VirtualTime, method: Method, until: float | None) -> None:
        self._world, self._until = world, until
        self.aggregator = world.aggregator(method)
        self.training = Training()
        self._work = world.local_work()
        self._pending: dict[int, Job] = {}
        self._computed: dict[int, Vector] = {}
        self._used = 0

    @property
    def ended(self) -> bool:
        """Whether the accuracy was kept, or all updates are used."""
        return self.reached or self._used >= self._world.updates

    @property
    def reached(self) -> bool:
        """Whether the latest five models have the accuracy."""
        last = self.training.points[-MILESTONE_ROUNDS:]
        if self._until is None or len(last) < MILESTONE_ROUNDS:
            return False
        return all(point.accuracy >= self._until for point in last)

    def invite(self, idle: Sequence[int]) -> list[Invitation]:
        """Give the model to those of the idle participants that shall compute now."""
        invitations = self.aggregator.invite(idle)
        for participant, _, scale in invitations:
            model, uploads = self.aggregator.model, self.aggregator.uploads
            self._pending[participant] = self._work.job(participant, model, uploads, scale)
        return invitations

    def deliver(self, participant: int, version: int) -> None:
        """The update that a participant was invited to at this version arrives."""
        values, samples = self._values(participant), self._world.samples[participant]
        self.aggregator.receive(Update(participant, version, values, samples))

    def advance(self, now: float) -> bool:
        """Make the next model; False if there is not enough for it."""
        made = self.aggregator.advance()
        if made is None:
            return False
        self._used += made.fresh
        accuracy = self._world.accuracy(self.aggregator.model)
        self.training.points.append(Point(now, self._used, accuracy, float(np.mean(made.staleness))))
        self.training.model = self.aggregator.model
        return True

    def _values(self, participant: int) -> Vector:
        """The participant's update; all that are due are computed at once, which is many times faster."""
        if participant in self._pending:
            jobs = list(self._pending.values())
            found = self._work.compute(jobs, self.aggregator.uploads)
            self._computed.update((job.participant, row) for job, row in zip(jobs, found, strict=True))
            self._pending.clear()
        return self._computed.pop(participant)


class RentedTraining(Learning):
    """Real training whose participants sit on rented, interruptible instances; times are seconds.

    The simulation of instances asks a `Pace` who trains when; here that is the aggregator itself with what
    the participants compute. So a scheduler is asked about each client as in synchronous applications, an
    update arrives when its instance delivers it, and the next model is what the aggregator makes of it.
    The world's response times do not count.
    """

    def __init__(self, world: VirtualTime, method: Method, until: float) -> None:
        super().__init__(world, method, until)
        self._versions: dict[int, int] = {}
        """By client that has a task: the model that it was given."""
        self._everybody = tuple(range(len(world.samples)))

    def begin(self, idle: Sequence[int]) -> Collection[int]:
        """Which clients without a task begin an epoch from the current model."""
        invited = {participant: version for participant, version, _ in self.invite(idle)}
        self._versions.update(invited)
        return invited.keys()

    def end(self, client: int, now_s: int) -> bool:
        """A client's epoch has ended: whether that made a new model."""
        self.deliver(client, self._versions.pop(client))
        made = False
        while not self.ended and self.advance(now_s):
            made = True
        return made

    def awaited(self) -> Sequence[Awaited]:
        """What the aggregator waits for."""
        return self._awaited(fresh=False)

    def round_needs(self) -> Sequence[Awaited]:
        """What it waits for from one model to the next."""
        return self._awaited(fresh=True)

    def _awaited(self, *, fresh: bool) -> list[Awaited]:
        return [
            Awaited(self._everybody if clients is None else clients, updates)
            for clients, updates in self.aggregator.needs(fresh=fresh)
        ]


def _play(learning: Learning, responses: Sequence[Iterator[float]], coordination_slices: float) -> Training:
    # (time, order of creation, participant, version): the order settles what happens at the same time.
    events: list[tuple[float, int, int, int]] = []
    created = count()
    idle = set(range(len(responses)))
    coordinating = False

    def invite(now: float) -> None:
        for participant, version, _ in learning.invite(sorted(idle)):
            idle.discard(participant)
            due = now + next(responses[participant])
            heapq.heappush(events, (due, next(created), participant, version))

    invite(0.0)
    while not learning.ended:
        if not events:
            raise UsageError("every participant is idle and no round can be completed: lower round_updates")
        now, _, participant, version = heapq.heappop(events)
        if participant == COORDINATED:
            coordinating = False
            learning.advance(now)
        else:
            learning.deliver(participant, version)
            idle.add(participant)
        if coordination_slices == 0:
            while learning.advance(now):
                pass
        elif not coordinating and learning.aggregator.ready():
            coordinating = True
            confirmed = now + coordination_slices
            heapq.heappush(events, (confirmed, next(created), COORDINATED, learning.aggregator.version))
        invite(now)
    return learning.training


MILESTONE_ROUNDS = 5
"""A milestone is reached where this many rounds in a row have its accuracy ("for five times in a row")."""


def milestone_slices(training: Training, accuracy: float) -> float | None:
    """When an accuracy was first kept for five rounds in a row, the time of the first; None if never."""
    above = training.column("accuracy") >= accuracy
    for k in range(len(above) - MILESTONE_ROUNDS + 1):
        if above[k : k + MILESTONE_ROUNDS].all():
            return training.points[k].time_slices
    return None
