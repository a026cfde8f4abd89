"""`spotweave/MultiCluster-v0`: hybrid workloads on heterogeneous, elastic clusters (Liu 2022, chapter 5)."""

from __future__ import annotations

from gymnasium.vector import AutoresetMode

from envs.simulation.slices.config import Chapter4Config, SliceWorldConfig
from envs.simulation.slices.world import SliceWorld
from envs.single import WorldEnv
from envs.vector import WorldVectorEnv


def build_chapter4(config: Chapter4Config, n_lanes: int = 1, record: bool = False) -> SliceWorld:
    """The homogeneous world of chapter 4 with the workload that `config` names."""
    return SliceWorld(config.world(), n_lanes, record)


class MultiClusterEnv(WorldEnv):
    """Put arriving jobs on heterogeneous, partly elastic clusters so that few deadlines are missed.

    Streaming jobs (many batches, each with a deadline), one-shot jobs with a deadline and general jobs arrive
    at a global buffer. In every time slice in which the buffer is not empty, one job is put on one of five
    clusters, where its executions queue for executors. Executors of the clusters differ in speed; two
    clusters extend themselves under load.

    ## Action Space
    `Discrete(J * (C + 1))`, J = 16 jobs shown, C = 5 clusters. Action `job * (C + 1) + cluster` puts the job
    in that row of the window on that cluster; `cluster == C` is "none for now" (valid only with `allow_none`:
    the slice passes). `observation["action_mask"]` (also in `info`) marks the valid actions. An invalid
    action raises `ValueError` and changes nothing. `action_space.sample()` draws among the valid ones.

    ## Observation Space
    A `Dict` (float32 unless said; columns in `envs.simulation.snapshot`; time in slices):
    - `clusters` (C, 22): capacity, speed, executors in use and waited for, misses, mean occupation, ...
    - `occupation` (C, 105): occupation ratio of the latest 105 slices, latest last; 0 before the first.
    - `jobs` (J, 32): category, expected speed, sensitivity, standard time, batches, period, ... by arrival.
    - `pairs` (J, C, 14): executors asked for, peak, execution time and deadline of the job on the cluster,
      and what follows from them (fits now, deadline missed even without waiting, ...).
    - `action_mask` (J * (C + 1),) int8.
    Rows beyond the jobs at hand are 0.

    ## Rewards
    What the objective S = -TMDL + 50 (100 - AJER) of Liu 2022 gained since the previous decision: -1 for
    each missed deadline, 5000 / n_jobs * (1 - mean AR / SR) for each job that ended. An episode's rewards sum
    to S.

    ## Starting State
    Empty clusters, and the jobs of the first arrival in the buffer. All random quantities of an episode
    follow from (seed, split, index) and are the same for every policy. `reset(seed=s)` starts
    (s, "train", 0); each further `reset()` counts the index up; `options={"split": "test", "index": 7}`
    chooses.

    ## Episode End
    `terminated` when all jobs have ended: after the last decision the clusters run on until then. Never
    truncated. At the end `info["metrics"]` holds s, tmdl, ajer, s_log and more.

    ## Arguments
    - `config`: a `SliceWorldConfig`; None: chapter 5 with the Uniform [1, 33] arrivals of its training.
      `envs.simulation.slices.config.chapter4()` is the homogeneous world of chapter 4.
    - `render_mode`: None, "rgb_array" or "human" (Gantt chart per cluster with capacity and misses).

    ## References
    Liu 2022, "Collaborative data analysis ...", chapters 4 and 5. The text leaves the distributions of job
    parameters open; the defaults give the rule MAF the published means.
    """

    def __init__(self, config: SliceWorldConfig | None = None, render_mode: str | None = None) -> None:
        """Make the environment (see Arguments above).

        Raises:
            WorldError: for a configuration that makes no sense.
        """
        super().__init__(SliceWorld(config, 1, record=render_mode is not None), render_mode)


def make_vector(
    num_envs: int = 1,
    config: SliceWorldConfig | None = None,
    autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
    copy: bool = True,
) -> WorldVectorEnv:
    """`num_envs` copies of `MultiClusterEnv` that step in one call (see `WorldVectorEnv`)."""
    return WorldVectorEnv(SliceWorld(config, num_envs), autoreset_mode, copy)
