"""The environments: all that one is stands here once, and what installed packages add.

Ours state names, which are imported when an environment is used, because this table is read whenever `envs`
is imported. A package of a user's own names an `Environment` as an entry point of the group
`spotweave.environments` (docs/extending.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Literal

from gymnasium.envs.registration import register as gym_register
from gymnasium.envs.registration import registry
from gymnasium.vector import AutoresetMode

from spotweave.plugins import plugins

if TYPE_CHECKING:
    from spotweave.envs.simulation.world import BatchWorld
    from spotweave.envs.single import WorldEnv
    from spotweave.envs.variety import Variety
    from spotweave.envs.vector import WorldVectorEnv


GROUP = "spotweave.environments"


@dataclass(frozen=True)
class Environment:
    """One environment. What is written `MODULE:NAME` may also be the object itself."""

    title: str  # one line for people
    config: str | type[Any]  # `MODULE:NAME` of the dataclass of its settings; the group `env` has its fields
    # `MODULE:NAME` of what makes a world from (settings, number of lanes); with record=True one that keeps a
    # `timeline` for pictures
    world: str | Callable[..., BatchWorld]
    default_agent: str = "rl_lsfc"  # what `training/train.py` trains unless agent= says otherwise
    gymnasium: str | None = None  # id under which Gymnasium knows it; None: it does not
    reference: str | None = None  # rule that comes first in comparisons without policies=
    # rules that a policy is compared with by default; None: those that declare this environment
    rules: Sequence[str] | None = None
    # of these, what a finished training is compared with; None: the first seven
    rivals: Sequence[str] | None = None
    # `MODULE:NAME` of (settings, split) -> the settings of the worlds that stand behind one setting, to train
    # on or to validate on, where there are several
    members: str | None = None
    # `MODULE:NAME` of what gives the settings of the world that a training round is played in, where worlds
    # can be varied, from the configured ones, `trainer.variety`, the seed and the round's number
    draw: str | None = None
    # likewise those of the worlds to validate such a training on, the configured first
    draw_validation: str | None = None

    @property
    def config_class(self) -> type[Any]:
        """The dataclass of the settings."""
        found: type[Any] = _found(self.config)
        return found

    def build(self, config: Any, lanes: int) -> BatchWorld:
        """A world of `lanes` copies."""
        world: BatchWorld = _found(self.world)(config, lanes)
        return world

    def build_recording(self, config: Any) -> BatchWorld:
        """A world of one lane that keeps a `timeline` for pictures."""
        world: BatchWorld = _found(self.world)(config, 1, record=True)
        return world

    def members_of(self, config: Any, split: Literal["train", "validation"]) -> list[Any]:
        """The settings of the worlds behind `config`: itself alone unless the environment knows better."""
        return [config] if self.members is None else list(_found(self.members)(config, split))

    def drawn(self, config: Any, variety: Variety, seed: int, number: int) -> Any:
        """The settings of the world that training round `number` is played in (see `draw`)."""
        return _found(self.draw)(config, variety, seed, number)

    def drawn_for_validation(self, config: Any, variety: Variety, seed: int) -> list[Any]:
        """The settings of the worlds to validate such a training on (see `draw_validation`)."""
        return list(_found(self.draw_validation)(config, variety, seed))


def _found(name: Any) -> Any:
    return resolve_name(name) if isinstance(name, str) else name


ENVIRONMENTS: dict[str, Environment] = {
    "multicloud": Environment(
        "jobs with deadlines and streams on spot and on-demand offers of several clouds, recorded markets",
        "spotweave.envs.simulation.market.config:MarketWorldConfig",
        "spotweave.envs.market_data:build_market",
        default_agent="mtdqn",
        gymnasium="spotweave/MultiCloud-v5",
        rivals=(
            "expected_cost",
            "uniform_progress",
            "spot_fallback",
            "price_capacity",
            "on_demand",
            "maf",
            "sf_e",
        ),
        draw="spotweave.envs.variety:draw_market",
        draw_validation="spotweave.envs.variety:validation_markets",
    ),
    "multicluster": Environment(
        "Liu 2022, chapter 5: heterogeneous, elastic clusters",
        "spotweave.envs.simulation.slices.config:SliceWorldConfig",
        "spotweave.envs.simulation.slices.world:SliceWorld",
        default_agent="mtdqn",
        gymnasium="spotweave/MultiCluster-v0",
        rivals=("tuned", "deadline_safe", "ih_filter", "sf_e", "maf", "eft", "random"),
        members="spotweave.envs.simulation.slices.config:SliceWorldConfig.members_of",
    ),
    "anyclusters": Environment(
        "the workload of chapter 5 on clusters drawn at random; env.clusters says how many",
        "spotweave.envs.infrastructure:AnyClustersConfig",
        "spotweave.envs.infrastructure:build_drawn",
        default_agent="mtdqn",
        members="spotweave.envs.infrastructure:AnyClustersConfig.members_of",
    ),
    "chapter4": Environment(
        "Liu 2022, chapter 4: clusters of equal executors; env.pattern and env.load choose the workload",
        "spotweave.envs.simulation.slices.config:Chapter4Config",
        "spotweave.envs.infrastructure:build_chapter4",
        default_agent="mtdqn",
        reference="sf_e",  # the thesis compares with its best rule
    ),
    "federated": Environment(
        "federated applications whose rounds train on spot and on-demand offers of several zones",
        "spotweave.envs.federated_episodes:FederatedConfig",
        "spotweave.envs.federated_episodes:build_federated",
        default_agent="mtdqn",
        gymnasium="spotweave/Federated-v1",
    ),
    "spot": Environment(
        "one divisible job with a deadline on recorded spot zones, by the rules of a public leaderboard",
        "spotweave.envs.spot_episodes:SpotConfig",
        "spotweave.envs.spot_episodes:build_spot",
        default_agent="spot_values",
        gymnasium="spotweave/Spot-v0",
        reference="on_demand",
        rules=("on_demand", "spot_fallback", "uniform_progress"),
    ),
    "bags": Environment(
        "Teylo 2021: bags of tasks with a deadline on spot VMs that hibernate, and on-demand VMs",
        "spotweave.envs.bags_episodes:BagsConfig",
        "spotweave.envs.bags_episodes:build_bags",
        default_agent="mtdqn",
        gymnasium="spotweave/Bags-v0",
    ),
    "workflows": Environment(
        "graphs of steps with a deadline on owned clusters, spot and on-demand offers of recorded markets",
        "spotweave.envs.workflows_episodes:WorkflowsConfig",
        "spotweave.envs.workflows_episodes:build_workflows",
        default_agent="mtdqn",
        gymnasium="spotweave/Workflows-v0",
    ),
}
"""Every environment by name."""

ENVIRONMENTS.update(plugins(GROUP, Environment, ENVIRONMENTS))


def make(environment: str, config: Any = None, render_mode: str | None = None) -> WorldEnv:
    """An environment by its name here; what `gymnasium.make` calls.

    Args:
        environment: of `ENVIRONMENTS`.
        config: its settings; None: the defaults.
        render_mode: None, "rgb_array" or "human": a Gantt chart.

    Raises:
        WorldError: for settings that make no sense.
    """
    from spotweave.envs.single import WorldEnv

    entry = ENVIRONMENTS[environment]
    config = entry.config_class() if config is None else config
    return WorldEnv(
        entry.build(config, 1) if render_mode is None else entry.build_recording(config), render_mode
    )


def make_vector(
    environment: str,
    num_envs: int = 1,
    config: Any = None,
    autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    copy: bool = True,
) -> WorldVectorEnv:
    """`num_envs` copies of an environment that step in one call (see `WorldVectorEnv`)."""
    from spotweave.envs.vector import WorldVectorEnv

    entry = ENVIRONMENTS[environment]
    world = entry.build(entry.config_class() if config is None else config, num_envs)
    return WorldVectorEnv(world, autoreset_mode, copy)


def register() -> None:
    """Make `gymnasium.make` and `gymnasium.make_vec` know the environments; calling it again does nothing."""
    for name, environment in ENVIRONMENTS.items():
        if environment.gymnasium is not None and environment.gymnasium not in registry:
            gym_register(
                id=environment.gymnasium,
                entry_point="spotweave.envs.environments:make",
                vector_entry_point="spotweave.envs.environments:make_vector",
                kwargs={"environment": name},
            )
