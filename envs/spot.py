"""`spotweave/Spot-v0`: one divisible job with a deadline on recorded spot zones."""

from __future__ import annotations

from gymnasium.vector import AutoresetMode

from envs.single import WorldEnv
from envs.spot_episodes import SpotConfig, build_spot
from envs.vector import WorldVectorEnv

__all__ = ["SpotConfig", "SpotEnv", "build_spot", "make_vector"]


class SpotEnv(WorldEnv):
    """End a job before its deadline for little money, on spot zones that come and go.

    Time goes in ticks. What runs in a tick is billed for all of it, the last one included, at the price of
    the zone where it ran. A start has an overhead during which no work is done; a job that runs on spot moves
    to another available zone without one. Spot ends between two ticks: the job is interrupted and keeps its
    work. Where a tick's wait could make it late, the guarantee takes the choice: it turns to on demand, or
    stays on spot if that runs and its overhead is paid (docs/environments.md has the rules).

    ## Action Space
    `Discrete(Z + 2)`: a zone's spot (0 to Z - 1), on demand (Z), or none for now (Z + 1): a job that waits
    goes on waiting, one that runs goes on as it runs. Every tick asks. `observation["action_mask"]` (also in
    `info`) marks the valid actions: zones that have spot now, on demand, none; not where it runs already. An
    invalid action raises `ValueError` and changes nothing. `action_space.sample()` draws a valid one.

    ## Observation Space
    A `Dict` (float32 unless said; columns in `envs.simulation.snapshot`; seconds and USD):
    - `clusters` (Z + 1, 22): the offers: price, availability now and as seen since the job began, ...
    - `occupation` (Z + 1, 105): zeros, offers have no occupation of their own here.
    - `jobs` (1, 32): the job: work, progress, time to the deadline, restart overhead, interruptions, ...
    - `pairs` (1, Z + 1, 14): overhead of a start there, time until the end, cost, where it runs, ...
    - `action_mask` (Z + 2,) int8.

    ## Rewards
    Minus what `cost_index` grew by: the bill in per cent of the work on demand, and 100 for a job that its
    deadline finds unfinished. Rewards sum to minus the index.

    ## Starting State
    Nothing runs, and nothing is known of the zones but what they are now. The job begins at a random moment
    of the split's days, in a random zone or with all of them, with the work, deadline and overhead of the
    leaderboard; half of the training episodes draw the latter two. As configured, availability is drawn
    instead, launches take time or fail, and ends are announced. `reset(seed=s)` starts (s, "train", 0); each
    further `reset()` counts the index up; `options={"split": "test", "index": 7}` chooses. Which days belong
    to a split, and which are left out for the leaderboard: `envs.spot_episodes.stretches_s`.

    ## Episode End
    `terminated` when the work is done, or at the deadline. At the end `info["metrics"]` holds the index, USD,
    the leaderboard's score in per cent, whether it was late, interruptions, starts and hours of each kind.

    ## Arguments
    - `config`: a `SpotConfig`; None: several zones, by the rules `adrs_multi`.
    - `render_mode`: None, "rgb_array" or "human" (Gantt chart per offer with price and interruptions).

    ## References
    Wu et al., "Can't Be Late" (NSDI'24); UCB-ADRS/ADRS-Leaderboard, cant_be_late and cant_be_late_multi.
    """

    def __init__(self, config: SpotConfig | None = None, render_mode: str | None = None) -> None:
        """Make the environment (see Arguments above).

        Raises:
            WorldError: for a configuration that makes no sense.
        """
        super().__init__(build_spot(config if config is not None else SpotConfig()), render_mode)


def make_vector(
    num_envs: int = 1,
    config: SpotConfig | None = None,
    autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    copy: bool = True,
) -> WorldVectorEnv:
    """`num_envs` copies of `SpotEnv` (see `WorldVectorEnv`)."""
    world = build_spot(config if config is not None else SpotConfig(), num_envs)
    return WorldVectorEnv(world, autoreset_mode, copy)
