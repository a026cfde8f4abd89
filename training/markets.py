"""The published markets: what `+env/markets=NAME` changes of `+env=multicloud`."""

from __future__ import annotations

from pathlib import Path

from envs.simulation.market.config import MarketWorldConfig
from training.config import CONFIG_DIRECTORY, compose_values, world_config


def market_names() -> list[str]:
    """The default market first, the others by name."""
    names = [path.stem for path in sorted(Path(CONFIG_DIRECTORY, "env", "markets").glob("*.yaml"))]
    return sorted(names, key=lambda name: (name != "default", name))


def market_config(name: str) -> MarketWorldConfig:
    """The settings of one market.

    Args:
        name: as in `+env/markets=NAME`.

    Raises:
        UsageError: for a market that there is not.
    """
    values = compose_values("compare", ["+env=multicloud", f"+env/markets={name}"])
    config = world_config(values["env"])
    assert isinstance(config, MarketWorldConfig)
    return config
