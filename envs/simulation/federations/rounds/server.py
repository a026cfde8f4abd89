"""What applications over several clouds add: a server that is rented too, messages, quotas, checkpoints.

Source: Brum 2023 (Multi-FedLS), sections 5.1, 6.2 (quotas), 6.3 (checkpoints) and 8.3 (degradations).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

SERVER = -1
"""The server's number where a client's number is expected."""


@dataclass(frozen=True)
class Server:
    """The server as a task of its own: no round runs while it has no instance.

    Attributes:
        offers: indices of the offers that it may rent.
        spin_up_s: from the request of its instance until it serves, where the offer gives no other.
        aggregation_s: by offer, mean seconds of one aggregation there; where left out, the application's.
    """

    offers: tuple[int, ...]
    spin_up_s: float = 0.0
    aggregation_s: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_at_least_zero("spin_up_s of the server", self.spin_up_s)
        for offer, seconds in self.aggregation_s.items():
            require_at_least_zero(f"aggregation_s of a server on offer {offer}", seconds)


@dataclass(frozen=True)
class Links:
    """One client's messages of one round, between two zones. Missing pairs take no time and cost nothing.

    Attributes:
        seconds: [(client's zone, server's zone)] t_comm, Eq. 6.1.
        usd: [(client's zone, server's zone)] comm, Eq. 6.6.
    """

    seconds: Mapping[tuple[str, str], float] = field(default_factory=dict)
    usd: Mapping[tuple[str, str], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for what, table in (("seconds", self.seconds), ("USD", self.usd)):
            for (client, server), value in table.items():
                require_at_least_zero(f"{what} of messages between {client!r} and {server!r}", value)


@dataclass(frozen=True)
class Quota:
    """What may be rented at once (Eq. 6.13-6.16): GPUs or vCPUs of a region or a provider.

    Attributes:
        name: as messages show it, e.g. "GPUs of region us-west1".
        limit: how many.
        amounts: by offer, how many one instance takes; offers left out take none.
    """

    name: str
    limit: float
    amounts: Mapping[int, float]

    def __post_init__(self) -> None:
        require_at_least_zero(f"the limit of {self.name!r}", self.limit)
        for offer, amount in self.amounts.items():
            require_at_least_zero(f"what offer {offer} takes of {self.name!r}", amount)


@dataclass(frozen=True)
class Checkpoints:
    """What survives the server's revocation (Brum 2023, section 6.3).

    Attributes:
        every_rounds: the server saves the weights after every this many rounds; None: never.
        save_s: what such a save adds to its round.
        transfer_s: how long after it the copy elsewhere is complete; sent while the next round runs.
        round_s: what the server's checkpointing adds to every round.
        on_clients: whether each client keeps the weights of the last aggregation that it received.
        client_round_s: what that adds to each of a client's epochs.
    """

    every_rounds: int | None = None
    save_s: float = 0.0
    transfer_s: float = 0.0
    round_s: float = 0.0
    on_clients: bool = False
    client_round_s: float = 0.0

    def __post_init__(self) -> None:
        if self.every_rounds is not None and self.every_rounds < 1:
            raise ValueError(f"every_rounds is {self.every_rounds}: expected at least 1, or none")
        for word in ("save_s", "transfer_s", "round_s", "client_round_s"):
            require_at_least_zero(f"{word} of checkpoints", getattr(self, word))

    def after_round_s(self, rounds_done: int) -> float:
        """Seconds that the server's checkpointing adds to the round that is the `rounds_done`-th."""
        saves = self.every_rounds is not None and rounds_done % self.every_rounds == 0
        return self.round_s + (self.save_s if saves else 0.0)


@dataclass(frozen=True)
class Degradation:
    """Instances of an offer, or messages between two zones, are slower for a while.

    An epoch has the slowdown of its beginning.

    Attributes:
        slowdown: measured seconds divided by expected ones, > 0.
        from_s: when it begins.
        until_s: when it ends; None for never.
        offer: index of the offer whose instances compute more slowly.
        link: the two zones, in any order, between which messages are slower. Exactly one of both is given.
    """

    slowdown: float
    from_s: int = 0
    until_s: int | None = None
    offer: int | None = None
    link: tuple[str, str] | None = None

    def __post_init__(self) -> None:
        if not 0 < self.slowdown < float("inf"):
            raise ValueError(f"a degradation has the slowdown {self.slowdown}: expected a number > 0")
        if (self.offer is None) == (self.link is None):
            raise ValueError("a degradation is of an offer or of a link: give exactly one of both")
        if self.from_s < 0 or (self.until_s is not None and self.until_s <= self.from_s):
            raise ValueError(
                f"a degradation lasts from {self.from_s} to {self.until_s} s: expected 0 <= from < until"
            )

    def holds(self, time_s: float) -> bool:
        """Whether it lasts at `time_s`."""
        return self.from_s <= time_s and (self.until_s is None or time_s < self.until_s)


def require_at_least_zero(what: str, value: float) -> None:
    """Raise ValueError for NaN, infinity and values below 0."""
    if not 0 <= value < float("inf"):
        raise ValueError(f"{what} is {value}: expected a number >= 0")
