"""One copy of a world as a `gymnasium.Env`: what all registered environments share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, cast, runtime_checkable

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.series import Bools, Ints
from spotweave.envs.simulation.snapshot import (
    HISTORY_STEPS,
    N_CLUSTER_FIELDS,
    N_JOB_FIELDS,
    N_PAIR_FIELDS,
    Category,
    Observation,
)
from spotweave.envs.simulation.streams import SPLITS, Split
from spotweave.envs.simulation.world import BatchWorld, EpisodeKey, Timeline, WorldSpec

OPTIONS = ("split", "index")


@dataclass
class EpisodeCounter:
    """The episodes of one environment.

    A seed starts at index 0 of its split; every later reset without a seed goes to the next index. The
    options "split" (kept until changed) and "index" choose an episode directly.
    """

    seed: int | None = None
    split: Split = "train"
    index: int = -1

    def next(
        self, seed: int | None, options: Mapping[str, Any] | None, generator: np.random.Generator
    ) -> EpisodeKey:
        """The next episode.

        Args:
            seed: of this reset, or None to go on.
            options: of this reset: "split", "index".
            generator: draws the seed if none was ever given.

        Raises:
            ValueError: for an unknown option, split, or a negative index.
        """
        chosen = dict(options or {})
        for name in chosen:
            if name not in OPTIONS:
                raise ValueError(f"unknown reset option {name!r}: expected one of {', '.join(OPTIONS)}")
        split: Split = chosen.get("split", self.split)
        if split not in SPLITS:
            raise ValueError(f"unknown split {split!r}: expected one of {', '.join(SPLITS)}")
        goes_on = seed is None and self.seed is not None and split == self.split
        following = self.index + 1 if goes_on else 0
        index = following if chosen.get("index") is None else int(chosen["index"])
        if index < 0:
            raise ValueError(f"reset option index must be >= 0, got {index}")
        if seed is None:
            seed = int(generator.integers(2**31)) if self.seed is None else self.seed
        self.seed, self.split, self.index = seed, split, index
        return EpisodeKey(seed, split, index)


@runtime_checkable
class TruncatesEpisodes(Protocol):
    """A world that may cut an episode short."""

    def truncated(self, lane: int) -> bool:
        """Whether the episode that is done in a lane was cut short (a limit), not finished."""


@runtime_checkable
class RecordsTimeline(Protocol):
    """A world that remembers what happened."""

    def timeline(self, lane: int = 0) -> Timeline:
        """What happened in a lane so far."""


def was_truncated(world: BatchWorld, lane: int) -> bool:
    """Whether the done episode in a lane was cut short; worlds without limits never do so."""
    return isinstance(world, TruncatesEpisodes) and bool(world.truncated(lane))


class WorldEnv(gym.Env[Observation, np.int64]):
    """One lane of a `BatchWorld` behind Gymnasium's interface; docs/environments.md describes each world.

    The action is `Discrete(J * (C + 1))`: `job * (C + 1) + place` puts the job in that row on that place, and
    `place == C` means none for now. Observations are a `Dict` of `clusters`, `occupation`, `jobs`, `pairs`
    (float32) and `action_mask` (int8), whose columns `envs.simulation.snapshot` names. Rewards are what the
    objective gained; at the end `info["metrics"]` has it and what it is made of.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array", "human"], "render_fps": 2}  # type: ignore[misc]

    def __init__(self, world: BatchWorld, render_mode: str | None = None) -> None:
        """Wrap a world of one lane.

        Args:
            world: one lane; made to record its timeline if a render mode is given.
            render_mode: None, "rgb_array" or "human".

        Raises:
            ValueError: for a world of several lanes or an unknown render mode.
        """
        if world.n_lanes != 1:
            raise ValueError(f"a single environment needs a world of one lane, got {world.n_lanes}")
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise ValueError(
                f"unknown render_mode {render_mode!r}: expected one of "
                f"{', '.join(self.metadata['render_modes'])}"
            )
        self.world = world
        self.render_mode = render_mode
        self.observation_space = cast("gym.Space[Observation]", observation_space(world.spec))
        self.action_space = MaskedDiscrete(world.observation)
        self._episodes = EpisodeCounter()
        self._running = False
        self._window: Any = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode (see `EpisodeCounter` for seed and options)."""
        super().reset(seed=seed)
        key = self._episodes.next(seed, options, self.np_random)
        self.world.reset([key])
        self._running = True
        info = {"action_mask": self._mask(), "seed": key.seed, "split": key.split, "index": key.index}
        self._show()
        return self._observation(), info

    def step(self, action: np.int64 | int) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Take the decision at hand and run to the next one.

        Raises:
            ValueError: for an invalid action (no integer, or outside the mask); nothing changes.
            gymnasium.error.ResetNeeded: before the first reset and after the end of an episode.
        """
        if not self._running:
            raise gym.error.ResetNeeded("the episode has ended or not begun: call reset() before step()")
        rewards, dones = self.world.step(checked_actions(action, 1))
        done = bool(dones[0])
        truncated = done and was_truncated(self.world, 0)
        info: dict[str, Any] = {"action_mask": self._mask()}
        if done:
            self._running = False
            info["metrics"] = dict(self.world.metrics(0))
        self._show()
        return self._observation(), float(rewards[0]), done and not truncated, truncated, info

    def render(self) -> NDArray[np.uint8] | None:  # type: ignore[override]
        """The Gantt chart of the episode so far: an image, or in mode "human" a window."""
        if self.render_mode is None:
            gym.logger.warn("render() draws nothing without a render_mode: make the environment with one")
            return None
        if self.render_mode == "human":
            self._show()
            return None
        return self._picture()

    def action_masks(self) -> Bools:
        """(n_actions,) which actions are valid now, as MaskablePPO of sb3-contrib asks for it."""
        return self._mask().astype(np.bool_)

    def close(self) -> None:
        """Close the window, if there is one."""
        if self._window is not None:
            import matplotlib.pyplot as plt

            plt.close(self._window.figure)
            self._window = None

    def _observation(self) -> Observation:
        return cast(
            Observation,
            {name: np.array(cast(Any, array)[0]) for name, array in self.world.observation.items()},
        )

    def _mask(self) -> NDArray[np.int8]:
        return np.array(self.world.observation["action_mask"][0])

    def _picture(self) -> NDArray[np.uint8]:
        # Drawing needs matplotlib, which takes a second to load: only those who draw pay for it.
        from spotweave.envs.render import draw_gantt

        if not isinstance(self.world, RecordsTimeline):
            raise ValueError(f"the world {self.world.spec.name!r} records no timeline to draw")
        timeline = self.world.timeline(0)
        return draw_gantt(timeline, window=(0.0, max(timeline.end, 1.0)))

    def _show(self) -> None:
        """In mode "human", bring the window up to date."""
        if self.render_mode != "human":
            return
        import matplotlib.pyplot as plt

        picture = self._picture()
        if self._window is None:
            figure = plt.figure(
                self.world.spec.name, figsize=(picture.shape[1] / 100, picture.shape[0] / 100)
            )
            axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
            axes.set_axis_off()
            self._window = axes.imshow(picture)
        self._window.set_data(picture)
        self._window.figure.canvas.draw_idle()
        self._window.figure.canvas.flush_events()


