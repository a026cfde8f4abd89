"""One client, or the server, while an application runs: its instance, its task, its money, its states.

Also which weights survive the server (Brum 2023, section 6.3): its copies elsewhere, and the clients'.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from spotweave.envs.simulation.federations.rounds.application import HORIZON_S, Application, Checkpoints
from spotweave.envs.simulation.federations.rounds.decisions import Bill, ServerLoss, Span, State


@dataclass(eq=False, slots=True)
class Member:
    """One task: schedulers look at it, and only the simulation changes it.

    Times are seconds since the beginning, None where not yet so.
    """

    _application: Application
    index: int
    name: str
    allowed: tuple[int, ...]  # offers that it may rent
    budget_usd: float | None = None  # what its instances may cost; None for no limit
    state: State = State.OFF  # what it is doing
    offer: int | None = None  # the offer its instance is on, or that is planned or was last used
    # when it shall be started, while it is off; `math.inf` where nothing is planned
    planned_start_s: float = 0.0
    has_task: bool = False  # whether it owes the result of the current round
    # results that its current instance has delivered; 0: its current or next epoch is cold
    epochs_here: int = 0
    # whether its latest epoch went on from a checkpoint: its time is not that of a whole one
    resumed: bool = False
    saved: float = 0.0  # share of the current epoch that a checkpoint holds, in [0, 1]
    launched_s: int | None = None  # when its latest instance was requested
    ready_s: int | None = None  # when that instance could train
    started_s: int | None = None  # when its latest training began
    finished_s: int | None = None  # when it delivered its latest result
    messages_s: float = 0.0  # seconds of its latest epoch that messages took; 0 where not told apart
    # what rounding to whole seconds took off its latest epoch (the server's: aggregation)
    carried_s: float = 0.0
    spent_usd: float = 0.0  # all closed bills
    generation: int = 0  # counts instances and plans; an event of an older generation is void
    trainings: int = 0  # counts trainings; the end of an older one is void
    interruptions: int = 0  # instances that the provider took
    kept_rounds: int = 0  # rounds whose aggregated weights its instance keeps
    # seconds of the whole epoch that it trains or trained last, besides what a cold start costs
    whole_s: int = 0
    attempt: int = 0
    attempt_round: int = -1
    # seconds of training that the current task still needs, besides what a cold start costs
    work_left_s: int = 0
    overhead_s: int = 0  # seconds of the current training that a cold start costs
    bills: list[Bill] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    _since_s: int = 0
    _round_index: int = 0

    @property
    def running(self) -> bool:
        """Whether it has an instance."""
        return self.state in (State.SPIN_UP, State.IDLE, State.TRAINING)

    @property
    def here(self) -> bool:
        """Whether it still takes part."""
        return self.state is not State.GONE

    def enter(self, state: State, now_s: int, round_index: int) -> None:
        """Change state; what lasted no time leaves no trace."""
        if now_s > self._since_s:
            self.spans.append(Span(self._since_s, now_s, self.state, self._round_index))
        self._since_s, self._round_index = now_s, round_index
        self.state = state

    def instance_usd(self, end_s: int) -> float:
        """What its instance costs if it ends at `end_s`."""
        assert self.launched_s is not None
        if self._application.spin_up_billed:
            return self._price_usd(self.launched_s, end_s)
        return 0.0 if self.ready_s is None else self._price_usd(self.ready_s, end_s)

    def _price_usd(self, start_s: int, end_s: int) -> float:
        assert self.offer is not None
        end_s = max(end_s, start_s + self._application.billing_minimum_s)
        return self._application.offers[self.offer].tariff.cost_usd(start_s, end_s)

    def close_bill(self, now_s: int, by_provider: bool) -> None:
        """End the instance now and add its bill."""
        assert self.offer is not None
        assert self.launched_s is not None
        free = by_provider and now_s - self.launched_s < self._application.free_first_s
        usd = 0.0 if free else self.instance_usd(now_s)
        self.spent_usd += usd
        unpaid_s = 0
        if not self._application.spin_up_billed:
            unpaid_s = (now_s if self.ready_s is None else self.ready_s) - self.launched_s
        self.bills.append(Bill(self.index, self.offer, self.launched_s, now_s, usd, by_provider, unpaid_s))

    def last_affordable_s(self) -> int | None:
        """The last second until which the budget pays its instance, its spin-up included in any case.

        None where the money lasts; a time before `launched_s` where not even the billing minimum is paid.
        """
        assert self.launched_s is not None
        budget = self.budget_usd
        if budget is None or self._affords(self.launched_s + HORIZON_S, budget):
            return None
        if not self._affords(self.launched_s, budget):
            return self.launched_s - 1
        low, high = self.launched_s, self.launched_s + HORIZON_S
        while high - low > 1:
            middle = (low + high) // 2
            if self._affords(middle, budget):
                low = middle
            else:
                high = middle
        return low

    def _affords(self, end_s: int, budget: float) -> bool:
        assert self.launched_s is not None
        return self.spent_usd + self._price_usd(self.launched_s, end_s) <= budget


class Weights:
    """Weights that are kept, and what each revocation of the server cost.

    Args:
        checkpoints: what is saved, and when; None: nothing.
        clients: all of them.
    """

    def __init__(self, checkpoints: Checkpoints | None, clients: Sequence[Member]) -> None:
        self._checkpoints = checkpoints
        self._clients = clients
        self._elsewhere: list[tuple[int, int]] = []
        """The server's copies: rounds, and the second from which on it is complete."""
        self._lost: tuple[int, int] | None = None
        """While no server serves: when it was revoked, and the newest copy that was complete then."""
        self.losses: list[ServerLoss] = []

    @property
    def waiting(self) -> bool:
        """Whether the server was revoked and none serves yet."""
        return self._lost is not None

    def keep(self, rounds: int, now_s: int) -> None:
        """`rounds` are aggregated: the server sends a copy away, clients that are there keep theirs."""
        checkpoints = self._checkpoints
        if checkpoints is None:
            return
        if checkpoints.every_rounds is not None and rounds % checkpoints.every_rounds == 0:
            self._elsewhere.append((rounds, now_s + math.ceil(checkpoints.transfer_s)))
        if checkpoints.on_clients:
            for member in self._clients:
                if member.state is State.IDLE:
                    member.kept_rounds = rounds

    def lose_server(self, now_s: int) -> None:
        """The server is revoked; a copy that was still on its way is lost with it."""
        complete = [rounds for rounds, complete_s in self._elsewhere if complete_s <= now_s]
        self._lost = (now_s, max(complete, default=0))

    def restore(self, round_index: int, now_s: int) -> int:
        """The next server is there: rounds that the newest of its own and the clients' copies holds."""
        assert self._lost is not None
        lost_s, newest = self._lost
        self._lost = None
        newest = max([newest, *(member.kept_rounds for member in self._clients if member.running)])
        self.losses.append(ServerLoss(lost_s, round_index, now_s, newest))
        self._elsewhere = [(rounds, complete_s) for rounds, complete_s in self._elsewhere if rounds <= newest]
        return newest
