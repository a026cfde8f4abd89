"""The value of a decision, computed when its job ends (Liu 2022, eq. 4.1, 4.2 and section 5.3)."""

from __future__ import annotations

from numba import njit

from envs.simulation.slices import columns as at
from envs.simulation.slices.state import Lanes, Rules, Tables

COMPONENTS = ("own_misses", "mutual_misses", "delay")


@njit(cache=True, error_model="numpy")
def finish_values(lanes: Lanes, tables: Tables, rules: Rules, i: int, j: int, ratio: float) -> None:
    """Fill the three value components of job j, whose last execution just ended.

    Chapter 5, the decomposition at the end of section 5.3: v1 own misses, v2 misses of the cluster after a
    wait, v3 delay, with R_j = ratio - 1. Improper heterogeneity (IH): the execution time alone exceeds the
    deadline there. Initial competition (IC): the first execution waited.

    Chapter 4, eq. 4.1 (and 4.2, where a general job never misses): -lambda * own misses, -gamma * misses of
    all jobs anywhere from the deployment through the slice of the job's end, its own included, and
    -eta * the mean running time ratio.

    Args:
        lanes: state; `decayed` holds the sums of section 5.3.
        tables: workloads.
        rules: the world's constants.
        i: lane.
        j: job.
        ratio: mean AR / SR of the job.
    """
    job = lanes.job[i, j]
    values = lanes.values[i, j]
    unqueued = float(job[at.MISSED_UNQUEUED])
    if rules.chapter4:
        values[0] = -rules.lam * (unqueued + job[at.MISSED_QUEUED])
        values[1] = -rules.gamma * (lanes.lane[i, at.MISSED_ANYWHERE] - job[at.MISSED_BEFORE])
        values[2] = -rules.eta * ratio
        return
    s = lanes.slot[i]
    c = job[at.CLUSTER]
    pair = tables.pair[s, j, c]
    improper = pair[at.DEADLINE] > 0 and pair[at.EXECUTION] > pair[at.DEADLINE]
    competed = job[at.INITIAL_WAIT] == 1
    delay = ratio - 1.0
    m = 1.0
    psi = 1.0
    scale = rules.p_psi if delay > 0.0 else 1.0 / rules.p_psi
    if improper:
        m *= rules.p_m
        psi *= scale
    if competed:
        m *= rules.p_m
        psi *= scale
    weight = rules.factor[c] * m / tables.job[s, j, at.EXPECTED_HETERO]
    values[0] = -weight * (unqueued + lanes.decayed[i, j, 0])
    values[1] = -weight * lanes.decayed[i, j, 1]
    values[2] = -psi * delay
