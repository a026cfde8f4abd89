"""RLlib's DQN (new API stack) as a trainer, with action masks; everything runs in this process."""

from __future__ import annotations

import os
import tempfile
from functools import cached_property
from typing import Any
from unittest.mock import patch

# Ray reads these when it is imported or started: one thread per process (its many small matrix products are
# much slower on more), no usage report, and accelerators left visible.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")

import logging

import numpy as np
import ray
import torch
from numpy.typing import NDArray
from ray.rllib.algorithms.dqn import DQN
from ray.rllib.algorithms.dqn.default_dqn_rl_module import QF_PREDS
from ray.rllib.algorithms.dqn.torch.default_dqn_torch_rl_module import DefaultDQNTorchRLModule
from ray.rllib.core import DEFAULT_MODULE_ID, Columns
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.tune.registry import register_env
from ray.tune.trainable import trainable
from torch import Tensor

from spotweave.agents.library_policy import as_linears
from spotweave.envs.simulation.streams import Streams
from spotweave.training.adapters.base import FlatWorldEnv, Info, LibraryTask, LibraryTrainer, linears, masked
from spotweave.training.settings import ScheduleSettings

_ENV_NAME = "spotweave-flat"
_SCHEDULE_POINTS = 100
_OBJECT_STORE_BYTES = 200_000_000


class _RunsOwnEpisodes(FlatWorldEnv):
    """Copies share the run's seed and play every n-th episode; the library would seed each differently."""

    def reset(
        self, *, seed: int | None = None, options: Info | None = None
    ) -> tuple[NDArray[np.float32], Info]:
        """Start the copy's next training episode, whatever the seed."""
        return super().reset(options=options)


def _make_env(arguments: dict[str, Any]) -> FlatWorldEnv:
    return _RunsOwnEpisodes(**arguments)


class _MaskedDQN(DefaultDQNTorchRLModule):
    """Values of invalid actions are minus infinity, which the library neither explores, takes nor learns."""

    def _qf_forward_helper(self, batch: dict[str, Any], encoder: Any, head: Any) -> dict[str, Any]:
        found: dict[str, Any] = super()._qf_forward_helper(batch, encoder, head)
        return {**found, QF_PREDS: masked(found[QF_PREDS], batch[Columns.OBS], -torch.inf)}


def _copies(algorithm: Any) -> list[FlatWorldEnv]:
    return [env.unwrapped for env in algorithm.env_runner.env.unwrapped.envs]


def _play_from(episode: int, copies: list[FlatWorldEnv]) -> None:
    """Share out the training episodes from `episode` on."""
    for k, env in enumerate(copies):
        env.play_every(len(copies), first=episode + k)


