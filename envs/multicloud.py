"""`spotweave/MultiCloud-v3`: hybrid workloads on spot, on-demand and owned capacity over several clouds."""

from __future__ import annotations

from dataclasses import replace

from gymnasium.vector import AutoresetMode

from envs.market_data import job_log, market_data
from envs.simulation.market.config import MarketWorldConfig
from envs.simulation.market.world import MarketWorld
from envs.single import WorldEnv
from envs.traces.bundle import TraceBundle
from envs.vector import WorldVectorEnv

__all__ = ["MarketWorldConfig", "MultiCloudEnv", "build_market", "make_vector"]


def build_market(
    config: MarketWorldConfig | None = None,
    n_lanes: int = 1,
    bundle: TraceBundle | None = None,
    record: bool = False,
) -> MarketWorld:
    """The market world on recorded traces: those of `config.market.traces`, else the bundle's.

    The jobs are drawn, or those of `config.workload.trace`.

    Args:
        config: what to simulate; None: the defaults.
        n_lanes: copies.
        bundle: recorded markets; None: the bundle that ships with the package.
        record: remember who ran where, for `timeline`.

    Raises:
        WorldError: for a configuration that makes no sense.
        TraceError: for traces that cannot be used.
    """
    config = config if config is not None else MarketWorldConfig()
    config.validate()
    data = market_data(config.market, bundle)
    if config.workload.trace:
        largest = max(offer.quota for offer in data.offers)
        log = job_log(config.workload.trace, largest)
        log.require(config.workload.jobs)
        data = replace(data, log=log)
    return MarketWorld(config, data, n_lanes, record)


class MultiCloudEnv(WorldEnv):
    """Put jobs on spot, on-demand and owned capacity so that few deadlines are missed for little money.

    General jobs, jobs with one deadline and streaming jobs (many batches, each with a deadline) arrive at a
    buffer. Twenty offers can run them: one owned cluster with a FIFO queue, nine recorded AWS spot zones and
    GCP spot regions that may be interrupted, and on-demand instances in several regions. Prices follow the
    recordings; so does AWS spot availability (GCP's is synthetic). A launch takes time and may fail. An
    interruption comes with a notice, mostly; a job loses what neither the notice nor a periodic checkpoint
    saved, and asks again. Data lie in regions: reading them elsewhere costs time and egress. An AWS instance
    that AWS interrupts within its first hour is free; every bill is per second, at least 60 s.

    With `config.workload.federated` a tenth of the arrivals are federated applications. Each is a server and
    three to eight clients that train in synchronous rounds, and every one of these tasks is a job that asks
    for an offer of its own. Between two rounds a client holds an instance that has nothing to do.

    ## Action Space
    `Discrete(J * (C + 1))`, J = 8 jobs shown, C = 20 offers. Action `job * (C + 1) + offer` puts the job in
    that row of the window on that offer; `offer == C` is "none for now": the job asks again after 300 s (a
    job that runs stays where it is and asks again after 1800 s, a stream at the end of a batch then; a
    hibernated one waits to be resumed). Jobs run without being asked on spot capacity, but for streams, and
    on the owned cluster.
    `observation["action_mask"]` (also in `info`) marks the valid actions: offers that are available and have
    room, the owned cluster always, none always. An invalid action raises `ValueError` and changes nothing.
    An idle federated client (`IDLE`) keeps its instance with its own offer, moves with another one
    and releases it with "none"; without one it asks again after 15 to 600 s, and when its application needs
    it. A federated task does not queue in the owned cluster, and no offer is valid that its budget does not
    pay.
    `action_space.sample()` draws among the valid ones.

    ## Observation Space
    A `Dict` (float32 unless said; columns in `envs.simulation.snapshot`; time in seconds, money in USD):
    - `clusters` (C, 22): quota, speed, instances in use, price, on-demand price, availability now and lately,
      launch time, notice, provider, region, ...
    - `occupation` (C, 105): used / quota, sampled every 300 s, latest last; 0 before the first.
    - `jobs` (J, 32): category, standard time, batches, slack, progress, data, interruptions, ... by arrival.
    - `pairs` (J, C, 14): executors, execution time, egress and transfer of the job on the offer, and what
      follows from them (fits, deadline missed even without waiting, finish, cost).
    - `action_mask` (J * (C + 1),) int8.
    Rows beyond the jobs at hand are 0.

    ## Rewards
    Minus what the objective grew by since the previous decision. The objective `cost_usd_eq` is USD paid and
    owed + 25 per missed deadline of a time-critical job + 5 per late batch + 0.25 per hour of delay of a job
    (time in the system less the standard time of the work done; for streaming jobs the mean over batches).
    An episode's rewards sum to minus the objective. A federated application counts as one job: its delay, one
    miss for its deadline, or one if all its clients left for want of budget.

    ## Starting State
    A moment drawn from the recorded days of the split (train: days 1-30, validation: 31-38, test: 39-45),
    nothing running, and the jobs of the first arrival in the buffer. Everything random follows from (seed,
    split, index) and is the same for every policy. `reset(seed=s)` starts (s, "train", 0); each further
    `reset()` counts the index up; `options={"split": "test", "index": 7}` chooses.

    ## Episode End
    `terminated` when all jobs have ended; `truncated` after 50,000 decisions or 14 days, when every deadline
    that is not met counts as missed. At the end `info["metrics"]` holds the objective and its parts.

    ## Arguments
    - `config`: a `MarketWorldConfig`; None: 120 jobs over about 30 hours. `config.market.traces` names a
      user's own traces (docs/traces.md); `config.workload.federated` and `.applications` see above.
    - `render_mode`: None, "rgb_array" or "human" (Gantt chart per offer with capacity, price and misses).

    ## References
    Liu 2022, "Collaborative data analysis ...", chapter 5 (categories, heterogeneity, value components).
    Sinha 2025, "FedCostAware" (idle clients, budgets); Brum 2023, "Multi-FedLS" (servers, checkpoints).
    Spot availability and prices: SkyNomad artifact (AWS V100, 2023), GCP price lists; see NOTICE.
    """

    def __init__(self, config: MarketWorldConfig | None = None, render_mode: str | None = None) -> None:
        """Make the environment (see Arguments above).

        Raises:
            WorldError: for a configuration that makes no sense.
            TraceError: for traces that cannot be used.
        """
        super().__init__(build_market(config, record=render_mode is not None), render_mode)


def make_vector(
    num_envs: int = 1,
    config: MarketWorldConfig | None = None,
    autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    copy: bool = True,
) -> WorldVectorEnv:
    """`num_envs` copies of `MultiCloudEnv` that step in one call (see `WorldVectorEnv`)."""
    return WorldVectorEnv(build_market(config, num_envs), autoreset_mode, copy)
