"""FedCostAware (Sinha 2025): release instances that wait for the slowest client, start them again in time.

Section III-B: rounds 1 and 2 are calibration, no client is released; then exponential averages of cold epoch,
warm epoch and spin-up. Section III-C, Listing 1: a client that has finished is released if

    (F_s - now) - T_spin_up > T_threshold,

F_s being the estimated finish of the round's slowest client, and is started again at
F_s - T_spin_up - T_buffer. Section III-D: after an interruption every waiting start is recomputed. Section
III-E: before a round, a client whose remaining budget does not pay for it leaves.

Where the text is open: 30 s of buffer, weight 0.9 on the new sample and the budget's test (estimated epoch
time times the current price) are what a public implementation does. The threshold is not published; ours is
60 s. For clients that have finished, F_s counts their real finish and not the listing's estimate of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spotweave.agents.federated.rules.always_on import (
    AlwaysOn,
    cheapest_offer,
    kept_or_cheapest,
    rent_at,
    rent_now,
)
from spotweave.agents.policy import Policy
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.federations.rounds.application import SERVER, Market
from spotweave.envs.simulation.federations.rounds.decisions import (
    NEVER,
    Answer,
    Cause,
    Leave,
    Placement,
    Question,
    State,
)
from spotweave.envs.simulation.federations.rounds.member import Member
from spotweave.envs.simulation.federations.rounds.running import RunningApplication
from spotweave.envs.simulation.round_estimates import SPIN_UP_S, RoundEstimates
from spotweave.envs.simulation.series import Ints
from spotweave.envs.simulation.snapshot import Observation

CALIBRATION_ROUNDS = 2


@dataclass(eq=False)
class FedCostAware(Policy):
    """The scheduler of Sinha 2025 on the cheapest spot offers.

    Where the whole application can be seen (`decide`) it decides at the paper's moments and names the second
    of each start. From an observation (`act_batch`) it applies the same two tests to the estimates that are
    shown, at the moments when the environment or the live loop asks; a client is not released before a cold
    and a warm epoch have been seen.

    Raises:
        ValueError: for times below 0 or a weight outside (0, 1].
    """

    threshold_s: float = 60.0  # what releasing must save at least, beyond a spin-up
    buffer_s: float = 30.0  # an instance is started so much earlier than its spin-up needs
    weight: float = 0.9  # of the new sample in the exponential averages, in (0, 1]
    # whether a client leaves already when its budget does not pay for all that it is expected to rent in the
    # round (spin-up, epoch, waiting, the start for the next round). The published test counts the epoch
    # alone, so a client may run out of money within a round
    whole_round_budget: bool = False
    # where a server that is a task of its own is rented; it always stays on. The paper's server is no part of
    # the decisions
    server_market: Market = Market.ON_DEMAND
    name = "fed_cost_aware"

    def __post_init__(self) -> None:
        if self.threshold_s < 0 or self.buffer_s < 0:
            raise ValueError(
                f"threshold_s={self.threshold_s}, buffer_s={self.buffer_s}: expected seconds >= 0"
            )
        if not 0 < self.weight <= 1:
            raise ValueError(f"weight={self.weight}: expected more than 0 and at most 1")
        self._server = AlwaysOn(self.server_market)
        self._known = RoundEstimates(0, self.weight)

    # From an observation.

    def act_batch(self, observations: Observation, lanes: Ints) -> Ints:
        """(n,) flat actions."""
        job = observations["jobs"][:, 0].astype(np.float64)
        spin_up_s = observations["clusters"][..., col.LAUNCH_S].max(1).astype(np.float64)
        spare_s = job[:, col.ROUND_LEFT_S] - spin_up_s
        calibrated = (job[:, col.OWES] == 0) & (job[:, col.COLD_S] > 0)
        off = calibrated & (spare_s > np.where(job[:, col.IDLE] > 0, self.threshold_s, self.buffer_s))
        off |= job[:, col.EXECUTIONS] == 0
        none = observations["action_mask"].shape[1] - 1
        may_wait = observations["action_mask"][:, none] != 0
        return np.asarray(np.where(off & may_wait, none, kept_or_cheapest(observations, True)), np.int64)

    # With the whole application in view.

    def start(self, view: RunningApplication) -> None:
        """Forget all clients' times."""
        self._known = RoundEstimates(len(view.clients), self.weight)

    def decide(self, question: Question, view: RunningApplication) -> Answer:
        """Answer one question; see the module's docstring for the rules."""
        cause, k = question
        if k == SERVER:
            return self._server.decide(question, view)
        client = view.clients[k]
        if cause is Cause.FINISHED:
            self._observe(k, client)
            start_s = self._next_start_s(k, view)
            return _stay(client) if start_s is None else rent_at(view, k, Market.SPOT, start_s)
        if cause is Cause.ROUND:
            if self._cannot_pay(k, view):
                return Leave()
            return _stay(client) if client.running else rent_now(view, k, Market.SPOT)
        if cause in (Cause.REPLAN, Cause.INTERRUPTED) and not client.has_task:
            start_s = self._next_start_s(k, view, is_off=True)
            if start_s is not None and start_s > view.now_s:
                return rent_at(view, k, Market.SPOT, start_s)
        return rent_now(view, k, Market.SPOT)

    def slowest_finish_s(self, view: RunningApplication) -> float | None:
        """Estimated finish of the current round (Listing 1); None while some client is unknown."""
        latest_s = float(view.now_s)
        for k, client in enumerate(view.clients):
            if client.has_task:
                finish_s = self._finish_s(k, view)
                if finish_s is None:
                    return None
                latest_s = max(latest_s, finish_s)
        return latest_s

    def _observe(self, k: int, client: Member) -> None:
        """Take in the epoch that a client has just delivered.

        An epoch that went on from a checkpoint says nothing about a whole one, and only an instance's first
        epoch says something new about its spin-up.
        """
        assert client.started_s is not None
        assert client.finished_s is not None
        cold = client.epochs_here == 1
        if not client.resumed:
            self._known.note_epoch(k, client.finished_s - client.started_s, cold)
        if cold:
            assert client.ready_s is not None
            assert client.launched_s is not None
            self._known.note_spin_up(k, client.ready_s - client.launched_s)

    def _epoch_s(self, k: int, cold: bool) -> float | None:
        """The epoch's estimate; where one kind was never seen, the other kind's."""
        return self._known.epoch_s(k, cold, warm_share=1.0)

    def _finish_s(self, k: int, view: RunningApplication) -> float | None:
        """When a client that owes a result will deliver it."""
        client, spin_up_s = view.clients[k], self._known.measured_s(k, SPIN_UP_S)
        epoch_s, warm_s = self._epoch_s(k, client.epochs_here == 0), self._epoch_s(k, False)
        if epoch_s is None or warm_s is None:
            return None
        if client.state is State.TRAINING:
            assert client.started_s is not None
            begin_s = float(client.started_s)
        else:
            if spin_up_s is None:
                return None
            spinning = client.state is State.SPIN_UP
            requested_s = client.launched_s if spinning else max(client.planned_start_s, view.now_s)
            assert requested_s is not None
            begin_s = requested_s + spin_up_s
        return begin_s + epoch_s - client.saved * warm_s

    def _next_start_s(self, k: int, view: RunningApplication, is_off: bool = False) -> float | None:
        """When a client without work shall be started for the next round; None: it had better stay on.

        A client that is off already (`is_off`) has no instance to keep, so the threshold does not count.
        """
        if view.round_begun_s is None or (not is_off and view.round_index < CALIBRATION_ROUNDS):
            return None
        slowest_s, spin_up_s = self.slowest_finish_s(view), self._known.measured_s(k, SPIN_UP_S)
        if slowest_s is None or spin_up_s is None:
            return None
        next_round_s = slowest_s + view.aggregation_s
        if not is_off and next_round_s - view.now_s - spin_up_s <= self.threshold_s:
            return None
        return NEVER if view.round_index + 1 == view.rounds else next_round_s - spin_up_s - self.buffer_s

    def _cannot_pay(self, k: int, view: RunningApplication) -> bool:
        """Whether a client's remaining budget does not pay for the coming round (Section III-E)."""
        client = view.clients[k]
        if client.budget_usd is None:
            return False
        epoch_s = self._epoch_s(k, client.epochs_here == 0)
        offer = client.offer if client.running else cheapest_offer(view, k, Market.SPOT)
        if epoch_s is None or offer is None:
            return False
        seconds = self._rented_s(k, epoch_s, view) if self.whole_round_budget else epoch_s
        return client.budget_usd - view.spent_usd(k) < seconds * view.usd_hour(offer) / 3600

    def _rented_s(self, k: int, epoch_s: float, view: RunningApplication) -> float:
        """How long an instance will be on for the coming round and for the start of the one after."""
        epochs = [self._epoch_s(j, other.epochs_here == 0) or 0.0 for j, other in enumerate(view.clients)]
        idle_s = max(epochs) + view.aggregation_s - epoch_s
        spin_up_s = self._known.measured_s(k, SPIN_UP_S) or 0.0
        waiting_s = idle_s if idle_s - spin_up_s <= self.threshold_s else spin_up_s + self.buffer_s
        before_s = 0.0 if view.clients[k].running else spin_up_s
        return before_s + epoch_s + waiting_s


def _stay(client: Member) -> Placement:
    assert client.offer is not None
    return Placement(client.offer)
