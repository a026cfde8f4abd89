"""What federated applications of a market world's workload are like."""

from __future__ import annotations

from dataclasses import dataclass, field

from envs.simulation.market.checks import at_least, bounds, require, shares

_GROUP = "workload.applications"


@dataclass
class ApplicationsConfig:
    """Federated applications among the arrivals, used with `workload.federated`. [a, b] are inclusive bounds.

    Attributes:
        share: of the arrivals, how many are applications (at least one is; its tasks come on top of
            `workload.jobs`).
        clients: clients of an application.
        rounds: synchronous rounds of an application.
        epoch_s: standard time of its slowest possible client's epoch, log-uniform.
        client_share: a client's epoch as a share of that: how unequal the clients' data are.
        epoch_spread: an epoch takes up to this share more or less than usual, drawn again for each.
        cold_share: what a first epoch on a new instance takes longer, as a share of the client's epoch.
        aggregation_s: standard time that the server takes to aggregate.
        data_gb: a client's data, log-uniform; they lie in a region of their own.
        checkpoint_gb: size of the model, log-uniform.
        checkpoint_interval_s: seconds of an epoch between checkpoints; 0 takes none.
        deadline: share of the applications that have a deadline.
        slack: time allowed as a multiple of the application's standard time.
        slack_s: fixed allowance on top, seconds.
        budget: share of the clients that have a budget.
        budget_usd_hour: USD of budget per hour of the client's standard time in all rounds.
    """

    share: float = 0.1
    clients: list[int] = field(default_factory=lambda: [3, 8])
    rounds: list[int] = field(default_factory=lambda: [5, 20])
    epoch_s: list[int] = field(default_factory=lambda: [300, 1800])
    client_share: list[float] = field(default_factory=lambda: [0.25, 1.0])
    epoch_spread: float = 0.1
    cold_share: list[float] = field(default_factory=lambda: [0.1, 0.5])
    aggregation_s: list[int] = field(default_factory=lambda: [5, 30])
    data_gb: list[float] = field(default_factory=lambda: [0.5, 20.0])
    checkpoint_gb: list[float] = field(default_factory=lambda: [0.1, 2.0])
    checkpoint_interval_s: int = 300
    deadline: float = 0.5
    slack: list[float] = field(default_factory=lambda: [1.5, 3.0])
    slack_s: int = 1800
    budget: float = 0.25
    budget_usd_hour: list[float] = field(default_factory=lambda: [2.0, 6.0])

    def validate(self) -> None:
        """Check every parameter.

        Raises:
            WorldError: one line naming the parameter, its value and what is expected.
        """
        require(0.0 < self.share <= 1.0, f"{_GROUP}.share is {self.share}", "a share in (0, 1]")
        shares(self, _GROUP, "deadline", "budget")
        require(
            0.0 <= self.epoch_spread < 1.0, f"{_GROUP}.epoch_spread is {self.epoch_spread}", "0 <= spread < 1"
        )
        bounds(self, _GROUP, 1, "clients", "rounds", "epoch_s", "aggregation_s")
        bounds(self, _GROUP, 0, "cold_share")
        bounds(self, _GROUP, 1e-9, "client_share", "data_gb", "checkpoint_gb", "slack", "budget_usd_hour")
        at_least(self, _GROUP, 0, "checkpoint_interval_s", "slack_s")

    def number(self, arrivals: int) -> int:
        """How many of these arrivals are applications."""
        return min(arrivals, max(1, round(self.share * arrivals)))
