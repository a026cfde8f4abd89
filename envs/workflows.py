"""`spotweave/Workflows-v0`: a workflow with a deadline on owned clusters and rented offers."""

from __future__ import annotations

from gymnasium.vector import AutoresetMode

from envs.single import WorldEnv
from envs.vector import WorldVectorEnv
from envs.workflows_episodes import WorkflowsConfig, build_workflows

__all__ = ["WorkflowsConfig", "WorkflowsEnv", "build_workflows", "make_vector"]


class WorkflowsEnv(WorldEnv):
    """End a graph of steps before its deadline for little money, on owned clusters, spot and on demand.

    A step runs on one executor, once the files that it reads are in its region. Instances are rented for a
    step, may take further ones, and are billed by the second, launch and idle time included, until they are
    given back or their spot offer ceases to be available: the step that they ran then starts again. Run times
    differ from what is expected. Private files keep the steps that read them in their region: a hard mask. An
    answer after which on demand could no longer keep the deadline is masked.

    ## Action Space
    `Discrete(C + 1)`: the step that is asked about goes to a place - an executor of an owned cluster, an
    idle instance of an offer, or a new one where none is idle - or, with C, to none for now. Steps are
    asked about when they are ready and something has happened, by upward rank; once one waits, those behind
    it wait too, unless they must not. An instance that is idle is asked about itself: its own place keeps it,
    "none" gives it back. `observation["action_mask"]` (also in `info`) marks the valid actions. An invalid
    action raises `ValueError` and changes nothing. `action_space.sample()` draws among the valid ones.

    ## Observation Space
    A `Dict` (float32 unless said; columns in `envs.simulation.snapshot`; seconds and USD):
    - `clusters` (C, 22): the places: price, instances, those that run steps, launch time (0 where one is
      idle), availability and its past, ...
    - `occupation` (C, 105): zeros.
    - `jobs` (1, 32): the step: run time, upward rank, slack (time until it must have ended for on demand to
      do the rest), steps left, ready steps behind it, time until an instance is free, ...
    - `pairs` (1, C, 14): run time, time until its files are there and price of moving them, ...
    - `action_mask` (C + 1,) int8.

    ## Rewards
    Minus what the cost grew by, in per cent of all the work on demand; minus 100 for a missed deadline.
    Rewards sum to minus `cost_index`.

    ## Starting State
    Nothing is rented, the files that are given lie in one region. Family, sizes, run times, deadline, speeds
    of owned clusters, launch times and the moment of the recorded market are drawn, or the configuration's.
    `reset(seed=s)` starts (s, "train", 0); each further `reset()` counts the index up;
    `options={"split": "test", "index": 7}` chooses.

    ## Episode End
    `terminated` with the last step. At the end `info["metrics"]` holds the index, USD, whether the deadline
    was missed, makespan, interruptions, time lost, launches, and what was paid for files and for unused time.

    ## Arguments
    - `config`: a `WorkflowsConfig`; None: any of nine families, 9 spot and 3 on-demand offers, 2 owned
      clusters.
    - `render_mode`: None, "rgb_array" or "human" (Gantt chart per place with interruptions).

    ## References
    Liu 2022, chapter 3; WfCommons (Coleman et al. 2022); Topcuoglu, Hariri and Wu 2002;
    `docs/environments.md`.
    """

    def __init__(self, config: WorkflowsConfig | None = None, render_mode: str | None = None) -> None:
        """Make the environment (see Arguments above).

        Raises:
            WorldError: for a configuration that makes no sense.
        """
        super().__init__(build_workflows(config if config is not None else WorkflowsConfig()), render_mode)


def make_vector(
    num_envs: int = 1,
    config: WorkflowsConfig | None = None,
    autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    copy: bool = True,
) -> WorldVectorEnv:
    """`num_envs` copies of `WorkflowsEnv` (see `WorldVectorEnv`)."""
    world = build_workflows(config if config is not None else WorkflowsConfig(), num_envs)
    return WorldVectorEnv(world, autoreset_mode, copy)
