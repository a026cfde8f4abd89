"""`spotweave/Federated-v1`: federated applications whose rounds train on rented, interruptible instances."""

from __future__ import annotations

from gymnasium.vector import AutoresetMode

from envs.federated_episodes import FederatedConfig, build_federated
from envs.single import WorldEnv
from envs.vector import WorldVectorEnv

__all__ = ["FederatedConfig", "FederatedEnv", "build_federated", "make_vector"]


class FederatedEnv(WorldEnv):
    """Rent, keep, release and move the instances of a federated application for little money and time.

    Clients train in synchronous rounds: nobody begins a round before everybody has delivered the last one, so
    fast clients wait for slow ones, and an instance that waits is paid for. Spot instances are cheaper and
    are interrupted. An instance takes time to start, and its first epoch is slower. An interrupted epoch goes
    on from its latest checkpoint. Where a scenario has a server, it is a task too, and no round runs without
    it. No client ever costs more than its budget: one that cannot pay for the coming round leaves before it.

    ## Action Space
    `Discrete(C + 1)`: the task that is asked about goes to (or stays on) an offer, or, with C, to none for
    now: its instance is released, and it is asked again after half of the time that is left until the latest
    start in time (15 to 600 s), when it is interrupted, when another one is, and before the next round. A
    task is asked about when it has delivered, when it was interrupted, when such a time has come, and before
    each round. `observation["action_mask"]` (also in `info`) marks the valid actions: offers that are
    available and its own; "none" unless everybody else waits for this task alone. An invalid action raises
    `ValueError` and changes nothing. `action_space.sample()` draws among the valid ones.

    ## Observation Space
    A `Dict` (float32 unless said; columns in `envs.simulation.snapshot`; seconds and USD):
    - `clusters` (C, 22): the offers: price, availability now and lately, launch time, ...
    - `occupation` (C, 105): zeros, offers have no occupation of their own here.
    - `jobs` (1, 32): the task: epoch time, rounds left, whether it owes a result and is idle, time until all
      others have delivered, length of a round, ... as measured so far.
    - `pairs` (1, C, 14): epoch time, messages and their price on each offer, ...
    - `action_mask` (C + 1,) int8.

    ## Rewards
    Minus what `cost_index` grew by: the money spent in per cent of on-demand instances that never wait, plus
    `time_weight` times the delay in per cent of an application that never waits. Rewards sum to minus the
    index.

    ## Starting State
    No instance runs; server and clients are asked about. The application is the scenario's, or drawn: 2 to 8
    clients of very different speed and 6 to 24 rounds, on one zone or on recorded zones from a moment of the
    split's days on. `reset(seed=s)` starts (s, "train", 0); each further `reset()` counts the index up;
    `options={"split": "test", "index": 7}` chooses.

    ## Episode End
    `terminated` after the last round; `truncated` after 20,000 decisions. At the end `info["metrics"]` holds
    the index, cost and delay in per cent, USD, minutes, interruptions, clients that left, rounds lost.

    ## Arguments
    - `config`: a `FederatedConfig`; None: drawn applications. `config.scenario` names a scenario or a file
      (docs/federated-rounds.md).
    - `render_mode`: None, "rgb_array" or "human" (Gantt chart per offer with price and interruptions).

    ## References
    Brum 2023, "Multi-FedLS" (server, messages, revocations); Sinha 2025, "FedCostAware" (waiting clients).
    """

    def __init__(self, config: FederatedConfig | None = None, render_mode: str | None = None) -> None:
        """Make the environment (see Arguments above).

        Raises:
            WorldError: for a configuration or scenario that makes no sense.
        """
        super().__init__(build_federated(config if config is not None else FederatedConfig()), render_mode)


def make_vector(
    num_envs: int = 1,
    config: FederatedConfig | None = None,
    autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    copy: bool = True,
) -> WorldVectorEnv:
    """`num_envs` copies of `FederatedEnv` (see `WorldVectorEnv`)."""
    world = build_federated(config if config is not None else FederatedConfig(), num_envs)
    return WorldVectorEnv(world, autoreset_mode, copy)
