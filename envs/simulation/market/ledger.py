"""Running totals of a job (misses, mutual misses, delay, money, owned hours) and of the objective.

The totals grow as time passes, so the difference of two moments is what happened between them: the value of a
decision is what the totals of its job gained from the decision to the end.
"""

from __future__ import annotations

import numpy as np

from spotweave.envs.simulation.compiled import entry, inner
from spotweave.envs.simulation.market import columns as at
from spotweave.envs.simulation.market.episodes import Episodes, price_integral
from spotweave.envs.simulation.market.members import is_client, is_member, settle_idle
from spotweave.envs.simulation.market.state import CHARGES_PER_USD, NEVER, Lanes, Offers, Rules, log_event
from spotweave.envs.simulation.snapshot import Category


@inner
def batches_due(episodes: Episodes, slot: int, job: int, t: int) -> int:
    """Batches of a streaming job whose data are complete at `t`."""
    passed = (t - episodes.job[slot, job, at.ARRIVAL_S]) // episodes.job[slot, job, at.PERIOD_S]
    return int(min(episodes.job[slot, job, at.EXECUTIONS], passed))


@inner
def batch_delay_hours(lanes: Lanes, episodes: Episodes, lane: int, job: int) -> float:
    """What the batch that ends now adds to the mean delay of its job's batches."""
    slot = lanes.episode_of_lane[lane]
    batch = lanes.job[lane, job, at.EXECUTED] + 1
    due = episodes.job[slot, job, at.ARRIVAL_S] + batch * episodes.job[slot, job, at.PERIOD_S]
    late = lanes.lane[lane, at.NOW_S] - due - episodes.job[slot, job, at.STANDARD_S]
    return float(late / (3600.0 * episodes.job[slot, job, at.EXECUTIONS]))


@inner
def delay_hours(lanes: Lanes, episodes: Episodes, lane: int, job: int) -> float:
    """Hours of delay so far: time in the system less the standard time of the work done.

    Of a streaming job it is the mean over its batches of (end - due - standard time), where batches that are
    due and not finished count with the time passed. An application's is its server's, with the standard time
    of the rounds that are aggregated; its clients have none. A step's time begins when it waits for no other.
    """
    slot = lanes.episode_of_lane[lane]
    t = lanes.lane[lane, at.NOW_S]
    if lanes.job[lane, job, at.PHASE] == at.DONE:
        return float(lanes.job_real[lane, job, at.DELAY])
    arrival = episodes.job[slot, job, at.ARRIVAL_S]
    standard = episodes.job[slot, job, at.STANDARD_S]
    if is_member(episodes, slot, job):
        done = lanes.job[lane, job, at.EXECUTED] / episodes.job[slot, job, at.EXECUTIONS]
        server = episodes.job[slot, job, at.SERVER] == job
        return float((t - arrival - episodes.job[slot, job, at.WHOLE_S] * done) / 3600.0) if server else 0.0
    if episodes.job[slot, job, at.CATEGORY] != Category.STREAMING.value:
        there_s = max(0, t - lanes.job[lane, job, at.READY_S])
        return float((there_s - standard * share_done(lanes, episodes, lane, job)) / 3600.0)
    delay = lanes.job_real[lane, job, at.DELAY]
    finished = lanes.job[lane, job, at.EXECUTED]
    due = batches_due(episodes, slot, job, t)
    backlog = due - finished
    if backlog > 0:
        # The sum over k = finished+1..due of (t - arrival - k * period).
        periods = (finished + 1 + due) * backlog // 2
        waits = backlog * (t - arrival) - episodes.job[slot, job, at.PERIOD_S] * periods
        work = standard * share_done(lanes, episodes, lane, job)
        delay += (waits - work) / (3600.0 * episodes.job[slot, job, at.EXECUTIONS])
    return float(delay)


@inner
def miss_weight(episodes: Episodes, rules: Rules, slot: int, job: int) -> float:
    """A miss of this job in units of one time-critical miss."""
    if episodes.job[slot, job, at.CATEGORY] == Category.STREAMING.value:
        return rules.batch_miss_usd / rules.miss_usd
    return 1.0


