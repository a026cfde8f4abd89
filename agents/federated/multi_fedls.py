"""Multi-FedLS (Brum 2023): exact initial mapping, Algorithms 1-3 after a revocation, and proactive moves.

The initial mapping (section 6.2) places server and clients before the first round. When a spot VM is revoked,
the Dynamic Scheduler (section 6.4) chooses its successor; in the thesis the revoked type is taken out of the
task's candidates for good, and in a second experiment (Table 7.15) it is not.

Section 8.3 proposes to move a task also when its performance degrades, e.g. on a recurrent network delay. A
VM type (or a link between two regions) counts as degraded when the epochs (messages) measured on it took more
than `move_factor` times what was expected in `PATIENCE` rounds in a row. Then the mapping is re-solved with
the measured times before the next round, and tasks move to it if the rounds that are left are worth more than
the move: the longest spin-up, during which all others wait on paid VMs, and a cold first epoch. Both are in
the units of the objective (Eq. 6.3).
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable
from dataclasses import KW_ONLY, InitVar, dataclass
from typing import NamedTuple

import numpy as np

from spotweave.agents.federated.mapping.initial import map_initially
from spotweave.agents.federated.observing import moved, select_instance
from spotweave.agents.federated.rules.always_on import RETRY_S
from spotweave.envs.simulation.federations import model
from spotweave.envs.simulation.federations.model import Federation
from spotweave.envs.simulation.federations.rounds.application import SERVER, Market
from spotweave.envs.simulation.federations.rounds.decisions import Answer, Cause, Placement, Question
from spotweave.envs.simulation.federations.rounds.deployment import Deployment
from spotweave.envs.simulation.federations.rounds.member import Member
from spotweave.envs.simulation.federations.rounds.running import RunningApplication

PATIENCE = 2  # rounds in a row that must be slow before a VM type or a link counts as degraded


@dataclass(eq=False)
class MultiFedLS:
    """Plays one deployment; `RoundsWorld` must simulate that deployment's application.

    Raises:
        FederationError: if no placement keeps the quotas, or nothing is offered on a market.
        ValueError: for a move_factor up to 1.
    """

    deployment: Deployment  # application, clouds and conditions
    server_market: Market = Market.SPOT  # how the server's VMs are rented
    client_market: Market = Market.SPOT  # how the clients' VMs are rented
    _: KW_ONLY
    alpha: float = 0.5  # weight of cost against time, 0 to 1, in mapping and scheduling
    # whether a task does not go back to a type that it was revoked on. It may after a minute where no other
    # is free, and at once where every type was revoked
    exclude_revoked: bool = True
    placement: InitVar[model.Placement | None] = None  # the first; None: the optimal initial mapping
    # measured over expected seconds above which a VM type or a link counts as degraded; None: tasks move
    # after revocations only, as in the thesis
    move_factor: float | None = None
    name: str = "multi_fedls"  # as tables show it

    def __post_init__(self, placement: model.Placement | None) -> None:
        if self.move_factor is not None and not self.move_factor > 1:
            raise ValueError(f"move_factor is {self.move_factor}: expected a number > 1, or none")
        self.federation = self.deployment.federation(self.server_market, self.client_market)
        self.initial = placement or map_initially(self.federation, self.alpha).best.placement
        self._begin()

    def _begin(self) -> None:
        self._placement = self.initial
        self._revoked: dict[int, set[int]] = {}
        self._measured = _Measurements(self.federation)
        self._target: model.Placement | None = None

    def start(self, view: RunningApplication) -> None:
        """Forget all revocations and measurements."""
        self._begin()

    def decide(self, question: Question, view: RunningApplication) -> Answer:
        """Answer one question; see the module's docstring."""
        cause, task = question
        member = view.member(task)
        if cause is Cause.FINISHED:
            self._measure(task, view)
        if cause is Cause.ROUND and task == SERVER:
            self._target = self._worth_moving(view)
        if member.running:
            assert member.offer is not None
            if cause is Cause.ROUND and self._target is not None:
                wanted = self._target.server if task == SERVER else self._target.clients[task]
                if wanted != self._type(task) and self._free(task, wanted, view):
                    return self._go(task, wanted)
            return Placement(member.offer)
        if cause is Cause.INTERRUPTED:
            return self._replace(task, view)
        if cause is Cause.REPLAN:
            assert member.offer is not None
            return Placement(member.offer, member.planned_start_s)
        if view.available(self._offer(task, self._type(task))):
            return self._go(task, self._type(task))
        return self._replace(task, view, revoked=False)

    # Where tasks are.

    def _type(self, task: int) -> int:
        return self._placement.server if task == SERVER else self._placement.clients[task]

    def _offer(self, task: int, vm_type: int) -> int:
        return self.deployment.offer_of[vm_type, self._market(task)]

    def _market(self, task: int) -> Market:
        return self.server_market if task == SERVER else self.client_market

    def _go(self, task: int, vm_type: int) -> Placement:
        self._placement = moved(self._placement, task, vm_type)
        return Placement(self._offer(task, vm_type))

    def _free(self, task: int, vm_type: int, view: RunningApplication) -> bool:
        """Whether a task could start there now, and all others could be where they are to be.

        A task that has no VM at the moment keeps its place in the quotas, so that it can always come back.
        """
        if not view.available(self._offer(task, vm_type)):
            return False
        placement = moved(self._placement, task, vm_type)
        offers = [self._offer(SERVER, placement.server)]
        offers += [self._offer(k, client_type) for k, client_type in enumerate(placement.clients)]
        return all(
            sum(quota.amounts.get(offer, 0) for offer in offers) <= quota.limit
            for quota in self.deployment.application.quotas
        )

    # After a revocation (Algorithm 3).

    def _replace(self, task: int, view: RunningApplication, revoked: bool = True) -> Placement:
        if revoked and self.exclude_revoked:
            self._revoked.setdefault(task, set()).add(self._type(task))
        possible = self._possible(task)
        if self._revoked.get(task, set()).issuperset(possible):
            self._revoked.pop(task, None)
        allowed = [k for k in possible if k not in self._revoked.get(task, ())]
        free = [k for k in allowed if self._free(task, k, view)]
        if not free and not revoked:
            free = [k for k in possible if self._free(task, k, view)]
        chosen = select_instance(self._measured.federation, self._placement, task, free, self.alpha)
        if chosen is None:
            return Placement(self._offer(task, self._type(task)), view.now_s + RETRY_S)
        return self._go(task, chosen)

    def _possible(self, task: int) -> list[int]:
        """VM types that a task can run on, on its market."""
        federation = self.federation
        if task == SERVER:
            can = np.isfinite(federation.server_usd_s)
        else:
            can = np.isfinite(federation.exec_s[task]) & np.isfinite(federation.client_usd_s)
        return [int(k) for k in np.flatnonzero(can)]

    # Degradations (section 8.3).

    def _measure(self, task: int, view: RunningApplication) -> None:
        client, server = view.clients[task], view.server
        if self.move_factor is None or client.resumed or server is None or server.offer is None:
            return
        assert client.offer is not None
        assert client.started_s is not None
        assert client.finished_s is not None
        expected_s = view.expected_epoch_s(task, client.offer, client.epochs_here == 1)
        places = self.deployment.places
        types = (places[client.offer][0], places[server.offer][0])
        self._measured.take(task, client, types, expected_s, self.move_factor)

    def _worth_moving(self, view: RunningApplication) -> model.Placement | None:
        """Best placement from this round on; None: stay."""
        if not self._measured.concern(self._placement):
            return None
        federation, here = self._measured.federation, self._placement
        best = map_initially(federation, self.alpha).best.placement
        there = self._allowed(_closest(federation, here, best), here)
        stay, go = (federation.outcome(placement, self.alpha).objective for placement in (here, there))
        wait_s = 0.0
        for task in (SERVER, *range(len(here.clients))):
            before, after = (p.server if task == SERVER else p.clients[task] for p in (here, there))
            if before != after:
                offer = self._offer(task, after)
                cold_s, warm_s = (view.expected_epoch_s(task, offer, cold) for cold in (True, False))
                wait_s = max(wait_s, view.expected_spin_up_s(task, offer) + cold_s - warm_s)
        left = view.rounds - view.round_index
        return there if left * (stay - go) > self._waiting(wait_s) else None

    def _allowed(self, there: model.Placement, here: model.Placement) -> model.Placement:
        """Tasks stay where they are rather than go back to a type that they were revoked on."""
        if there.server in self._revoked.get(SERVER, ()):
            there = moved(there, SERVER, here.server)
        for task, vm_type in enumerate(there.clients):
            if vm_type in self._revoked.get(task, ()):
                there = moved(there, task, here.clients[task])
        return there

    def _waiting(self, seconds: float) -> float:
        """The objective of waiting so long on all VMs."""
        federation, placement = self.federation, self._placement
        usd_s = federation.server_usd_s[placement.server]
        usd_s += federation.client_usd_s[list(placement.clients)].sum()
        return float(
            self.alpha * usd_s * seconds / federation.cost_max + (1 - self.alpha) * seconds / federation.t_max
        )


