"""The worlds that the commands know: settings, builder and defaults of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from agents.federated.rules import ROUND_RULES
from agents.rules import rules_of
from envs.federated_episodes import FederatedConfig, build_federated
from envs.infrastructure import AnyClustersConfig
from envs.multicloud import MarketWorldConfig, build_market
from envs.simulation.slices.config import Chapter4Config, SliceWorldConfig
from envs.simulation.slices.world import SliceWorld
from envs.simulation.world import BatchWorld
from envs.variety import Variety, draw_market, validation_markets


@dataclass(frozen=True)
class WorldEntry:
    """One environment of the command line.

    Attributes:
        title: one line for people.
        config_class: dataclass of its settings; the group `env` has its fields.
        build: makes a world with the given number of lanes.
        default_agent: what `training/train.py` trains unless agent= says otherwise.
        appraiser: rule whose expected costs the agent `spotweave` takes as input (agent.appraiser=auto).
        rules: rules shown beside a policy by default, the strongest included.
        build_recording: makes a world of one lane that keeps a `timeline` for pictures, or None.
        evolved: agent kinds that learn by evolution here.
        draw: the settings of the world that a training round is played in, where worlds can be varied, from
            the configured ones, `trainer.variety`, the seed and the round's number.
        draw_validation: likewise those of the worlds to validate such a training on, the configured first.
        members: the settings of the worlds that stand behind one setting, to train on or to validate on,
            where there are several.
    """

    title: str
    config_class: type[Any]
    build: Callable[[Any, int], BatchWorld]
    default_agent: str
    appraiser: Literal["expected_cost", "tuned"]
    rules: Sequence[str]
    build_recording: Callable[[Any], BatchWorld] | None = None
    members: Callable[[Any, Literal["train", "validation"]], list[Any]] | None = None
    evolved: tuple[str, ...] = ()
    draw: Callable[[Any, Variety, int, int], Any] | None = None
    draw_validation: Callable[[Any, Variety, int], list[Any]] | None = None

    def members_of(self, config: Any, split: Literal["train", "validation"]) -> list[Any]:
        """The settings of the worlds behind `config`: itself alone unless the entry knows better."""
        return [config] if self.members is None else self.members(config, split)


def _build_slices(config: SliceWorldConfig, lanes: int) -> BatchWorld:
    return SliceWorld(config, lanes)


def _build_chapter4(config: Chapter4Config, lanes: int) -> BatchWorld:
    return SliceWorld(config.world(), lanes)


def _build_drawn(config: AnyClustersConfig, lanes: int) -> BatchWorld:
    return SliceWorld(config.drawn(), lanes)


def _build_market(config: MarketWorldConfig, lanes: int) -> BatchWorld:
    return build_market(config, lanes)


WORLDS: dict[str, WorldEntry] = {
    "multicloud": WorldEntry(
        "jobs with deadlines and streams on spot and on-demand offers of several clouds, recorded markets",
        MarketWorldConfig,
        _build_market,
        "spotweave",
        "expected_cost",
        rules_of("multicloud"),
        lambda config: build_market(config, 1, record=True),
        draw=draw_market,
        draw_validation=validation_markets,
    ),
    "multicluster": WorldEntry(
        "Liu 2022, chapter 5: heterogeneous, elastic clusters",
        SliceWorldConfig,
        _build_slices,
        "spotweave",
        "tuned",
        rules_of("multicluster"),
        lambda config: SliceWorld(config, 1, record=True),
        evolved=("scorer",),
    ),
    "anyclusters": WorldEntry(
        "the workload of chapter 5 on clusters drawn at random; env.clusters says how many",
        AnyClustersConfig,
        _build_drawn,
        "spotweave",
        "tuned",
        rules_of("anyclusters"),
        lambda config: SliceWorld(config.drawn(), 1, record=True),
        lambda config, split: config.members_of(split),
        evolved=("scorer",),
    ),
    "chapter4": WorldEntry(
        "Liu 2022, chapter 4: clusters of equal executors; env.pattern and env.load choose the workload",
        Chapter4Config,
        _build_chapter4,
        "rl_fc",
        "tuned",
        # The thesis compares with SF-E, its best rule in chapter 4.
        rules_of("chapter4", first="sf_e"),
        lambda config: SliceWorld(config.world(), 1, record=True),
        evolved=("scorer",),
    ),
    "federated": WorldEntry(
        "federated applications whose rounds train on spot and on-demand offers of several zones",
        FederatedConfig,
        build_federated,
        "spotweave",
        "tuned",
        tuple(ROUND_RULES),
        lambda config: build_federated(config, 1),
        evolved=("round_scorer",),
    ),
}