@inner
def record_miss(lanes: Lanes, episodes: Episodes, offers: Offers, rules: Rules, lane: int, job: int) -> None:
    """A deadline of the job passes now: its execution number `late_next` is not finished."""
    slot = lanes.episode_of_lane[lane]
    streaming = episodes.job[slot, job, at.CATEGORY] == Category.STREAMING.value
    lanes.job[lane, job, at.MISSES] += 1
    lanes.counters[lane, at.MISSES_BATCHES if streaming else at.MISSES_TC] += 1
    c = lanes.job[lane, job, at.OFFER]
    if c < 0:
        return
    lanes.offer[lane, c, at.MISSED] += 1
    log_event(lanes, lane, at.MISS, job, c, lanes.lane[lane, at.NOW_S], 1)
    waited = lanes.job[lane, job, at.PHASE] == at.QUEUED or lanes.job[lane, job, at.WAITED] == 1
    if streaming and lanes.job[lane, job, at.PHASE] != at.QUEUED:
        # A batch that fell due after the job had left the queue did not wait in it.
        due = lanes.when[lane, job, at.LATE_S] - episodes.job[slot, job, at.ALLOWANCE_S]
        waited = waited and due < lanes.job[lane, job, at.STAY_START_S]
    if offers.fixed[c, at.QUEUES] == 0 or not waited:
        return
    weight = miss_weight(episodes, rules, slot, job)
    for k in range(lanes.lane[lane, at.OPEN_N]):
        other = lanes.open[lane, k]
        if other != job and lanes.job[lane, other, at.OFFER] == c:
            later = lanes.offer[lane, c, at.DEPLOYMENTS] - lanes.job[lane, other, at.DEPLOYMENT]
            decay = offers.decay[min(later, offers.decay.shape[0] - 1)]
            lanes.job_real[lane, other, at.MUTUAL] += weight * decay


@inner
def take_mark(lanes: Lanes, episodes: Episodes, offers: Offers, rules: Rules, lane: int, job: int) -> None:
    """Note the running totals of a job, or of its whole application, just before it is decided."""
    slot = lanes.episode_of_lane[lane]
    lanes.lane[lane, at.DECIDED] = job
    first = episodes.job[slot, job, at.SERVER]  # the job itself, unless it is a client
    lanes.mark[lane, 0] = lanes.job[lane, first, at.MISSES] * miss_weight(episodes, rules, slot, job)
    lanes.mark[lane, 1] = lanes.job_real[lane, job, at.MUTUAL]
    lanes.mark[lane, 2] = delay_hours(lanes, episodes, lane, first)
    charge, owned_s = 0, 0
    for member in range(first, first + 1 + episodes.job[slot, first, at.CLIENTS]):
        charge += lanes.job[lane, member, at.CHARGE] + accrued_charge(lanes, episodes, offers, lane, member)
        owned_s += owned_executor_s(lanes, episodes, offers, lane, member)
    lanes.mark[lane, 3] = charge / CHARGES_PER_USD
    lanes.mark[lane, 4] = owned_s / 3600.0


@inner
def money_and_delay(lanes: Lanes, episodes: Episodes, offers: Offers, lane: int) -> tuple[int, float]:
    """(charges paid and owed, hours of delay) of all jobs so far."""
    counters = lanes.counters[lane]
    charge = (
        counters[at.EGRESS_CHARGES]
        + counters[at.ON_DEMAND_CHARGES]
        + counters[at.SPOT_CHARGES]
        + counters[at.DISK_CHARGES]
    )
    delay = lanes.lane_real[lane, at.DELAY_CLOSED]
    for k in range(lanes.lane[lane, at.OPEN_N]):
        job = lanes.open[lane, k]
        if lanes.job[lane, job, at.PHASE] != at.DONE:
            charge += accrued_charge(lanes, episodes, offers, lane, job)
            delay += delay_hours(lanes, episodes, lane, job)
    return charge, delay


