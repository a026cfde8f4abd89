"""`spotweave/Bags-v0`: bags of tasks with a deadline on VMs that hibernate."""

from __future__ import annotations

from gymnasium.vector import AutoresetMode

from envs.bags_episodes import BagsConfig, build_bags
from envs.single import WorldEnv
from envs.vector import WorldVectorEnv

__all__ = ["BagsConfig", "BagsEnv", "build_bags", "make_vector"]


class BagsEnv(WorldEnv):
    """End a bag of independent tasks before its deadline for little money and time (HADS, Burst-HADS).

    Each core of a VM runs one task at a time, in the order of its queue and as its memory allows. Spot VMs
    are cheap and save checkpoints; all those of a type hibernate and resume at the same time, and are not
    billed meanwhile. A VM needs `launch_s` before it runs tasks and is billed by the second, idle or not.
    An answer that could make the deadline impossible to keep on on-demand VMs is masked, as far as any
    other is left. Tasks are the unit here, not ticks of one job: observations differ from those of
    `spotweave/Spot-v0`.

    ## Action Space
    `Discrete(C + 1)`: the task that is asked about goes to a VM, or, with C, to none for now. Rented VMs of a
    type and market take its first places; the next place is a new one. A task is asked about before the
    start (where it begins; there is no "none"), when its VM hibernates ("none" waits for it until the
    migration time limit), when such a limit has come, and when another VM is idle while it waits for a
    core ("none" leaves it there). A VM that has run empty is asked about itself: its own place keeps it
    until the end of its allocation cycle, "none" gives it back. `observation["action_mask"]` (also in
    `info`) marks the valid actions. An invalid action raises `ValueError` and changes nothing.
    `action_space.sample()` draws among the valid ones.

    ## Observation Space
    A `Dict` (float32 unless said; columns in `envs.simulation.snapshot`; seconds and USD):
    - `clusters` (C, 22): the VMs: price per core, cores, tasks that run and wait, launch time, rates of the
      scenario, ...
    - `occupation` (C, 105): zeros, VMs have no occupation of their own here.
    - `jobs` (1, 32): the task: run time, progress saved, time to the deadline, time until all others have
      ended as queued, ...
    - `pairs` (1, C, 14): work and wait on each VM, where it is, ...
    - `action_mask` (C + 1,) int8.

    ## Rewards
    Minus what `objective` grew by: 100 times Eq. 8.1, in which money is divided by the price of all spot VMs
    as dear as the dearest until D_spot and the makespan by D_spot; 100 more for a missed deadline. Rewards
    sum to minus the objective.

    ## Starting State
    Nothing is rented. Job, deadline, launch time and rates are the configuration's, or drawn.
    `reset(seed=s)` starts (s, "train", 0); each further `reset()` counts the index up;
    `options={"split": "test", "index": 7}` chooses.

    ## Episode End
    `terminated` with the last task. At the end `info["metrics"]` holds the objective, USD, makespan, whether
    the deadline was missed, hibernations, migrations, steals and on-demand VMs rented.

    ## Arguments
    - `config`: a `BagsConfig`; None: bags of any size, drawn rates, VMs of Table 9.1.
    - `render_mode`: None, "rgb_array" or "human" (Gantt chart per VM with hibernations).

    ## References
    Teylo 2021, chapters 4 to 9; `docs/bag-plans.md`.
    """

    def __init__(self, config: BagsConfig | None = None, render_mode: str | None = None) -> None:
        """Make the environment (see Arguments above).

        Raises:
            WorldError: for a configuration that makes no sense.
        """
        super().__init__(build_bags(config if config is not None else BagsConfig()), render_mode)


def make_vector(
    num_envs: int = 1,
    config: BagsConfig | None = None,
    autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    copy: bool = True,
) -> WorldVectorEnv:
    """`num_envs` copies of `BagsEnv` (see `WorldVectorEnv`)."""
    world = build_bags(config if config is not None else BagsConfig(), num_envs)
    return WorldVectorEnv(world, autoreset_mode, copy)
