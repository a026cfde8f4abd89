"""A federated application and the clouds it can run on, as rounds to simulate (Brum 2023, chapter 6).

Every VM type is an offer on each market that it has a price on; its region is the offer's zone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from spotweave.envs.simulation.federations.application import FederationError, FlApplication
from spotweave.envs.simulation.federations.clouds import Clouds, Measured
from spotweave.envs.simulation.federations.clouds import Market as CloudMarket
from spotweave.envs.simulation.federations.model import Federation
from spotweave.envs.simulation.federations.rounds.application import (
    Application,
    Checkpoints,
    Client,
    Degradation,
    EpochTimes,
    Interruption,
    Links,
    Market,
    Offer,
    Quota,
    Server,
    Tariff,
)


@dataclass(frozen=True)
class Conditions:
    """What application and clouds leave open."""

    revocation_mean_s: float | None = None  # mean seconds until a spot VM is revoked (k_r); None: never
    # seconds from the request of a VM until it can work, by provider; those left out take none
    spin_up_s: Mapping[str, float] = field(default_factory=dict)
    # seconds that a client's first epoch on a new VM takes longer, by VM type; others take the application's
    # `first_round_slowdown`
    cold_s: Mapping[str, float] = field(default_factory=dict)
    checkpoints: Checkpoints | None = None  # what survives the server's revocation
    # VM types (by their offers) and links that are slower than measured for a while
    degradations: tuple[Degradation, ...] = ()
    messages_billed: bool = True  # whether providers charge for messages
    closing_s: int = 0  # from the last aggregation until the results are fetched
    spin_up_billed: bool = True  # whether a VM is paid from its request, or from when it can work
    spin_up_interrupted: bool = True  # whether a VM that cannot work yet may be revoked
    revocations_per_task: int | None = None  # no task loses more VMs than this; None: any number
    epoch_cv: float = 0.0  # coefficient of variation of epoch times between rounds
    # the same between runs: all epochs and spin-ups of a run are longer or shorter together
    run_cv: float = 0.0
    spin_up_cv: float = 0.0  # the same of spin-up times
    interruptions: tuple[Interruption, ...] = ()  # given revocations


_ALIKE = (
    *("epoch_cv", "spin_up_cv", "run_cv", "interruptions", "checkpoints", "degradations"),
    *("spin_up_billed", "spin_up_interrupted", "closing_s"),
)
"""Conditions that an `Application` has by the same names."""


@dataclass(frozen=True)
class Deployment:
    """An application on clouds under given conditions."""

    fl_application: FlApplication  # what runs
    clouds: Clouds  # where it can run
    conditions: Conditions = field(default_factory=Conditions)  # the rest

    def with_conditions(self, conditions: Conditions) -> Deployment:
        """The same application on the same clouds under others."""
        return dataclasses.replace(self, conditions=conditions)

    @cached_property
    def places(self) -> tuple[tuple[int, Market], ...]:
        """By offer: index of its VM type, and its market."""
        return tuple(
            (k, market)
            for k, vm in enumerate(self.clouds.vm_types)
            for market, price in ((Market.SPOT, vm.spot_usd_hour), (Market.ON_DEMAND, vm.on_demand_usd_hour))
            if price is not None
        )

    @cached_property
    def offer_of(self) -> dict[tuple[int, Market], int]:
        """The offer of a VM type on a market; types that are not offered there are missing."""
        return {place: offer for offer, place in enumerate(self.places)}

    def federation(self, server: Market, clients: Market) -> Federation:
        """Times and costs of placements, with these markets' prices.

        Raises:
            FederationError: if nothing is offered on a market, or a measurement is missing.
        """
        markets = (CloudMarket(market.name.lower()) for market in (server, clients))
        return Federation(self.fl_application, self.clouds, *markets)

    @cached_property
    def application(self) -> Application:
        """The application that `rounds.world` simulates.

        Raises:
            FederationError: if a measurement is missing.
            ValueError: for conditions out of range.
        """
        fl, clouds, conditions = self.fl_application, self.clouds, self.conditions
        federation = self.federation(Market.ON_DEMAND, Market.ON_DEMAND)
        offers = tuple(self._offer(k, market) for k, market in self.places)
        hosting = tuple(o for o, (k, _) in enumerate(self.places) if clouds.vm_types[k].hosts_clients)
        clients = []
        for number, client in enumerate(fl.clients):
            times = {o: self._epoch_times(number, self.places[o][0], federation) for o in hosting}
            first = times[hosting[0]]
            clients.append(Client(client.name, first.warm_s, first.cold_s, 0.0, hosting, on_offer=times))
        names = [region.name for region in clouds.regions]
        pairs = [(a, b, i, j) for i, a in enumerate(names) for j, b in enumerate(names)]
        provider = federation.region_provider
        links = Links(
            {(a, b): float(federation.comm_s[i, j]) for a, b, i, j in pairs},
            {
                (a, b): float(federation.message_usd[provider[i], provider[j]])
                for a, b, i, j in pairs
                if conditions.messages_billed
            },
        )
        aggregation = {o: float(federation.aggregation_s[k]) for o, (k, _) in enumerate(self.places)}
        return Application(
            name=fl.name,
            rounds=fl.rounds,
            clients=tuple(clients),
            offers=offers,
            checkpoint_s=None,
            billing_minimum_s=0,
            server=Server(tuple(range(len(offers))), 0.0, aggregation),
            links=links,
            quotas=tuple(self._quotas()),
            interruptions_per_task=conditions.revocations_per_task,
            **{name: getattr(conditions, name) for name in _ALIKE},
        )

    def _offer(self, vm_type: int, market: Market) -> Offer:
        vm, spot = self.clouds.vm_types[vm_type], market is Market.SPOT
        price = vm.spot_usd_hour if spot else vm.on_demand_usd_hour
        assert price is not None
        provider = self.clouds.region[vm.region].provider
        return Offer(
            f"{vm.name} {market.name.lower().replace('_', '-')}",
            vm.region,
            market,
            Tariff.constant(price),
            self.conditions.revocation_mean_s if spot else None,
            spin_up_s=self.conditions.spin_up_s.get(provider, 0.0),
        )

    def _epoch_times(self, client: int, vm_type: int, federation: Federation) -> EpochTimes:
        warm_s = float(federation.exec_s[client, vm_type])
        more_s = self.conditions.cold_s.get(self.clouds.vm_types[vm_type].name)
        if more_s is None:
            # The published first rounds of some types are the faster ones; a cold epoch never is here.
            return EpochTimes(warm_s, warm_s * max(1.0, self.fl_application.first_round_slowdown))
        return EpochTimes(warm_s, warm_s + more_s)

    def _quotas(self) -> list[Quota]:
        clouds = self.clouds
        quotas = []
        for kind, owners in (("region", clouds.regions), ("provider", clouds.providers)):
            for owner in owners:
                for what, limit in (("gpus", owner.max_gpus), ("vcpus", owner.max_vcpus)):
                    if limit is None:
                        continue
                    amounts = {}
                    for offer, (k, _) in enumerate(self.places):
                        vm = clouds.vm_types[k]
                        here = vm.region if kind == "region" else clouds.region[vm.region].provider
                        if here == owner.name and getattr(vm, what):
                            amounts[offer] = getattr(vm, what)
                    quotas.append(Quota(f"{what} of {kind} {owner.name}", limit, amounts))
        return quotas


def keep_types(clouds: Clouds, names: Collection[str]) -> Clouds:
    """The clouds with these VM types only, as where others could not be rented.

    Raises:
        FederationError: for a name that does not exist.
    """
    for name in names:
        if name not in clouds.vm_type:
            raise FederationError(f"VM type {name!r} is not there: use some of {', '.join(clouds.vm_type)}")
    return dataclasses.replace(
        clouds,
        vm_types=tuple(vm for vm in clouds.vm_types if vm.name in names),
        compute_slowdowns={
            region: {name: slowdown for name, slowdown in table.items() if name in names}
            for region, table in clouds.compute_slowdowns.items()
        },
        measured=Measured(),
    )
