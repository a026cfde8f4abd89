"""From recorded stretches to a `SpotModel`: fit, chain, plan."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from agents.settings import SpotSettings
from agents.spot.fit import SpotTicks, chain, fit
from agents.spot.model import SpotModel
from agents.spot.plan import plan

WORK_STEP_S = 3600


def learn(
    stretches: Sequence[SpotTicks],
    settings: SpotSettings,
    tick_s: int,
    work_s: int,
    slack_s: int,
    restarts_s: Sequence[int],
) -> SpotModel:
    """The model that follows from recorded stretches.

    Args:
        stretches: each begins without a memory, as a job does.
        settings: buckets and the price of an interruption.
        tick_s: length of a tick.
        work_s: most work of a job.
        slack_s: most time until the deadline beyond the work.
        restarts_s: overheads of a start to plan for.
    """
    crowd = 1 if all(part.has_spot.shape[1] == 1 for part in stretches) else settings.crowd
    shape = settings.hazard_buckets, settings.return_buckets, settings.quality_buckets
    beliefs = fit(list(stretches), tick_s, settings.risk, shape, crowd)
    price, goes_on, interrupted = chain(list(stretches), beliefs)
    step = max(1, WORK_STEP_S // tick_s)
    n_work, n_slack = -(-work_s // tick_s), max(1, slack_s // tick_s)
    tables = [
        plan(n_work, n_slack, restart_s / tick_s, price, goes_on, interrupted, step)
        for restart_s in restarts_s
    ]
    return SpotModel(beliefs, np.array(restarts_s, np.int64), np.stack(tables), step * tick_s)