@entry
def objective(lanes: Lanes, episodes: Episodes, offers: Offers, rules: Rules, lane: int) -> float:
    """USD paid and owed, misses and delay of all jobs so far, in USD."""
    counters = lanes.counters[lane]
    charge, delay = money_and_delay(lanes, episodes, offers, lane)
    misses = rules.miss_usd * counters[at.MISSES_TC] + rules.batch_miss_usd * counters[at.MISSES_BATCHES]
    return float(charge / CHARGES_PER_USD + misses + rules.delay_usd_hour * delay)


# What an episode of a market world is measured by.

METRICS = (
    "cost_usd_eq",  # the objective: USD + misses, late batches and delay in USD
    "money_usd",
    "misses",
    "miss_tc",
    "miss_batches",
    "delay_hours",
    "interruptions",
    "launch_failures",
    "on_demand_usd",
    "spot_usd",
    "egress_usd",
    "disk_usd",
    "owned_executor_hours",
    "wasted_hours",  # executor-hours of work that was lost
    "response_p95",  # response / standard time; streaming: mean over batches
    "response_p99",
    "jobs_on_time",  # share of jobs without a missed deadline
    "unfinished",  # jobs cut off by a truncation
    "decisions",
)
FEDERATED_METRICS = (
    "rounds_per_application",  # rounds aggregated / applications
    "application_hours",  # mean time from an application's arrival to its end
    "applications_late",  # deadlines of applications missed, and applications that all clients left
    "clients_left",  # clients whose budget could not pay another round
    "idle_usd",  # paid for instances of clients while these waited for others
)
"""Besides METRICS, in a world with federated applications."""

_HIGHER = {"jobs_on_time", "owned_executor_hours", "rounds_per_application"}


def metrics_of(federated: bool) -> tuple[str, ...]:
    """Names of the metrics of a world, the objective first."""
    return METRICS + FEDERATED_METRICS if federated else METRICS


def higher_is_better(names: tuple[str, ...]) -> tuple[bool, ...]:
    """For each metric."""
    return tuple(name in _HIGHER for name in names)


def episode_metrics(
    lanes: Lanes, episodes: Episodes, offers: Offers, rules: Rules, lane: int
) -> dict[str, float]:
    """Metrics of an episode that has ended, keyed by `metrics_of`.

    An application counts as one job where jobs are counted: its server's row.
    """
    slot = lanes.episode_of_lane[lane]
    n = int(lanes.lane[lane, at.LIMIT])
    counters = lanes.counters[lane]
    usd = {
        name: counters[column] / CHARGES_PER_USD
        for name, column in (
            ("on_demand_usd", at.ON_DEMAND_CHARGES),
            ("spot_usd", at.SPOT_CHARGES),
            ("egress_usd", at.EGRESS_CHARGES),
            ("disk_usd", at.DISK_CHARGES),
        )
    }
    # Delay is response - standard time, of a streaming job the mean over its batches.
    own = episodes.job[slot, :n, at.SERVER] == np.arange(n)
    servers = np.flatnonzero(own & (episodes.job[slot, :n, at.CATEGORY] == Category.FEDERATED))
    standard = episodes.job[slot, :n, at.STANDARD_S].copy()
    standard[servers] = episodes.job[slot, servers, at.WHOLE_S]
    ratios = (1.0 + lanes.job_real[lane, :n, at.DELAY] * 3600.0 / standard)[own]
    complete = lanes.job[lane, :n, at.EXECUTED] == episodes.job[slot, :n, at.EXECUTIONS]
    complete = (complete | (lanes.job[lane, :n, at.LEFT] == 1))[own]
    response_p95, response_p99 = np.percentile(ratios, [95, 99])
    result = {
        "cost_usd_eq": objective(lanes, episodes, offers, rules, lane),
        "money_usd": sum(usd.values()),
        "misses": float(counters[at.MISSES_TC] + counters[at.MISSES_BATCHES]),
        "miss_tc": float(counters[at.MISSES_TC]),
        "miss_batches": float(counters[at.MISSES_BATCHES]),
        "delay_hours": float(lanes.lane_real[lane, at.DELAY_CLOSED]),
        "interruptions": float(counters[at.INTERRUPTIONS]),
        "launch_failures": float(counters[at.LAUNCH_FAILURES]),
        **usd,
        "owned_executor_hours": counters[at.OWNED_EXECUTOR_S] / 3600.0,
        "wasted_hours": counters[at.LOST_EXECUTOR_S] / 3600.0,
        "response_p95": float(response_p95),
        "response_p99": float(response_p99),
        "jobs_on_time": float((lanes.job[lane, :n, at.MISSES] == 0)[own].mean()),
        "unfinished": float((~complete).sum()),
        "decisions": float(lanes.lane[lane, at.DECISIONS]),
    }
    if rules.federated == 1:
        applications = max(1, len(servers))
        hours = lanes.job[lane, servers, at.FINISH_S] - episodes.job[slot, servers, at.ARRIVAL_S]
        result |= {
            "rounds_per_application": counters[at.ROUNDS] / applications,
            "application_hours": hours.sum() / 3600.0 / applications,
            "applications_late": lanes.job[lane, servers, at.MISSES].sum(),
            "clients_left": counters[at.CLIENTS_LEFT],
            "idle_usd": counters[at.IDLE_CHARGES] / CHARGES_PER_USD,
        }
    return {name: float(result[name]) for name in metrics_of(rules.federated == 1)}


