"""On which recorded day each episode of a suite starts."""

from __future__ import annotations

from envs.simulation.market.source import draw_episode
from envs.simulation.market.world import MarketWorld
from envs.simulation.world import BatchWorld
from training.evaluation.suite import Suite

DAY_S = 86_400


def start_days(world: BatchWorld, suite: Suite) -> tuple[int, ...] | None:
    """The day of each episode on the recording's clock; None for a world that nothing was recorded for.

    Episodes of one day meet the same hours of prices and availability, so intervals resample days too.
    """
    if not isinstance(world, MarketWorld):
        return None
    return tuple(
        int(draw_episode(world.config, world.data, key).origin_s) // DAY_S for key in suite.episode_keys()
    )