class _Streak(NamedTuple):
    """This many rounds in a row were slow, and how slow the latest one was."""

    rounds: int = 0
    slowdown: float = 1.0

    def after(self, slowdown: float, factor: float) -> _Streak:
        """The streak after another round."""
        return _Streak(self.rounds + 1 if slowdown > factor else 0, slowdown)


class _Measurements:
    """Slowdowns that were measured while the application ran."""

    def __init__(self, expected: Federation) -> None:
        self._expected = expected
        self.federation = expected
        """The federation with what is degraded as it was measured last."""
        self._types: dict[tuple[int, int], _Streak] = {}
        """[client, VM type]"""
        self._links: dict[tuple[int, int, int], _Streak] = {}
        """[client, one region, the other], the smaller region first."""

    def take(
        self, task: int, client: Member, types: tuple[int, int], expected_s: float, factor: float
    ) -> None:
        """An epoch that a client has delivered, with its VM type and the server's."""
        assert client.started_s is not None
        assert client.finished_s is not None
        first, second = self._ends(*types)
        messages_s = float(self._expected.comm_s[first, second])
        computing_s = client.finished_s - client.started_s - client.messages_s
        slowdown = _ratio(computing_s, expected_s - messages_s)
        on_type, on_link = (task, types[0]), (task, first, second)
        self._types[on_type] = self._types.get(on_type, _Streak()).after(slowdown, factor)
        slowdown = _ratio(client.messages_s, messages_s)
        self._links[on_link] = self._links.get(on_link, _Streak()).after(slowdown, factor)
        self._update()

    def concern(self, placement: model.Placement) -> bool:
        """Whether a VM type or a link of a placement is degraded."""
        return any(
            self._type_slowdown(k) is not None
            or self._link_slowdown(*self._ends(k, placement.server)) is not None
            for k in set(placement.clients)
        )

    def _ends(self, client_type: int, server_type: int) -> tuple[int, int]:
        first, second = sorted(int(self._expected.region[k]) for k in (client_type, server_type))
        return first, second

    def _type_slowdown(self, vm_type: int) -> float | None:
        return _slowest(item for (_, other), item in self._types.items() if other == vm_type)

    def _link_slowdown(self, first: int, second: int) -> float | None:
        return _slowest(item for (_, *ends), item in self._links.items() if ends == [first, second])

    def _update(self) -> None:
        federation = copy.copy(self._expected)
        federation.exec_s, federation.comm_s = federation.exec_s.copy(), federation.comm_s.copy()
        for vm_type in {other for _, other in self._types}:
            federation.exec_s[:, vm_type] *= self._type_slowdown(vm_type) or 1.0
        for first, second in {(first, second) for _, first, second in self._links}:
            seconds = self._expected.comm_s[first, second] * (self._link_slowdown(first, second) or 1.0)
            federation.comm_s[first, second] = federation.comm_s[second, first] = seconds
        self.federation = federation


