"""A federated application: its clients, their data, its messages and rounds (Brum 2023, section 5.1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from spotweave.envs.simulation.world import WorldError


class FederationError(WorldError):
    """A mistake in an application or in clouds that its user can mend; the message is one line."""


def require_number(owner: str, what: str, value: float, *, above: float | None = None) -> None:
    """Refuse NaN, infinity, values below 0 and, where `above` is given, values up to it.

    Raises:
        FederationError: naming the owner, the field and the value.
    """
    expected = "a number >= 0" if above is None else f"a number > {above:g}"
    if not (0 <= value < float("inf")) or (above is not None and not value > above):
        raise FederationError(f"{owner}: {what} is {value}, expected {expected}")


def require_unique(what: str, names: Iterable[str]) -> None:
    """Refuse a name that is given twice, and an empty one. Raises FederationError naming it."""
    for name, times in Counter(names).items():
        if not name:
            raise FederationError(f"a {what} has no name: give it one")
        if times > 1:
            raise FederationError(f"{times} {what}s are named {name!r}: give each its own name")


@dataclass(frozen=True)
class Client:
    """One client and the data only it may see."""

    name: str  # unique in the application
    data_region: str  # the region its data are stored in
    train_samples: int  # samples it trains on; at least one
    test_samples: int  # samples it tests on
    train_s: float  # seconds that training of one round takes on the baseline VM (train_bl)
    test_s: float  # seconds that the test of one round takes on the baseline VM (test_bl)

    def __post_init__(self) -> None:
        owner = f"client {self.name!r}"
        if not self.data_region:
            raise FederationError(f"{owner} has no data: name the region they are stored in (data_region)")
        if self.train_samples == 0:
            raise FederationError(f"{owner} has no data: train_samples is 0, expected at least 1")
        require_number(owner, "train_samples", self.train_samples)
        require_number(owner, "test_samples", self.test_samples)
        require_number(owner, "train_s", self.train_s)
        require_number(owner, "test_s", self.test_s)

    @property
    def baseline_s(self) -> float:
        """Seconds of one round on the baseline VM, training and test."""
        return self.train_s + self.test_s


@dataclass(frozen=True)
class Messages:
    """GB of each message of a round, per client (Figure 5.1). Step 5 sends none."""

    server_train_gb: float  # step 1, the weights to a client (s_msg_train)
    client_train_gb: float  # step 2, its trained weights back (c_msg_train)
    server_aggregate_gb: float  # step 3, the aggregated weights to a client (s_msg_aggreg)
    client_test_gb: float  # step 4, its metrics back (c_msg_test)

    def __post_init__(self) -> None:
        for field in ("server_train_gb", "client_train_gb", "server_aggregate_gb", "client_test_gb"):
            require_number("messages", field, getattr(self, field))

    @property
    def from_server_gb(self) -> float:
        """GB that the server sends to one client in a round."""
        return self.server_train_gb + self.server_aggregate_gb

    @property
    def from_client_gb(self) -> float:
        """GB that one client sends to the server in a round."""
        return self.client_train_gb + self.client_test_gb


@dataclass(frozen=True)
class Aggregation:
    """How long the server aggregates in a round (t_aggreg)."""

    seconds: float  # part that does not depend on the number of clients
    seconds_per_client: float = 0.0  # part that grows with it

    def __post_init__(self) -> None:
        require_number("aggregation", "seconds", self.seconds)
        require_number("aggregation", "seconds_per_client", self.seconds_per_client)


@dataclass(frozen=True)
class FlApplication:
    """Rounds of five steps with a barrier: no client starts one before all have finished the last."""

    name: str  # for people
    rounds: int  # communication rounds
    clients: tuple[Client, ...]  # at least one
    messages: Messages  # sizes per client and round
    # seconds that one client's messages of one round take between the baseline regions (train_comm_bl +
    # test_comm_bl)
    communication_s: float
    # by VM type, region or provider of the server; the narrowest name that is given counts
    aggregation: Mapping[str, Aggregation]
    # seconds of a client's first training and test divided by those of later rounds
    first_round_slowdown: float = 1.0
    source: tuple[str, ...] = ()  # where the numbers come from, for people

    def __post_init__(self) -> None:
        owner = f"application {self.name!r}"
        if not self.clients:
            raise FederationError(f"{owner} has no clients: give at least one")
        require_unique("client", (client.name for client in self.clients))
        require_number(owner, "rounds", self.rounds, above=0)
        require_number(owner, "communication_s", self.communication_s)
        require_number(owner, "first_round_slowdown", self.first_round_slowdown, above=0)

    def aggregation_s(self, vm_type: str, region: str, provider: str) -> float:
        """Seconds of aggregation per round on a server there.

        Raises:
            FederationError: if none of the three names has an entry.
        """
        for name in (vm_type, region, provider):
            found = self.aggregation.get(name)
            if found is not None:
                return found.seconds + found.seconds_per_client * len(self.clients)
        raise FederationError(
            f"application {self.name!r} gives no aggregation time for a server on {vm_type!r}: "
            f"add one for this VM type, for region {region!r} or for provider {provider!r}"
        )
