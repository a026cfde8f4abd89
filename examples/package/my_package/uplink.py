"""Two clusters, one of them fast and small: how much of it is worth waiting for?"""

from dataclasses import dataclass

from spotweave.envs.environments import Environment
from spotweave.envs.simulation.slices.config import SliceWorldConfig
from spotweave.envs.simulation.slices.world import SliceWorld


@dataclass
class UplinkConfig:
    """Settings: executors of the fast cluster, jobs of an episode."""

    fast: int = 400
    n_jobs: int = 100


def build(config, n_lanes=1, record=False):
    """A world of `n_lanes` copies."""
    clusters = SliceWorldConfig(
        capacities=[config.fast, 3000],
        hetero_factors=[100.0, 60.0],
        elastic=[False, False],
        n_jobs=config.n_jobs,
    )
    return SliceWorld(clusters, n_lanes, record)


ENVIRONMENT = Environment(
    title="jobs on a fast, small cluster and a slow, large one",
    config=UplinkConfig,
    world=build,
    gymnasium="my_package/Uplink-v0",
    default_agent="mtdqn",
)
