"""Other markets and loads to train on: offers, owned executors, load and size of jobs drawn at random.

What markets are made of is imported when one is drawn: every command reads the settings.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import AfterValidator, Field

if TYPE_CHECKING:
    from spotweave.envs.market_data import MarketWorldConfig
    from spotweave.envs.simulation.market.config import OfferConfig, WorkloadConfig


def _bounds(given: list[float]) -> list[float]:
    if not (len(given) == 2 and 0 < given[0] <= given[1] < math.inf):
        raise ValueError(f"expected two bounds [a, b] with 0 < a <= b, got {given}")
    return given


Share = Annotated[float, Field(ge=0.0, le=1.0)]
Bounds = Annotated[list[float], AfterValidator(_bounds)]


MOST_DECISIONS = 20_000
"""After which an episode of a drawn market ends: where nothing is free for days it takes a hundred thousand,
and the other lanes of the round wait for it."""


@dataclass
class Variety:
    """How much the markets of a training differ. [a, b] are inclusive bounds."""

    share: Share = 0.0  # of the rounds that are played in a drawn market; 0: all in the configured one
    every_offer: Share = 0.2  # of the drawn markets, those that keep all offers
    without_owned: Share = 0.3  # those that have no owned cluster
    # executors of the first owned cluster in the others
    owned: Annotated[list[int], AfterValidator(_bounds)] = field(default_factory=lambda: [4, 12])
    one_owned: Share = 0.5  # of these, those that have no further one, and this one of fixed size
    jobs_only: Share = 0.3  # those without federated applications, bags and workflows
    # factor on the arrivals per second (log-uniform)
    load: Bounds = field(default_factory=lambda: [0.5, 2.0])
    small_jobs: Share = 0.3  # those whose one-shot jobs are smaller than configured
    # factor on the time, data and checkpoints of these (log-uniform)
    job_size: Bounds = field(default_factory=lambda: [0.01, 0.3])


def draw_market(config: MarketWorldConfig, variety: Variety, seed: int, number: int) -> MarketWorldConfig:
    """The market of round `number` of a training: a function of the seed and the number only.

    The first round is played in the configured market. A drawn one has a subset of its offers: those of one
    provider, of some regions, of one instance type, or each by chance; at least one of them is spot and one
    on demand, so that every job can run somewhere.

    Args:
        config: the configured market.
        variety: how much markets differ.
        seed: of the training.
        number: of the round, >= 0.
    """
    from spotweave.envs.simulation.streams import Streams

    rng = Streams(np.random.SeedSequence(seed, spawn_key=(number,))).generator("markets")
    if number == 0 or rng.random() >= variety.share:
        return config
    drawn = vary(config, variety, rng)
    most = min(config.market.max_decisions, MOST_DECISIONS)
    return dataclasses.replace(drawn, market=dataclasses.replace(drawn.market, max_decisions=most))


def vary(config: MarketWorldConfig, variety: Variety, rng: np.random.Generator) -> MarketWorldConfig:
    """A market drawn at random, as `draw_market` says."""
    from spotweave.envs.market_data import market_data

    offers = [offer for offer in market_data(config.market).offers if offer.market != "owned"]
    kept = offers if rng.random() < variety.every_offer else draw_offers(offers, rng)
    owned = int(rng.integers(variety.owned[0], variety.owned[1], endpoint=True))
    market = dataclasses.replace(config.market, offers=[offer.name for offer in kept], owned_executors=owned)
    if rng.random() < variety.without_owned:
        market = dataclasses.replace(market, owned_executors=0)
    workload = dataclasses.replace(
        config.workload,
        arrival_unit_s=max(1, round(config.workload.arrival_unit_s / log_uniform(variety.load, rng))),
    )
    if rng.random() < variety.small_jobs:
        workload = smaller(workload, log_uniform(variety.job_size, rng))
    if rng.random() < variety.one_owned:
        market = dataclasses.replace(market, owned_elastic=0, more_owned=[])
    if rng.random() < variety.jobs_only:
        workload = jobs_only(workload)
    return dataclasses.replace(config, market=market, workload=workload)


def draw_offers(offers: Sequence[OfferConfig], rng: np.random.Generator) -> list[OfferConfig]:
    """A subset with at least one spot and one on-demand offer, if `offers` has such."""
    sides = sorted({offer.market for offer in offers})
    for _ in range(100):
        kept = _subset(offers, rng)
        if sorted({offer.market for offer in kept}) == sides:
            return kept
    return list(offers)


def _subset(offers: Sequence[OfferConfig], rng: np.random.Generator) -> list[OfferConfig]:
    way = rng.integers(4)
    if way == 0:
        provider = rng.choice(sorted({offer.provider for offer in offers}))
        return [offer for offer in offers if offer.provider == provider]
    if way == 1:
        regions = sorted({offer.region for offer in offers})
        some = rng.choice(regions, rng.integers(1, len(regions), endpoint=True), replace=False)
        return [offer for offer in offers if offer.region in some]
    if way == 2:
        instance_type = rng.choice(sorted({offer.instance_type for offer in offers}))
        return [offer for offer in offers if offer.instance_type == instance_type]
    chance = rng.uniform(0.2, 0.9)
    return [offer for offer in offers if rng.random() < chance]


def smaller(workload: WorkloadConfig, size: float) -> WorkloadConfig:
    """The workload with one-shot jobs, inputs and checkpoints of `size` times what they are."""
    return dataclasses.replace(
        workload,
        standard_s=[max(1, round(size * bound)) for bound in workload.standard_s],
        data_gb_median=size * workload.data_gb_median,
        data_gb=[size * bound for bound in workload.data_gb],
        checkpoint_gb=[size * bound for bound in workload.checkpoint_gb],
    )


def jobs_only(workload: WorkloadConfig) -> WorkloadConfig:
    """The workload without federated applications, bags and workflows."""
    bags = dataclasses.replace(workload.bags, share=0.0)
    workflows = dataclasses.replace(workload.workflows, share=0.0)
    return dataclasses.replace(workload, federated=False, bags=bags, workflows=workflows)


def log_uniform(within: Sequence[float], rng: np.random.Generator) -> float:
    """A number whose logarithm is uniform within the bounds."""
    return math.exp(rng.uniform(math.log(within[0]), math.log(within[1])))


VALIDATION_MARKETS = 3


def validation_markets(config: MarketWorldConfig, variety: Variety, seed: int) -> list[MarketWorldConfig]:
    """Validation markets of a policy for many markets: the configured market first.

    Then each provider alone, and drawn offers that no training round plays, with load and jobs as configured.
    """
    from spotweave.envs.simulation.streams import Streams

    markets = [config]
    if len(config.market.providers) > 1:
        for provider in config.market.providers:
            alone = dataclasses.replace(config.market, providers=[provider])
            markets.append(dataclasses.replace(config, market=alone))
    same_jobs = dataclasses.replace(variety, every_offer=0.0, small_jobs=0.0, jobs_only=0.0, load=[1.0, 1.0])
    for number in range(VALIDATION_MARKETS):
        rng = Streams(np.random.SeedSequence(seed, spawn_key=(number, 1))).generator("markets")
        markets.append(vary(config, same_jobs, rng))
    return markets