# What running, hibernating and moving data costs.
#
# Per second, at least 60 s, at the price of each moment; an instance that the provider interrupts early may
# be free (AWS: within the first hour). All amounts are exact integers ("charges", see
# `state.CHARGES_PER_USD`).


MINIMUM_S = 60


@inner
def open_bill(lanes: Lanes, episodes: Episodes, lane: int, job: int) -> None:
    """Instances of a job begin to run now."""
    t = lanes.lane[lane, at.NOW_S]
    lanes.job[lane, job, at.BILLED_FROM_S] = t
    c = lanes.job[lane, job, at.OFFER]
    lanes.job[lane, job, at.INTEGRAL_FROM] = price_integral(lanes, episodes, lane, c, t)


@inner
def close_bill(
    lanes: Lanes, episodes: Episodes, offers: Offers, lane: int, job: int, by_provider: bool
) -> None:
    """Instances of a job end now, by the provider's interruption or by us."""
    slot = lanes.episode_of_lane[lane]
    t = lanes.lane[lane, at.NOW_S]
    c = lanes.job[lane, job, at.OFFER]
    executors = episodes.job[slot, job, at.EXECUTORS]
    start = lanes.job[lane, job, at.BILLED_FROM_S]
    uptime = t - start
    idle = 0
    if is_client(episodes, slot, job):
        settle_idle(lanes, episodes, lane, job)
        idle = lanes.job[lane, job, at.IDLE_CHARGE]
        lanes.job[lane, job, at.IDLE_CHARGE] = 0
        lanes.when[lane, job, at.LATE_S] = NEVER
    log_event(lanes, lane, at.SEGMENT, job, c, start, 1 if lanes.job[lane, job, at.MISSES] > 0 else 0)
    if offers.fixed[c, at.QUEUES] == 1:
        lanes.counters[lane, at.OWNED_EXECUTOR_S] += executors * uptime
        lanes.job[lane, job, at.OWNED_S] += executors * uptime
        return
    if by_provider and uptime < offers.fixed[c, at.FREE_FIRST_S]:
        return
    charge = closing_charge(lanes, episodes, offers, lane, job)
    lanes.job[lane, job, at.CHARGE] += charge
    lanes.counters[lane, at.SPOT_CHARGES if offers.fixed[c, at.SPOT] == 1 else at.ON_DEMAND_CHARGES] += charge
    lanes.counters[lane, at.IDLE_CHARGES] += idle