def _closest(federation: Federation, here: model.Placement, there: model.Placement) -> model.Placement:
    """The placement that differs from `there` by exchanges of equal clients only, with the fewest moves."""
    groups: dict[bytes, list[int]] = {}
    for task, seconds in enumerate(federation.exec_s):
        groups.setdefault(seconds.tobytes(), []).append(task)
    clients = list(there.clients)
    for group in groups.values():
        wanted = Counter(there.clients[task] for task in group)
        moving = []
        for task in group:
            if wanted[here.clients[task]]:
                clients[task] = here.clients[task]
                wanted[here.clients[task]] -= 1
            else:
                moving.append(task)
        for task, vm_type in zip(moving, wanted.elements(), strict=True):
            clients[task] = vm_type
    return model.Placement(there.server, tuple(clients))


def _slowest(streaks: Iterable[_Streak]) -> float | None:
    """The largest slowdown of those that have lasted; None without any."""
    return max((item.slowdown for item in streaks if item.rounds >= PATIENCE), default=None)


def _ratio(measured_s: float, expected_s: float) -> float:
    return measured_s / expected_s if expected_s > 0 else 1.0


# Multi-FedLS on zones that differ in price and availability only.
#
# There is no server to place and every offer takes the same time, so Algorithm 3 (Brum 2023) comes to the
# lowest price: times are equal, and the cost is the price times the round. Instances stay on, as in the
# thesis; a task does not go back to an offer that it was revoked on while another one is available, and a
# task that finds none tries again.


class ZoneScheduler:
    """The dynamic scheduler where only zones can be chosen, all tasks on spot."""

    name = "multi_fedls"

    def __init__(self) -> None:
        self._revoked: dict[int, set[int]] = {}

    def start(self, view: RunningApplication) -> None:
        """Forget all revocations."""
        self._revoked = {}

    def decide(self, question: Question, view: RunningApplication) -> Answer:
        """Keep what runs; rent the cheapest spot offer where nothing does.

        Raises:
            ValueError: if a client may rent no spot offer at all.
        """
        client = view.member(question.client)
        if client.running:
            assert client.offer is not None
            return Placement(client.offer)
        spot = [offer for offer in client.allowed if view.offers[offer].market is Market.SPOT]
        if not spot:
            raise ValueError(f"client {client.name} may rent no spot offer: choose another policy")
        if question.cause is Cause.INTERRUPTED and client.offer is not None:
            self._revoked.setdefault(question.client, set()).add(client.offer)
        revoked = self._revoked.get(question.client, set())
        if revoked.issuperset(spot):
            revoked.clear()
        free = [offer for offer in spot if view.available(offer)]
        chosen = min([o for o in free if o not in revoked] or free, key=view.usd_hour, default=None)
        if chosen is None:
            return Placement(spot[0], view.now_s + RETRY_S)
        return Placement(chosen)