# Gymnasium spaces of every world: the observation of `envs.simulation.snapshot` and masked actions.


LARGEST = 1e9
"""Bound of every quantity that has no natural one (seconds, executors, USD): 30 years in seconds."""

_MOST_OF_CLUSTER = dict.fromkeys((col.IS_SPOT, col.AVAILABLE, col.UP_RATIO, col.QUEUES), 1.0)
_MOST_OF_JOB = {
    **dict.fromkeys((col.PRESENT, col.HAS_DEADLINE, col.PROGRESS, col.RUNNING), 1.0),
    **dict.fromkeys((col.IDLE, col.IS_SERVER, col.OWES, col.HAS_BUDGET), 1.0),
    col.CATEGORY: float(max(Category)),
    col.PEAK_SLOTS: 10.0,
}
_MOST_OF_PAIR = dict.fromkeys((col.HERE, col.FITS, col.IMPROPER), 1.0)


def observation_space(spec: WorldSpec) -> spaces.Dict:
    """Space of one observation, with finite bounds (see `envs.simulation.snapshot` for the columns)."""
    rows, clusters = spec.window, spec.n_clusters
    return spaces.Dict(
        {
            "clusters": _columns((clusters,), N_CLUSTER_FIELDS, _MOST_OF_CLUSTER),
            "occupation": spaces.Box(0.0, 1.0, (clusters, HISTORY_STEPS), np.float32),
            "jobs": _columns((rows,), N_JOB_FIELDS, _MOST_OF_JOB, (col.SLACK_S,)),
            "pairs": _columns((rows, clusters), N_PAIR_FIELDS, _MOST_OF_PAIR, (col.FREE, col.DEADLINE_S)),
            "action_mask": spaces.Box(0, 1, (spec.n_actions,), np.int8),
        }
    )


