"""What is simulated: an application of synchronous rounds, its clients and the offers they can rent."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import NamedTuple

import numpy as np

from spotweave.envs.simulation.series import StepSeries

SECONDS_PER_HOUR = 3600
HORIZON_S = 10 * 365 * 86_400
"""Money that lasts longer than this lasts for ever."""


class Tariff:
    """A step-wise constant price; before its first time the first price holds.

    Args:
        times_s: strictly increasing whole seconds.
        usd_hour: the price from each time on, >= 0.

    Raises:
        ValueError: for no price, prices below zero or not finite, times that do not increase.
    """

    def __init__(self, times_s: Sequence[int], usd_hour: Sequence[float]) -> None:
        StepSeries(np.array(times_s, np.int64), np.array(usd_hour, np.float64))
        if min(usd_hour) < 0:
            raise ValueError(f"a price is {min(usd_hour)} USD per hour: expected a number >= 0")
        self._times = [int(time) for time in times_s]
        self._prices = [float(price) for price in usd_hour]
        self._sums = [0.0]
        """USD-seconds per hour from the first time to each time."""
        for start, end, price in zip(self._times, self._times[1:], self._prices, strict=False):
            self._sums.append(self._sums[-1] + (end - start) * price)

    @staticmethod
    def constant(usd_hour: float) -> Tariff:
        """One price for ever."""
        return Tariff([0], [usd_hour])

    @staticmethod
    def of(series: StepSeries) -> Tariff:
        """The price of a recorded series (USD per hour)."""
        return Tariff(series.times_s.tolist(), series.values.tolist())

    def usd_hour(self, time_s: float) -> float:
        """The price that holds at `time_s`."""
        if len(self._prices) == 1:
            return self._prices[0]
        return self._prices[max(0, bisect_right(self._times, time_s) - 1)]

    def cost_usd(self, start_s: float, end_s: float) -> float:
        """What one instance costs from `start_s` to `end_s` (seconds, in this order)."""
        if len(self._prices) == 1:
            return (end_s - start_s) * self._prices[0] / SECONDS_PER_HOUR
        return (self._sum(end_s) - self._sum(start_s)) / SECONDS_PER_HOUR

    def _sum(self, time_s: float) -> float:
        at = max(0, bisect_right(self._times, time_s) - 1)
        return self._sums[at] + (time_s - self._times[at]) * self._prices[at]


# What applications over several clouds add: a server that is rented too, messages, quotas, checkpoints.
#
# Source: Brum 2023 (Multi-FedLS), sections 5.1, 6.2 (quotas), 6.3 (checkpoints) and 8.3 (degradations).

SERVER = -1
"""The server's number where a client's number is expected."""


@dataclass(frozen=True)
class Server:
    """The server as a task of its own: no round runs while it has no instance."""

    offers: tuple[int, ...]  # indices of the offers that it may rent
    spin_up_s: float = 0.0  # from the request of its instance until it serves, where the offer gives no other
    # by offer, mean seconds of one aggregation there; where left out, the application's
    aggregation_s: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_at_least_zero("spin_up_s of the server", self.spin_up_s)
        for offer, seconds in self.aggregation_s.items():
            require_at_least_zero(f"aggregation_s of a server on offer {offer}", seconds)


@dataclass(frozen=True)
class Links:
    """One client's messages of one round, between two zones. Missing pairs take no time and cost nothing."""

    # [(client's zone, server's zone)] t_comm, Eq. 6.1
    seconds: Mapping[tuple[str, str], float] = field(default_factory=dict)
    # [(client's zone, server's zone)] comm, Eq. 6.6
    usd: Mapping[tuple[str, str], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for what, table in (("seconds", self.seconds), ("USD", self.usd)):
            for (client, server), value in table.items():
                require_at_least_zero(f"{what} of messages between {client!r} and {server!r}", value)


@dataclass(frozen=True)
class Quota:
    """What may be rented at once (Eq. 6.13-6.16): GPUs or vCPUs of a region or a provider."""

    name: str  # as messages show it, e.g. "GPUs of region us-west1"
    limit: float  # how many
    amounts: Mapping[int, float]  # by offer, how many one instance takes; offers left out take none

    def __post_init__(self) -> None:
        require_at_least_zero(f"the limit of {self.name!r}", self.limit)
        for offer, amount in self.amounts.items():
            require_at_least_zero(f"what offer {offer} takes of {self.name!r}", amount)


@dataclass(frozen=True)
class Checkpoints:
    """What survives the server's revocation (Brum 2023, section 6.3)."""

    every_rounds: int | None = None  # the server saves the weights after every this many rounds; None: never
    save_s: float = 0.0  # what such a save adds to its round
    # how long after it the copy elsewhere is complete; sent while the next round runs
    transfer_s: float = 0.0
    round_s: float = 0.0  # what the server's checkpointing adds to every round
    on_clients: bool = False  # whether each client keeps the weights of the last aggregation that it received
    client_round_s: float = 0.0  # what that adds to each of a client's epochs

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
    """

    slowdown: float  # measured seconds divided by expected ones, > 0
    from_s: int = 0  # when it begins
    until_s: int | None = None  # when it ends; None for never
    offer: int | None = None  # index of the offer whose instances compute more slowly
    # the two zones, in any order, between which messages are slower. Exactly one of both is given
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


class Market(IntEnum):
    """How an instance is rented."""

    SPOT = 0
    ON_DEMAND = 1


@dataclass(frozen=True)
class Offer:
    """Something a client's instance can be: one zone, one market."""

    name: str  # unique, as tables show it
    zone: str  # provider's zone
    market: Market  # spot or on demand
    tariff: Tariff  # USD per hour over time
    # mean of the exponential time until the provider interrupts an instance; None for never
    mean_time_to_interruption_s: float | None = None
    # 1.0 where an instance can run; where it falls to 0.0 those that run are interrupted, and nothing starts
    # there until it rises. None for always
    availability: StepSeries | None = None
    # mean seconds from the request of an instance here until it can work; None: the client's
    spin_up_s: float | None = None

    def __post_init__(self) -> None:
        mean = self.mean_time_to_interruption_s
        if mean is not None and not mean > 0:
            raise ValueError(f"offer {self.name!r} has a mean time to interruption of {mean} s: expected > 0")
        if self.spin_up_s is not None:
            require_at_least_zero(f"spin_up_s of offer {self.name!r}", self.spin_up_s)

    def available(self, time_s: float) -> bool:
        """Whether an instance can start here at `time_s`."""
        return self.availability is None or self.availability.at(time_s) > 0


class EpochTimes(NamedTuple):
    """Mean seconds of one round's local training: on an instance that has trained, and first on a new one."""

    warm_s: float
    cold_s: float


@dataclass(frozen=True)
class Client:
    """One participant. Times are means; each round's own are drawn (`draws`)."""

    name: str  # unique, as tables show it
    epoch_warm_s: float  # one round's local training on an instance that has trained before
    epoch_cold_s: float  # the same, first on a new instance; >= epoch_warm_s
    spin_up_s: float  # from the request of an instance until it can train
    offers: tuple[int, ...]  # indices of the offers that this client may rent
    budget_usd: float | None = None  # what all its instances may cost together; None for no limit
    # epoch times on offers where they differ from those above (other instance types)
    on_offer: Mapping[int, EpochTimes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        usual = EpochTimes(self.epoch_warm_s, self.epoch_cold_s)
        for where, times in (("", usual), *((f" on offer {k}", given) for k, given in self.on_offer.items())):
            if not 0 < times.warm_s <= times.cold_s < float("inf"):
                raise ValueError(
                    f"client {self.name!r} has warm and cold epochs of {times.warm_s} and {times.cold_s} s"
                    f"{where}: expected seconds above 0, the cold one not below the warm one"
                )
        require_at_least_zero(f"spin_up_s of client {self.name!r}", self.spin_up_s)
        if self.budget_usd is not None:
            require_at_least_zero(f"budget_usd of client {self.name!r}", self.budget_usd)

    def times(self, offer: int) -> EpochTimes:
        """Mean epoch times on an offer, messages excluded."""
        return self.on_offer.get(offer) or EpochTimes(self.epoch_warm_s, self.epoch_cold_s)


@dataclass(frozen=True)
class Interruption:
    """The provider takes a client's (or the server's) instance, if it has one then."""

    client: int  # index of the client, or SERVER
    time_s: int  # when, in whole seconds from the beginning


_AT_LEAST_ZERO = (
    *("aggregation_s", "epoch_cv", "spin_up_cv", "run_cv", "billing_minimum_s", "free_first_s", "closing_s"),
    *("interruptions_per_task", "server_usd_hour"),
)


@dataclass(frozen=True)
class Application:
    """Rounds, clients, offers and the provider's rules."""

    name: str  # as tables show it
    rounds: int  # how many rounds everybody trains
    clients: tuple[Client, ...]  # the participants
    offers: tuple[Offer, ...]  # what can be rented
    aggregation_s: int = 0  # from the last result of a round until the next round can begin
    # whether a round begins for all when the last of them is ready (the server of Sinha 2025 sends its tasks
    # then), or for each client as soon as it is ready
    start_together: bool = True
    # seconds of training between two checkpoints; None: an interrupted epoch starts over
    checkpoint_s: int | None = 60
    epoch_cv: float = 0.0  # coefficient of variation of epoch times between rounds
    spin_up_cv: float = 0.0  # the same of spin-up times
    billing_minimum_s: int = 60  # seconds that every instance costs at least
    free_first_s: int = 0  # an instance that the provider interrupts earlier than this costs nothing
    # price of a server that runs from the beginning to the end, and is never placed
    server_usd_hour: float = 0.0
    # given interruptions, besides those that the offers draw
    interruptions: tuple[Interruption, ...] = field(default=())
    server: Server | None = None  # the server where it is a task of its own, rented on an offer like a client
    links: Links | None = None  # what messages between clients and such a server take and cost
    quotas: tuple[Quota, ...] = ()  # what may be rented at once
    # what survives the server's revocation; None: the application starts over
    checkpoints: Checkpoints | None = None
    degradations: tuple[Degradation, ...] = ()  # offers and links that are slower than expected for a while
    spin_up_billed: bool = True  # whether an instance is paid from its request on, or from when it can work
    spin_up_interrupted: bool = True  # whether the provider may take an instance that cannot work yet
    # the provider takes no more instances than that of a client, or of the server; None: any number
    interruptions_per_task: int | None = None
    # from the last aggregation until the instances end (results are fetched); they are paid
    closing_s: int = 0
    # the same of a whole application: all its epochs and spin-ups are longer or shorter together
    run_cv: float = 0.0

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise ValueError(f"rounds is {self.rounds}: expected at least 1")
        if not self.clients or not self.offers:
            raise ValueError(f"{self.name!r} has no {'offers' if self.clients else 'clients'}: expected some")
        for kind, names in (
            ("client", [client.name for client in self.clients]),
            ("offer", [offer.name for offer in self.offers]),
        ):
            twice = {name for name in names if names.count(name) > 1}
            if twice:
                raise ValueError(f"two {kind}s are called {min(twice)!r}: names must differ")
        for word in _AT_LEAST_ZERO:
            require_at_least_zero(word, getattr(self, word) or 0)
        if self.checkpoint_s is not None and self.checkpoint_s < 1:
            raise ValueError(f"checkpoint_s is {self.checkpoint_s}: expected seconds of at least 1, or none")
        for client in self.clients:
            self._require_offers(f"client {client.name!r}", client.offers)
            self._require_affordable_round(client)
        self._require_server()
        for interruption in self.interruptions:
            known = 0 <= interruption.client < len(self.clients)
            if not known and not (self.server and interruption.client == SERVER):
                raise ValueError(f"an interruption names client {interruption.client}, which does not exist")
            require_at_least_zero("time_s of an interruption", interruption.time_s)

    def __deepcopy__(self, memo: dict[int, object]) -> Application:
        """Itself, as nothing in it changes: copies of a world share it."""
        return self

    def _require_affordable_round(self, client: Client) -> None:
        """A budget that cannot pay for one round anywhere is a mistake, not a scenario."""
        if client.budget_usd is None:
            return
        seconds, needed = min(
            (
                (seconds, self.offers[offer].tariff.cost_usd(0, seconds))
                for offer in client.offers
                for seconds in (
                    max(self.spin_up_s(client, offer) + client.times(offer).cold_s, self.billing_minimum_s),
                )
            ),
            key=lambda pair: pair[1],
        )
        if client.budget_usd < needed:
            raise ValueError(
                f"the budget of client {client.name!r} is {client.budget_usd:g} USD, but its first round "
                f"alone ({seconds:g} s with spin-up) costs {needed:.4f} USD on its cheapest offer: raise it"
            )

    def _require_offers(self, owner: str, offers: tuple[int, ...]) -> None:
        if not offers or not all(0 <= offer < len(self.offers) for offer in offers):
            raise ValueError(
                f"{owner} names the offers {list(offers)}: "
                f"expected at least one of 0 to {len(self.offers) - 1}"
            )

    def _require_server(self) -> None:
        if self.server is None:
            if self.links or self.checkpoints:
                raise ValueError("links and checkpoints need a server that is a task of its own: give one")
        else:
            if self.server_usd_hour:
                raise ValueError("server_usd_hour is the price of a server that is not placed: leave it out")
            self._require_offers("the server", self.server.offers)
        for item in self.degradations:
            if item.offer is not None:
                self._require_offers("a degradation", (item.offer,))

    def spin_up_s(self, client: Client | Server, offer: int) -> float:
        """Mean seconds from the request of an instance on an offer until it can work."""
        given = self.offers[offer].spin_up_s
        return client.spin_up_s if given is None else given

    @cached_property
    def plain(self) -> bool:
        """Whether epoch times depend on the client alone: one instance type, no messages, no degradations."""
        alike = all(not client.on_offer for client in self.clients)
        return alike and self.server is None and not self.degradations

    def server_aggregation_s(self, offer: int) -> float:
        """Mean seconds of an aggregation by a server on an offer, checkpointing excluded."""
        if self.server is None:
            return self.aggregation_s
        return self.server.aggregation_s.get(offer, self.aggregation_s)

    def message_s(self, client_offer: int, server_offer: int) -> float:
        """Seconds of a round's messages between a client and a server on these offers."""
        return self._links[0][client_offer][server_offer] if self.links else 0.0

    def message_usd(self, client_offer: int, server_offer: int) -> float:
        """USD of a round's messages between a client and a server on these offers."""
        return self._links[1][client_offer][server_offer] if self.links else 0.0

    @cached_property
    def _links(self) -> tuple[list[list[float]], list[list[float]]]:
        """[client's offer][server's offer] seconds and USD."""
        assert self.links is not None
        zones = [offer.zone for offer in self.offers]
        seconds, usd = (
            [[table.get((client, server), 0.0) for server in zones] for client in zones]
            for table in (self.links.seconds, self.links.usd)
        )
        return seconds, usd
