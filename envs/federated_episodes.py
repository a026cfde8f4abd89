"""Federated episodes: a scenario, or applications drawn on recorded and plain markets."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, cast

import numpy as np

from spotweave.envs.federated_data.multi_fedls import parse_multi_fedls
from spotweave.envs.federated_data.rounds_scenarios import (
    ScenarioError,
    parse_rounds,
    read_json,
    scenario_path,
)
from spotweave.envs.market_data import recorded_market
from spotweave.envs.simulation.federations.rounds.application import (
    Application,
    Client,
    Market,
    Offer,
    Tariff,
)
from spotweave.envs.simulation.federations.world import (
    ApplicationSource,
    FederatedWorld,
    OneApplication,
)
from spotweave.envs.simulation.market.config import MarketConfig
from spotweave.envs.simulation.market.source import MarketData
from spotweave.envs.simulation.series import StepSeries
from spotweave.envs.simulation.streams import Streams, episode_sequence, exp
from spotweave.envs.simulation.world import EpisodeKey, WorldError, at_least, shares

Kind = Literal["one_zone", "zones", "mixed"]
HISTORY_S = 7 * 86_400
_HOUR_S = 3600


@dataclass
class FederatedConfig:
    """What `spotweave/Federated-v1` simulates."""

    # a scenario file, or the name of a bundled one (docs/federated-rounds.md), whose `start_together` does
    # not count: here each client begins when it is ready. Empty: every episode draws an application.
    scenario: str = ""
    # of drawn applications: "one_zone" (a constant price, as in Sinha 2025), "zones" (recorded AWS spot zones
    # with their availability, and on-demand offers) or "mixed"
    market: Kind = "mixed"
    clients_least: int = 2  # fewest clients of a drawn application
    clients_most: int = 8  # most clients
    rounds_least: int = 6  # fewest rounds
    rounds_most: int = 24  # most rounds
    time_weight: float = 0.5  # per cent of cost that one per cent of delay weighs as much as
    # whether tasks' mean times are known beforehand (pre-scheduling) or learned in the rounds
    measured: bool = False
    budget_share: float = 0.1  # share of drawn applications whose clients have budgets

    def validate(self) -> None:
        """Raises WorldError for a configuration that makes no sense."""
        for least, most in (("clients_least", "clients_most"), ("rounds_least", "rounds_most")):
            low, high = getattr(self, least), getattr(self, most)
            if not 1 <= low <= high:
                raise WorldError(f"env.{least} is {low} and env.{most} {high}: expected 1 <= least <= most")
        at_least(self, "env", 0, "time_weight")
        shares(self, "env", "budget_share")


@dataclass
class DrawnApplications:
    """Applications whose clients, times and market are drawn for each episode. An `ApplicationSource`.

    Args:
        config: ranges.
        data: recorded markets.
    """

    config: FederatedConfig
    data: MarketData

    @cached_property
    def _recorded(self) -> list[int]:
        """Offers of the recorded market with recorded (or no limits of) availability: AWS.

        On demand first, which is always there: what was valid on a plain market stays so on this one.
        """
        aws = [
            k
            for k, offer in enumerate(self.data.offers)
            if offer.provider == "aws" and self.data.availability[k] is not None
        ]
        return sorted(aws, key=lambda k: self.data.offers[k].market == "spot")

    @property
    def n_offers(self) -> int:
        """The recorded offers; a plain market has two."""
        return 2 if self.config.market == "one_zone" else max(2, len(self._recorded))

    @property
    def offer_names(self) -> tuple[str, ...]:
        """Names of the recorded offers; in a plain market the first two are spot and on demand."""
        if self.config.market == "one_zone":
            return ("spot", "on-demand")
        return tuple(self.data.offers[k].name for k in self._recorded)

    def application(self, key: EpisodeKey) -> Application:
        """The application of an episode."""
        streams = Streams(episode_sequence(key.seed, key.split, key.index))
        market = streams.generator("window")
        sizes = streams.generator("arrivals")
        plain = self.config.market == "one_zone"
        if self.config.market == "mixed":
            plain = bool(market.random() < 0.5)
        offers = self._plain(market) if plain else self._zones(key, market)
        n = int(sizes.integers(self.config.clients_least, self.config.clients_most + 1))
        rounds = int(sizes.integers(self.config.rounds_least, self.config.rounds_most + 1))
        slowest_s = math.exp(sizes.uniform(math.log(300), math.log(1800)))
        shares = exp(sizes.uniform(math.log(0.03), 0.0, n))
        shares /= shares.max()
        cold_s, spin_up_s = sizes.uniform(20, 200), sizes.uniform(60, 240)
        budgeted = bool(sizes.random() < self.config.budget_share)
        generosity = sizes.uniform(0.4, 1.2, n)
        dearest = max(offer.tariff.usd_hour(0) for offer in offers)
        epoch_cv = float(sizes.choice([0.005, 0.01, 0.02, 0.05]))
        clients = []
        for k in range(n):
            warm_s = max(5.0, float(slowest_s * shares[k]))
            whole_s = spin_up_s + cold_s + rounds * (warm_s + 0.5 * (cold_s + spin_up_s))
            usd = float(generosity[k]) * dearest * whole_s / _HOUR_S + 2 * dearest * spin_up_s / _HOUR_S
            clients.append(
                Client(
                    f"client {k + 1}",
                    warm_s,
                    warm_s + cold_s,
                    float(spin_up_s),
                    tuple(range(len(offers))),
                    usd if budgeted else None,
                )
            )
        return Application(
            name="drawn",
            rounds=rounds,
            clients=tuple(clients),
            offers=offers,
            aggregation_s=int(sizes.integers(0, 20)),
            start_together=False,
            epoch_cv=epoch_cv,
            spin_up_cv=0.1,
            free_first_s=0 if plain else _HOUR_S,
        )

    def _plain(self, rng: np.random.Generator) -> tuple[Offer, ...]:
        """One zone, constant prices; two of five markets interrupt."""
        on_demand = float(rng.uniform(0.5, 3.5))
        spot = on_demand * float(rng.uniform(0.25, 0.6))
        mean_s = float(rng.choice([0.0, 0.0, 0.0, 2.0, 4.0])) * _HOUR_S
        return (
            Offer("spot", "zone", Market.SPOT, Tariff.constant(spot), mean_s if mean_s else None),
            Offer("on-demand", "zone", Market.ON_DEMAND, Tariff.constant(on_demand)),
        )

    def _zones(self, key: EpisodeKey, rng: np.random.Generator) -> tuple[Offer, ...]:
        """Recorded zones from a moment of the split on, with what was recorded before it as their past."""
        start, end = self.data.splits[key.split]
        origin = int(rng.integers(start, max(start + 1, end - 2 * 86_400)))
        return tuple(self._recorded_offer(k, start, origin, end) for k in self._recorded)

    def _recorded_offer(self, k: int, start: int, origin: int, end: int) -> Offer:
        offer, up = self.data.offers[k], self.data.availability[k]
        assert up is not None
        spot, since = offer.market == "spot", max(start, origin - HISTORY_S)
        return Offer(
            name=offer.name,
            zone=offer.zone or offer.region,
            market=Market.SPOT if spot else Market.ON_DEMAND,
            tariff=Tariff.of(_shifted(self.data.price_usd_hour[k], since, end, origin)),
            availability=_shifted(up, since, end, origin) if spot else None,
        )


def _shifted(series: StepSeries, since: int, end: int, origin: int) -> StepSeries:
    """The part of a series in [since, end) with `origin` as second 0; its last value holds afterwards."""
    part = series.window(since, end)
    return StepSeries(part.times_s + (since - origin), part.values)


def federated_source(config: FederatedConfig) -> ApplicationSource:
    """Source of the episodes of a configuration.

    Raises:
        WorldError: for a configuration or a scenario file that cannot be used, in one line.
    """
    config.validate()
    if config.scenario:
        try:
            application = _scenario(config.scenario)
        except ScenarioError as error:
            raise WorldError(str(error)) from error
        return cast(ApplicationSource, OneApplication(application))
    return cast(ApplicationSource, DrawnApplications(config, recorded_market(MarketConfig())))


def _scenario(name: str) -> Application:
    """The application of a scenario, of either kind; each client trains as soon as it is ready.

    Raises:
        ScenarioError: one line that says what is wrong.
    """
    path = scenario_path(name)
    content = read_json(path)
    if content.get("kind") == "multi_fedls":
        application = parse_multi_fedls(content, str(path)).deployment.application
    else:
        application = parse_rounds(content, str(path))
    # Where a round waits for its last client to be ready, no late start is possible: nothing to be decided.
    return replace(application, start_together=False)


def build_federated(config: FederatedConfig, n_lanes: int = 1, record: bool = False) -> FederatedWorld:
    """A federated world of `n_lanes` copies; each keeps a timeline. Raises as `federated_source`."""
    return FederatedWorld(federated_source(config), n_lanes, config.time_weight, config.measured)
