"""RLlib's DQN (new API stack) as a trainer; everything runs in this process."""

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

import ray
import torch
from ray.rllib.algorithms.dqn import DQN
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.tune.registry import register_env
from ray.tune.trainable import trainable

from agents.flat_policy import Layers
from envs.simulation.streams import Streams
from training.adapters.flat_env import FlatWorldEnv
from training.adapters.trainer import LibraryTask, LibraryTrainer
from training.settings import ScheduleSettings

_ENV_NAME = "spotweave-flat"
_SCHEDULE_POINTS = 100
_OBJECT_STORE_BYTES = 200_000_000


def _make_env(arguments: dict[str, Any]) -> FlatWorldEnv:
    return FlatWorldEnv(**arguments)


class RLlibDQNTrainer(LibraryTrainer):
    """Double DQN of RLlib: uniform replay, no masks, on the CPU. The rest is as for the DQN of SB3.

    RLlib counts decisions where our schedules count episodes: one episode is taken to have as many as the
    calibration episode had.

    Attributes:
        decisions: decisions taken so far, in earlier sessions of the run too.
    """

    def __init__(self, task: LibraryTask) -> None:
        super().__init__(task)
        self._total = max(1, self.calibration.decisions * task.settings.episodes)
        self._scratch = tempfile.TemporaryDirectory(prefix="spotweave-rllib-")
        self._threads = torch.get_num_threads()
        self._started_ray = not ray.is_initialized()
        torch.set_num_threads(1)
        if self._started_ray:
            ray.init(
                num_cpus=1,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
                object_store_memory=_OBJECT_STORE_BYTES,
            )
        # Its loggers have levels of their own; the only warning is about an API that is not used here.
        logging.getLogger("ray.rllib").setLevel(logging.ERROR)
        register_env(_ENV_NAME, _make_env)
        self.decisions = 0
        self._sampled = 0

    @cached_property
    def algorithm(self) -> Any:
        """The library's algorithm, made when first needed: a resumed run knows its decisions by then."""
        task, library, settings = self.task, self.task.agent, self.task.settings
        config = (
            DQN.get_default_config()
            .environment(
                _ENV_NAME,
                env_config={
                    "build": task.build,
                    "flattening": self.calibration.flattening,
                    "reward_scale": self.calibration.reward_scale,
                    "seed": task.seed,
                },
            )
            .env_runners(num_env_runners=0, rollout_fragment_length=library.train_every)
            .learners(num_learners=0)
            .training(
                lr=self._points(settings.learning_rate),
                epsilon=self._points(settings.epsilon_1),
                gamma=library.discount,
                train_batch_size_per_learner=settings.batch_size,
                num_steps_sampled_before_learning_starts=library.learning_starts,
                target_network_update_freq=library.target_every,
                dueling=False,
                replay_buffer_config={"type": "EpisodeReplayBuffer", "capacity": settings.replay_capacity},
            )
            .rl_module(
                model_config=DefaultModelConfig(
                    fcnet_hiddens=list(library.hidden_sizes), fcnet_activation="relu"
                )
            )
            .reporting(min_sample_timesteps_per_iteration=library.rollout, min_time_s_per_iteration=0)
            # The library resets its environment with this seed, so it has to be that of the run.
            .debugging(seed=task.seed, log_level="ERROR")
        )
        # The library insists on a directory in the user's home; this constant is its only handle.
        with patch.object(trainable, "DEFAULT_STORAGE_PATH", self._scratch.name):
            algorithm: Any = config.build_algo()
        # The buffer draws from a generator that no seed reaches.
        algorithm.local_replay_buffer.rng = Streams(task.seed).generator("replay")
        return algorithm

    def _points(self, schedule: ScheduleSettings) -> list[list[float]]:
        """The rest of a schedule as the library wants it: [decisions from now, value] at many points."""
        done = min(1.0, self.decisions / self._total)
        left = max(1, self._total - self.decisions)
        shares = [k / _SCHEDULE_POINTS for k in range(_SCHEDULE_POINTS + 1)]
        return [[int(share * left), schedule.at(done + share * (1.0 - done))] for share in shares]

    @property
    def epsilon_1(self) -> float:
        """Chance of a uniformly drawn action."""
        return self.settings.epsilon_1.at(self.decisions / self._total)

    def environments(self) -> list[FlatWorldEnv]:
        """The environments that the algorithm plays in."""
        wrapped = self.algorithm.env_runner.env.unwrapped.envs
        return [env.unwrapped for env in wrapped]

    def play_and_learn(self) -> tuple[int, dict[str, float]]:
        """One iteration of the algorithm."""
        result = self.algorithm.train()
        sampled = int(result["env_runners"]["num_env_steps_sampled_lifetime"])
        taken, self._sampled = sampled - self._sampled, sampled
        self.decisions += taken
        losses = result.get("learners", {}).get(DEFAULT_MODULE_ID, {})
        return taken, {"value": float(losses["qf_loss"])} if "qf_loss" in losses else {}

    def layers(self) -> Layers:
        """The linear layers of the encoder and the value head."""
        modules = self.algorithm.get_module(DEFAULT_MODULE_ID)
        found = [*modules.encoder.modules(), *modules.af.modules()]
        return [(m.weight.detach(), m.bias.detach()) for m in found if isinstance(m, torch.nn.Linear)]

    def library_state(self) -> dict[str, Any]:
        """Weights (target network included) and decisions; Adam's moments start again on resume."""
        networks = self.algorithm.learner_group.foreach_learner(
            lambda learner: learner.module[DEFAULT_MODULE_ID].state_dict()
        )
        return {"network": dict(next(iter(networks)).get()), "decisions": self.decisions}

    def load_library_state(self, state: dict[str, Any]) -> None:
        """Restore what `library_state` gave, before the first round: schedules go on where they were."""
        self.decisions = int(state["decisions"])
        self.algorithm.learner_group.foreach_learner(
            lambda learner: learner.module[DEFAULT_MODULE_ID].load_state_dict(state["network"])
        )
        self.algorithm.env_runner_group.sync_weights(
            from_worker_or_learner_group=self.algorithm.learner_group, inference_only=True
        )

    def close(self) -> None:
        """Stop the algorithm, and Ray if it was started here."""
        if "algorithm" in self.__dict__:
            self.algorithm.stop()
        if self._started_ray:
            ray.shutdown()
        self._scratch.cleanup()
        torch.set_num_threads(self._threads)