class RLlibDQNTrainer(LibraryTrainer):
    """Double DQN with uniform replay, on the CPU, in one process; not bit-exact on resume, which says so.

    RLlib's schedules count decisions: without `max_decisions` an episode is taken to have as many as the
    calibration episode had.
    """

    def __init__(self, task: LibraryTask) -> None:
        super().__init__(task)
        settings = task.settings
        self._total = settings.max_decisions or max(1, self.calibration.decisions * settings.episodes)
        self._scratch = tempfile.TemporaryDirectory(prefix="spotweave-rllib-")
        self._threads = torch.get_num_threads()
        self._started_ray = not ray.is_initialized()
        torch.set_num_threads(1)
        if self._started_ray:
            ray.init(
                "local",  # never a cluster that this machine belongs to
                num_cpus=1,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
                object_store_memory=_OBJECT_STORE_BYTES,
            )
        # Its loggers have levels of their own; the only warning is about an API that is not used here.
        logging.getLogger("ray.rllib").setLevel(logging.ERROR)
        register_env(_ENV_NAME, _make_env)
        self._sampled = 0

    @cached_property
    def algorithm(self) -> Any:
        """The library's algorithm, made when first needed: a resumed run knows its decisions by then."""
        task, library, settings = self.task, self.task.agent, self.settings
        config = (
            DQN.get_default_config()
            .env_runners(num_env_runners=0, rollout_fragment_length=library.train_every)
            .training(
                epsilon=self._points(settings.epsilon_1),
                train_batch_size_per_learner=settings.batch_size,
                num_steps_sampled_before_learning_starts=library.learning_starts,
                target_network_update_freq=library.target_every,
                dueling=False,
                replay_buffer_config={"type": "EpisodeReplayBuffer", "capacity": settings.replay_capacity},
            )
            .rl_module(rl_module_spec=self._module())
            .environment(
                _ENV_NAME,
                env_config={
                    "build": task.build,
                    "flattening": self.calibration.flattening,
                    "reward_scale": self.calibration.reward_scale,
                    "seed": task.seed,
                },
            )
            .learners(num_learners=0)
            .training(lr=self._points(settings.learning_rate), gamma=library.discount)
            .reporting(min_sample_timesteps_per_iteration=library.rollout, min_time_s_per_iteration=0)
            .debugging(seed=task.library_seed, log_level="ERROR")
        )
        # The library insists on a directory in the user's home; this constant is its only handle.
        with patch.object(trainable, "DEFAULT_STORAGE_PATH", self._scratch.name):
            algorithm: Any = config.build_algo()
        # The buffer draws from a generator that no seed reaches.
        algorithm.local_replay_buffer.rng = Streams(task.seed).generator("replay")
        _play_from(0, _copies(algorithm))
        return algorithm

    def _module(self) -> RLModuleSpec:
        layers = DefaultModelConfig(
            fcnet_hiddens=list(self.task.agent.hidden_sizes),
            fcnet_activation="relu",
            vf_share_layers=False,
        )
        return RLModuleSpec(module_class=_MaskedDQN, model_config=layers)

    @property
    def epsilon_1(self) -> float:
        """Chance of a uniformly drawn action."""
        return self.settings.epsilon_1.at(self.decisions / self._total)

    def _points(self, schedule: ScheduleSettings) -> list[list[float]]:
        """The rest of a schedule as the library wants it: [decisions from now, value] at many points."""
        done = min(1.0, self.decisions / self._total)
        left = max(1, self._total - self.decisions)
        shares = [k / _SCHEDULE_POINTS for k in range(_SCHEDULE_POINTS + 1)]
        return [[int(share * left), schedule.at(done + share * (1.0 - done))] for share in shares]

    def environments(self) -> list[FlatWorldEnv]:
        """The environments that the algorithm plays in."""
        return _copies(self.algorithm)

    def play_and_learn(self) -> tuple[int, dict[str, float]]:
        """One iteration of the algorithm."""
        result = self.algorithm.train()
        sampled = int(result["env_runners"]["num_env_steps_sampled_lifetime"])
        taken, self._sampled = sampled - self._sampled, sampled
        losses = result.get("learners", {}).get(DEFAULT_MODULE_ID, {})
        return taken, {"value": float(losses["qf_loss"])} if "qf_loss" in losses else {}

    def weights(self) -> dict[str, Tensor]:
        """The linear layers of the encoder and the head."""
        module = self.algorithm.get_module(DEFAULT_MODULE_ID)
        return as_linears([*linears(module.encoder), *linears(module.af)])

    def library_state(self) -> dict[str, Any]:
        """Weights, target network included; Adam's moments start again on resume."""
        networks = self.algorithm.learner_group.foreach_learner(
            lambda learner: learner.module[DEFAULT_MODULE_ID].state_dict()
        )
        return {"network": dict(next(iter(networks)).get())}

    def load_library_state(self, state: dict[str, Any]) -> None:
        """Restore what `library_state` gave, before the first round: schedules go on where they were."""
        print(
            f"resumed, though not bit for bit: RLlib's optimiser, replay and random streams start anew, and "
            f"the episode that was running is left out (agent={self.task.agent.kind})"
        )
        self.algorithm.learner_group.foreach_learner(
            lambda learner: learner.module[DEFAULT_MODULE_ID].load_state_dict(state["network"])
        )
        self.algorithm.env_runner_group.sync_weights(
            from_worker_or_learner_group=self.algorithm.learner_group, inference_only=True
        )
        _play_from(self.episodes_done, self.environments())

    def close(self) -> None:
        """Stop the algorithm, and Ray if it was started here."""
        if "algorithm" in self.__dict__:
            self.algorithm.stop()
        if self._started_ray:
            ray.shutdown()
        self._scratch.cleanup()
        torch.set_num_threads(self._threads)