def _columns(
    leading: tuple[int, ...], n_columns: int, most: dict[int, float], signed: tuple[int, ...] = ()
) -> spaces.Box:
    """A Box whose last axis are columns: [0, LARGEST] unless `most` says less or one is signed."""
    low = np.zeros((*leading, n_columns), np.float32)
    high = np.full((*leading, n_columns), LARGEST, np.float32)
    low[..., list(signed)] = -LARGEST
    high[..., list(most)] = list(most.values())
    return spaces.Box(low, high, dtype=np.float32)


class MaskedDiscrete(spaces.Discrete[np.int64]):
    """Discrete actions whose `sample()` draws among those that are valid now.

    The space itself never changes (it contains 0..n-1); only what `sample` returns follows the decision at
    hand, so that the loop `env.step(env.action_space.sample())` runs.
    """

    def __init__(self, shown: Observation, seed: int | np.random.Generator | None = None) -> None:
        """Args: shown: a world's live observation, of which lane 0 is meant; seed: of the samples."""
        super().__init__(shown["action_mask"].shape[1], seed=seed)
        # Not a view of the mask: a copy or a pickle of a view no longer follows the world.
        self._shown = shown

    def sample(self, mask: Any = None, probability: Any = None) -> np.int64:
        """A random valid action (or one allowed by the `mask` or `probability` given)."""
        if mask is None and probability is None and self._shown["action_mask"][0].any():
            mask = self._shown["action_mask"][0]
        return np.int64(super().sample(mask=mask, probability=probability))


class MaskedMultiDiscrete(spaces.MultiDiscrete):
    """One masked discrete action per lane (see `MaskedDiscrete`)."""

    def __init__(self, shown: Observation, seed: int | np.random.Generator | None = None) -> None:
        """Args: shown: a world's live observation; seed: of the samples."""
        n_lanes, n_actions = shown["action_mask"].shape
        super().__init__(np.full(n_lanes, n_actions, np.int64), seed=seed)
        self._shown = shown

    def sample(self, mask: Any = None, probability: Any = None) -> NDArray[np.integer[Any]]:
        """A random valid action per lane (or as allowed by the `mask` or `probability` given)."""
        if mask is None and probability is None:
            return np.array([self._draw(row) for row in self._shown["action_mask"]], self.dtype)
        return super().sample(mask=mask, probability=probability)

    def _draw(self, row: NDArray[np.int8]) -> int:
        valid = np.flatnonzero(row)
        return int(self.np_random.choice(valid)) if len(valid) else 0


def checked_actions(given: object, n: int) -> Ints:
    """(n,) actions as whoever steps an environment may give them: integers, or an array of them.

    Shapes (n,) and (n, 1) are taken; for one action also ().

    Raises:
        ValueError: for anything else; one line that shows what was given.
    """
    try:
        found = np.asarray(given)
    except ValueError:  # lists of different lengths
        found = np.empty(0, object)
    fits = found.shape in ((n,), (n, 1)) or (n == 1 and found.size == 1)
    if found.dtype.kind not in "iu" or not fits or (found > np.iinfo(np.int64).max).any():
        shown = " ".join(repr(given).split())[:100]
        wanted = "an integer" if n == 1 else f"{n} integers"
        raise ValueError(f"action {shown} is no valid one: expected {wanted}, as in action_mask")
    return found.astype(np.int64).reshape(n)
