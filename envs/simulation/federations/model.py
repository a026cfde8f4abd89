"""What a round costs and how long it takes, for any placement (Brum 2023, Eq. 6.1, 6.2, 6.4-6.8 and 6.17)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from spotweave.envs.simulation.federations.application import FederationError, FlApplication
from spotweave.envs.simulation.federations.clouds import Clouds, Market
from spotweave.envs.simulation.series import Floats

SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True)
class Placement:
    """One VM for the server and one for each client; no two tasks share a VM."""

    server: int  # index of the server's VM type in `Clouds.vm_types`
    clients: tuple[int, ...]  # [C] index of each client's VM type


@dataclass(frozen=True)
class Outcome:
    """What a placement gives, without interruptions."""

    round_s: float  # seconds of a round (t_m), but for the first
    round_usd: float  # USD of such a round: VMs and messages (total_costs)
    first_round_s: float  # seconds of the first round
    first_round_usd: float  # USD of the first round
    total_s: float  # seconds of all rounds
    total_usd: float  # USD of all rounds
    # alpha * round_usd / cost_max + (1 - alpha) * round_s / t_max (Eq. 6.3, normalised by 6.8)
    objective: float


class Federation:
    """An application on clouds, as arrays. C clients, V VM types, R regions.

    Every VM is billed for the whole round, as the barrier makes the fast ones wait for the slowest.

    Args:
        application: what runs.
        clouds: where it can run.
        server_market: how the server's VM is rented.
        client_market: how the clients' VMs are rented.

    Attributes:
        region: [V] region of each type.
        provider: [V] provider of each type.
        exec_s: [C, V] seconds of training and test per round; inf where it cannot run (t_exec, Eq. 6.2).
        comm_s: [R, R] seconds of one client's messages per round (t_comm, Eq. 6.1).
        aggregation_s: [V] seconds of aggregation on a server there (t_aggreg).
        message_usd: [P, P] USD per round of the messages between a client (first index) and the server of
            these providers (comm, Eq. 6.6).
        client_usd_s: [V] USD per second of a client's VM; inf where it is not offered on this market.
        server_usd_s: [V] the same for the server's VM.
        vcpus: [V].
        gpus: [V].
        t_max: seconds of the longest round over all clients, their VM types and server types (section 6.2).
        cost_max: USD of a round of t_max on the most expensive VMs with the dearest messages (Eq. 6.8).

    Raises:
        FederationError: for a region that does not exist, slowdowns or aggregation times that are missing,
            and markets on which nothing is offered.
    """

    def __init__(
        self,
        application: FlApplication,
        clouds: Clouds,
        server_market: Market = Market.ON_DEMAND,
        client_market: Market = Market.ON_DEMAND,
    ) -> None:
        self.application = application
        self.clouds = clouds
        self.server_market = server_market
        self.client_market = client_market
        regions = {region.name: k for k, region in enumerate(clouds.regions)}
        providers = {provider.name: k for k, provider in enumerate(clouds.providers)}
        types = clouds.vm_types
        self.region = np.array([regions[vm.region] for vm in types])
        self.provider = np.array([providers[clouds.region[vm.region].provider] for vm in types])
        self.region_provider = np.array([providers[region.provider] for region in clouds.regions])
        self.vcpus = np.array([vm.vcpus for vm in types])
        self.gpus = np.array([vm.gpus for vm in types])
        self.client_usd_s = _usd_per_second(clouds, client_market)
        self.server_usd_s = _usd_per_second(clouds, server_market)
        self.exec_s = self._exec_s()
        self.comm_s = self._comm_s()
        self.aggregation_s = np.array(
            [application.aggregation_s(vm.name, vm.region, clouds.region[vm.region].provider) for vm in types]
        )
        price = np.array([provider.transfer_usd_gb for provider in clouds.providers])
        messages = application.messages
        self.message_usd: Floats = (
            messages.from_client_gb * price[:, None] + messages.from_server_gb * price[None, :]
        )
        self.t_max = self._t_max()
        rates = np.concatenate([self.client_usd_s, self.server_usd_s])
        n = len(application.clients)
        self.cost_max = float(
            rates[np.isfinite(rates)].max() * self.t_max * (n + 1) + self.message_usd.max() * n
        )

    def _exec_s(self) -> Floats:
        clients, types = self.application.clients, self.clouds.vm_types
        usable = [k for k, vm in enumerate(types) if vm.hosts_clients and math.isfinite(self.client_usd_s[k])]
        if not usable:
            raise FederationError(
                f"no VM type hosts clients on the {self.client_market} market: "
                f"set hosts_clients of at least one type and give its price"
            )
        slowdown: dict[str, Floats] = {}
        for client in clients:
            if client.data_region in slowdown:
                continue
            self.clouds.require_region(f"client {client.name!r}", client.data_region)
            row = np.full(len(types), np.inf)
            for k in usable:
                row[k] = self.clouds.compute_slowdown(client.data_region, types[k].name)
            slowdown[client.data_region] = row
        return np.array([client.baseline_s * slowdown[client.data_region] for client in clients])

    def _comm_s(self) -> Floats:
        names = [region.name for region in self.clouds.regions]
        return self.application.communication_s * np.array(
            [[self.clouds.communication_slowdown(first, second) for second in names] for first in names]
        )

    def _t_max(self) -> float:
        servers = np.flatnonzero(np.isfinite(self.server_usd_s))
        if not len(servers):
            raise FederationError(
                f"no VM type is offered on the {self.server_market} market: "
                f"give prices, or take another market"
            )
        exec_s = np.where(np.isfinite(self.exec_s), self.exec_s, -np.inf).max(axis=0)
        slowest = exec_s[:, None] + self.comm_s[np.ix_(self.region, self.region[servers])]
        return float((slowest + self.aggregation_s[servers]).max())

    def outcome(self, placement: Placement, alpha: float = 0.5) -> Outcome:
        """Seconds, USD and objective of a placement. Quotas and limits are not looked at.

        Raises:
            FederationError: if a task is placed where it cannot run.
        """
        chosen = np.array(placement.clients)
        server = placement.server
        rows = np.arange(len(chosen))
        exec_s = self.exec_s[rows, chosen]
        usd_s = self.client_usd_s[chosen].sum() + self.server_usd_s[server]
        if not (np.isfinite(exec_s).all() and math.isfinite(usd_s)):
            raise FederationError(
                f"the placement puts a task where it cannot run: {', '.join(self.describe(placement))}"
            )
        along = self.comm_s[self.region[chosen], self.region[server]] + self.aggregation_s[server]
        messages = float(self.message_usd[self.provider[chosen], self.provider[server]].sum())
        round_s = float((exec_s + along).max())
        first_s = float((exec_s * self.application.first_round_slowdown + along).max())
        round_usd = float(usd_s * round_s + messages)
        first_usd = float(usd_s * first_s + messages)
        later = self.application.rounds - 1
        return Outcome(
            round_s=round_s,
            round_usd=round_usd,
            first_round_s=first_s,
            first_round_usd=first_usd,
            total_s=first_s + later * round_s,
            total_usd=first_usd + later * round_usd,
            objective=alpha * round_usd / self.cost_max + (1 - alpha) * round_s / self.t_max,
        )

    def placement(self, server: str, clients: tuple[str, ...] | list[str]) -> Placement:
        """A placement by the names of VM types, the clients in the application's order.

        Raises:
            FederationError: for a type that does not exist or another number of clients.
        """
        index = {vm.name: k for k, vm in enumerate(self.clouds.vm_types)}
        for name in (server, *clients):
            if name not in index:
                raise FederationError(f"a placement names VM type {name!r}, which is not there")
        if len(clients) != len(self.application.clients):
            raise FederationError(
                f"a placement has {len(clients)} clients, the application {len(self.application.clients)}"
            )
        return Placement(index[server], tuple(index[name] for name in clients))

    def describe(self, placement: Placement) -> tuple[str, ...]:
        """Names of the VM types: the server's, then each client's."""
        types = self.clouds.vm_types
        return types[placement.server].name, *(types[k].name for k in placement.clients)


def _usd_per_second(clouds: Clouds, market: Market) -> Floats:
    prices = [vm.usd_hour(market) for vm in clouds.vm_types]
    return np.array([math.inf if price is None else price / SECONDS_PER_HOUR for price in prices])
