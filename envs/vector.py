"""Many copies of a world as one `gymnasium.vector.VectorEnv`, stepped by one call of compiled code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from spotweave.envs.simulation.series import Bools
from spotweave.envs.simulation.snapshot import Observation
from spotweave.envs.simulation.world import BatchWorld, EpisodeKey
from spotweave.envs.single import (
    EpisodeCounter,
    MaskedDiscrete,
    MaskedMultiDiscrete,
    checked_actions,
    observation_space,
    was_truncated,
)

Actions = NDArray[np.integer[Any]]


class WorldVectorEnv(VectorEnv[Observation, Actions, NDArray[Any]]):
    """The lanes of a `BatchWorld` behind Gymnasium's vector interface.

    Lane i plays what a single environment reset with the same seed (seed + i for an integer) would play.
    Ended lanes start their next episode in the same step (SAME_STEP: `infos["final_obs"]` and
    `infos["final_info"]["metrics"]` hold the end of the old one) or in the next step, whose action they
    ignore (NEXT_STEP: `infos["metrics"]`). With `copy=False` the observations returned are overwritten by the
    next call.
    """

    def __init__(
        self,
        world: BatchWorld,
        autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
        copy: bool = True,
    ) -> None:
        """Wrap a world.

        Args:
            world: its lanes become the sub-environments.
            autoreset_mode: SAME_STEP or NEXT_STEP. The default is SAME_STEP, because the observation that
                ends an episode shows no job, so no action is valid there.
            copy: whether observations are copied out of the world.

        Raises:
            ValueError: for another autoreset mode.
        """
        mode = AutoresetMode(autoreset_mode)
        if mode not in (AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP):
            raise ValueError(f"autoreset_mode {mode.value!r} is not supported: use SameStep or NextStep")
        self.world = world
        self.num_envs = world.n_lanes
        self.copy = copy
        self.metadata = {"autoreset_mode": mode, "render_modes": []}
        self.render_mode = None
        single = observation_space(world.spec)
        self.single_observation_space = cast("gym.Space[Any]", single)
        self.observation_space = batch_space(single, self.num_envs)
        self.single_action_space = cast("gym.Space[Any]", MaskedDiscrete(world.observation))
        self.action_space = cast("gym.Space[Any]", MaskedMultiDiscrete(world.observation))
        self._mode = mode
        self._episodes = [EpisodeCounter() for _ in range(self.num_envs)]
        self._ended = np.ones(self.num_envs, np.bool_)
        self._begun = False

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode in every lane, or in those of `options["reset_mask"]` ((N,) bool).

        Args:
            seed: an integer s gives lane i the seed s + i; a list gives each its own.
            options: "split" and "index" as for a single environment, and "reset_mask".

        Raises:
            ValueError: for a list of another length, an unknown option, or a mask of another shape.
        """
        if seed is None:
            seeds: Sequence[int | None] = [None] * self.num_envs
        elif isinstance(seed, (int, np.integer)):
            seeds = [int(seed) + lane for lane in range(self.num_envs)]
        else:
            seeds = seed
        if len(seeds) != self.num_envs:
            raise ValueError(f"{len(seeds)} seeds for {self.num_envs} environments: give one per environment")
        super().reset(seed=seeds[0])
        chosen = dict(options or {})
        mask = np.asarray(chosen.pop("reset_mask", np.ones(self.num_envs, np.bool_)))
        if mask.shape != (self.num_envs,) or mask.dtype != np.bool_:
            raise ValueError(
                f"reset_mask must be bool of shape ({self.num_envs},), got {mask.dtype} {mask.shape}"
            )
        lanes = np.flatnonzero(mask).tolist()
        self._start(lanes, seeds, chosen)
        self._begun = True
        return self._observation(), {"action_mask": self._masks(), "_action_mask": mask.copy()}

    def step(
        self, actions: Actions
    ) -> tuple[Observation, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Take one decision in every lane.

        Raises:
            ValueError: for an invalid action (outside its lane's mask); nothing changes.
            gymnasium.error.ResetNeeded: before the first reset.
        """
        if not self._begun:
            raise gym.error.ResetNeeded("no episode has begun: call reset() before step()")
        chosen = checked_actions(actions, self.num_envs)
        waiting = self._ended.copy()
        rewards, dones = self.world.step(chosen, ~waiting)
        dones &= ~waiting
        if waiting.any():
            self._start(np.flatnonzero(waiting).tolist())
        self._ended[:] = dones
        truncations = np.zeros(self.num_envs, np.bool_)
        infos: dict[str, Any] = {}
        if dones.any():
            ended = np.flatnonzero(dones).tolist()
            truncations[ended] = [was_truncated(self.world, lane) for lane in ended]
            metrics: dict[str, Any] = {}
            for lane in ended:
                metrics = self._add_info(metrics, {"metrics": dict(self.world.metrics(lane))}, lane)
            same_step = self._mode is AutoresetMode.SAME_STEP
            infos = self._finish(ended, dones, metrics) if same_step else metrics
        infos["action_mask"] = self._masks()
        infos["_action_mask"] = np.ones(self.num_envs, np.bool_)
        return self._observation(), rewards, dones & ~truncations, truncations, infos

    def _finish(self, ended: list[int], dones: Bools, metrics: dict[str, Any]) -> dict[str, Any]:
        """Put the end of the old episodes into the infos and begin the next ones."""
        final = np.full(self.num_envs, None, object)
        for lane in ended:
            final[lane] = {
                name: np.array(cast(Any, array)[lane]) for name, array in self.world.observation.items()
            }
        self._start(ended)
        self._ended[:] = False
        return {
            "final_obs": final,
            "_final_obs": dones.copy(),
            "final_info": metrics,
            "_final_info": dones.copy(),
        }

    def _start(
        self,
        lanes: list[int],
        seeds: Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        keys: list[EpisodeKey] = []
        for lane in lanes:
            seed = None if seeds is None else seeds[lane]
            keys.append(self._episodes[lane].next(seed, options, self.np_random))
        self.world.reset(keys, lanes)
        self._ended[lanes] = False

    def _observation(self) -> Observation:
        if not self.copy:
            return self.world.observation
        return cast(Observation, {name: np.array(array) for name, array in self.world.observation.items()})

    def _masks(self) -> NDArray[np.int8]:
        return np.array(self.world.observation["action_mask"])