@inner
def owned_executor_s(lanes: Lanes, episodes: Episodes, offers: Offers, lane: int, job: int) -> int:
    """Executor-seconds that a job has used on owned clusters so far."""
    closed = int(lanes.job[lane, job, at.OWNED_S])
    phase, c = lanes.job[lane, job, at.PHASE], lanes.job[lane, job, at.OFFER]
    if phase in (at.SETTING_UP, at.WORKING, at.IDLE, at.MOVING) and offers.fixed[c, at.QUEUES] == 1:
        executors = episodes.job[lanes.episode_of_lane[lane], job, at.EXECUTORS]
        closed += int(executors * (lanes.lane[lane, at.NOW_S] - lanes.job[lane, job, at.BILLED_FROM_S]))
    return closed


@inner
def closing_charge(lanes: Lanes, episodes: Episodes, offers: Offers, lane: int, job: int) -> int:
    """What the open bill of a job comes to if its instances end now."""
    c = lanes.job[lane, job, at.OFFER]
    if offers.fixed[c, at.QUEUES] == 1:
        return 0
    end = max(lanes.lane[lane, at.NOW_S], lanes.job[lane, job, at.BILLED_FROM_S] + MINIMUM_S)
    integral = price_integral(lanes, episodes, lane, c, end) - lanes.job[lane, job, at.INTEGRAL_FROM]
    return int(episodes.job[lanes.episode_of_lane[lane], job, at.EXECUTORS] * integral)


@inner
def disk_charge(lanes: Lanes, episodes: Episodes, offers: Offers, lane: int, job: int) -> int:
    """What the disks of a job's hibernated instances cost, from the hibernation until now."""
    slot = lanes.episode_of_lane[lane]
    seconds = lanes.lane[lane, at.NOW_S] - lanes.job[lane, job, at.PAUSED_S]
    rate = offers.fixed[lanes.job[lane, job, at.OFFER], at.DISK_CHARGE_S]
    return int(episodes.job[slot, job, at.EXECUTORS] * rate * seconds)


@inner
def charge_disk(lanes: Lanes, episodes: Episodes, offers: Offers, lane: int, job: int) -> None:
    """Pay for the disks as a hibernation ends."""
    charge = disk_charge(lanes, episodes, offers, lane, job)
    lanes.job[lane, job, at.CHARGE] += charge
    lanes.counters[lane, at.DISK_CHARGES] += charge


@inner
def egress_charge(
    episodes: Episodes, offers: Offers, slot: int, job: int, region: int, checkpoint_region: int
) -> int:
    """Moving a job's input, and its checkpoint (if `checkpoint_region` >= 0), into a region."""
    home, size = episodes.job[slot, job, at.HOME], episodes.job_real[slot, job]
    charge = size[at.DATA_GB] * offers.egress_charge_gb[home, region]
    if checkpoint_region >= 0:
        charge += size[at.CHECKPOINT_GB] * offers.egress_charge_gb[checkpoint_region, region]
    return int(charge + 0.5)


@inner
def charge_egress(lanes: Lanes, episodes: Episodes, offers: Offers, lane: int, job: int) -> None:
    """Pay for the data that a job reads as it is set up on its offer."""
    slot = lanes.episode_of_lane[lane]
    region = offers.fixed[lanes.job[lane, job, at.OFFER], at.REGION]
    charge = egress_charge(episodes, offers, slot, job, region, lanes.job[lane, job, at.CHECKPOINT_REGION])
    lanes.job[lane, job, at.CHARGE] += charge
    lanes.counters[lane, at.EGRESS_CHARGES] += charge


@inner
def accrued_charge(lanes: Lanes, episodes: Episodes, offers: Offers, lane: int, job: int) -> int:
    """What a job owes at this moment beyond its closed bills."""
    phase = lanes.job[lane, job, at.PHASE]
    if phase == at.HIBERNATED:
        return int(disk_charge(lanes, episodes, offers, lane, job))
    c = lanes.job[lane, job, at.OFFER]
    if phase in (at.SETTING_UP, at.WORKING, at.IDLE, at.MOVING) and offers.fixed[c, at.QUEUES] == 0:
        integral = price_integral(lanes, episodes, lane, c, lanes.lane[lane, at.NOW_S])
        executors = episodes.job[lanes.episode_of_lane[lane], job, at.EXECUTORS]
        return int(executors * (integral - lanes.job[lane, job, at.INTEGRAL_FROM]))
    return 0


