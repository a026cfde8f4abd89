"""The world of `spotweave/MultiCloud-v3` on recorded or a user's own traces."""

from __future__ import annotations

from dataclasses import replace

from envs.market_data import job_log, market_data
from envs.simulation.market.config import MarketWorldConfig
from envs.simulation.market.world import MarketWorld
from envs.traces.bundle import TraceBundle

__all__ = ["MarketWorldConfig", "build_market"]


def build_market(
    config: MarketWorldConfig | None = None,
    n_lanes: int = 1,
    bundle: TraceBundle | None = None,
    record: bool = False,
) -> MarketWorld:
    """The market world on recorded traces: those of `config.market.traces`, else the bundle's.

    The jobs are drawn, or those of `config.workload.trace`.

    Args:
        config: what to simulate; None: the defaults.
        n_lanes: copies.
        bundle: recorded markets; None: the bundle that ships with the package.
        record: remember who ran where, for `timeline`.

    Raises:
        WorldError: for a configuration that makes no sense.
        TraceError: for traces that cannot be used.
    """
    config = config if config is not None else MarketWorldConfig()
    config.validate()
    data = market_data(config.market, bundle)
    if config.workload.trace:
        largest = max(offer.quota for offer in data.offers)
        log = job_log(config.workload.trace, largest)
        log.require(config.workload.jobs)
        data = replace(data, log=log)
    return MarketWorld(config, data, n_lanes, record)
