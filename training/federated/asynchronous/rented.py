"""Real training whose participants sit on rented, interruptible instances, in virtual time.

The simulation of instances asks a `Pace` who trains when; here that is the aggregator itself with what the
participants compute. So a scheduler is asked about each client as in synchronous applications, an update
arrives when its instance delivers it, and the next model is what the aggregator makes of it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from envs.simulation.federations.rounds.decisions import Awaited
from training.federated.asynchronous.scenario import Method
from training.federated.asynchronous.virtual_time import Learning, VirtualTime


class RentedTraining(Learning):
    """A training as the `Pace` of the application that computes it; times are seconds.

    Args:
        world: data, batches and the first model; its response times do not count.
        method: how updates become models.
        until: the training ends when this accuracy was kept for five models in a row.
    """

    def __init__(self, world: VirtualTime, method: Method, until: float) -> None:
        super().__init__(world, method, until)
        self._versions: dict[int, int] = {}
        """Version of the model that each client with a task was given."""
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
        """Results that the aggregator waits for."""
        return self._awaited(fresh=False)

    def round_needs(self) -> Sequence[Awaited]:
        """Results that it waits for from one model to the next."""
        return self._awaited(fresh=True)

    def _awaited(self, *, fresh: bool) -> list[Awaited]:
        return [
            Awaited(self._everybody if clients is None else clients, updates)
            for clients, updates in self.aggregator.needs(fresh=fresh)
        ]