# How far a job is: work, checkpoints and what a stop would lose.
#
# On an offer an execution is `work_s` seconds of work; after every `interval_s` of it a checkpoint takes
# `dump_s` more (none after the last piece). Progress between offers is a share of the execution.


@inner
def work_left_s(execution_s: int, share_done: float) -> int:
    """Seconds of work left on an offer, at least 1."""
    return max(1, int(np.ceil((1.0 - share_done) * execution_s)))


@inner
def wall_s(work_s: int, interval_s: int, dump_s: int) -> int:
    """Seconds that the work takes with its checkpoints."""
    if interval_s <= 0:
        return work_s
    return work_s + dump_s * ((work_s - 1) // interval_s)


@inner
def worked_s(elapsed_s: int, interval_s: int, dump_s: int, checkpointed: bool) -> int:
    """Seconds of work after `elapsed_s`: all of it, or only what a periodic checkpoint holds."""
    if interval_s <= 0:
        return 0 if checkpointed else elapsed_s
    cycles = elapsed_s // (interval_s + dump_s)
    if checkpointed:
        return int(cycles * interval_s)
    return int(cycles * interval_s + min(interval_s, elapsed_s - cycles * (interval_s + dump_s)))


@inner
def work_done_s(lanes: Lanes, episodes: Episodes, lane: int, job: int, t: int, checkpointed: bool) -> int:
    """Seconds of work of a working job since `base`, as it stood at `t`."""
    slot = lanes.episode_of_lane[lane]
    elapsed = t - lanes.job[lane, job, at.WORK_START_S]
    interval, dump = episodes.job[slot, job, at.INTERVAL_S], episodes.job[slot, job, at.DUMP_S]
    return int(worked_s(elapsed, interval, dump, checkpointed))


@inner
def may_move(lanes: Lanes, episodes: Episodes, lane: int, job: int) -> bool:
    """Whether a job works on instances, or is a stream that waits there for its next batch."""
    phase = lanes.job[lane, job, at.PHASE]
    category = episodes.job[lanes.episode_of_lane[lane], job, at.CATEGORY]
    return bool(phase == at.WORKING or (phase == at.IDLE and category == Category.STREAMING.value))


@inner
def share_after(lanes: Lanes, lane: int, job: int, work_s: int) -> float:
    """Share of the execution done after `work_s` seconds of work on these instances."""
    base = lanes.job_real[lane, job, at.BASE]
    return float(base + (1.0 - base) * work_s / lanes.job[lane, job, at.WORK_S])


@inner
def share_done(lanes: Lanes, episodes: Episodes, lane: int, job: int) -> float:
    """Share of the current execution done now (working), else what is saved."""
    if lanes.job[lane, job, at.PHASE] == at.WORKING:
        work = work_done_s(lanes, episodes, lane, job, lanes.lane[lane, at.NOW_S], False)
        return float(share_after(lanes, lane, job, work))
    return float(lanes.job_real[lane, job, at.SAVED])


@inner
def set_up_s(
    episodes: Episodes,
    offers: Offers,
    slot: int,
    job: int,
    region: int,
    checkpoint_region: int,
    restart_s: int,
) -> int:
    """Seconds from running instances to work: set-up, input data, and the checkpoint if there is one."""
    home, size = episodes.job[slot, job, at.HOME], episodes.job_real[slot, job]
    transfer = size[at.DATA_GB] * offers.seconds_per_gb[home, region]
    if checkpoint_region >= 0:
        transfer += size[at.CHECKPOINT_GB] * offers.seconds_per_gb[checkpoint_region, region]
    return int(restart_s + np.ceil(transfer))
