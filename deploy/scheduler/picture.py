"""From offers and needs to the one snapshot format: the live counterpart of a simulator's observation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from deploy.model.instances import Offer
from deploy.scheduler.needs import Need, hetero_of
from deploy.scheduler.occupancy import Occupancy
from envs.simulation.snapshot import (
    FULLY_SENSITIVE,
    HISTORY_STEPS,
    N_CLUSTER_FIELDS,
    N_JOB_FIELDS,
    N_PAIR_FIELDS,
    RENTED,
    ClusterField,
    FloatArray,
    JobField,
    PairField,
    Snapshot,
    request_beyond,
)

_C, _J, _P = ClusterField, JobField, PairField
PROVIDERS = {"aws": 1, "gcp": 2, "azure": 3}
"""Numbers of `ClusterField.PROVIDER` of what is rented; 0 is what is owned."""


def snapshot_of(
    offers: Sequence[Offer],
    needs: Sequence[Need],
    used: Mapping[str, int],
    occupancy: Occupancy,
    transfer_s: Mapping[tuple[str, str], float] | None = None,
    halted: Mapping[str, int] | None = None,
    missed: Mapping[str, int] | None = None,
) -> Snapshot:
    """A snapshot of base columns; the encoder derives the rest.

    Args:
        offers: the clusters, in a fixed order.
        needs: the tasks that await a decision, by arrival.
        used: instances that run or boot on each offer, by its id.
        occupancy: their history.
        transfer_s: (task's job id, offer id) seconds to move data there beyond `Need.moves`, where known.
        halted: instances that wait inside each offer.
        missed: deadlines missed on each offer so far.

    Returns:
        A snapshot with `allow_none`.
    """
    clusters = np.zeros((len(offers), N_CLUSTER_FIELDS), np.float32)
    history = np.zeros((len(offers), HISTORY_STEPS), np.float32)
    regions: dict[str, int] = {}
    for k, offer in enumerate(offers):
        # By name alone: an owned cluster beside a cloud's region is in that region.
        region = regions.setdefault(offer.region, len(regions))
        _fill_offer(clusters[k], k, offer, used.get(offer.offer_id, 0), region)
        clusters[k, _C.HALTED] = 0 if halted is None else halted.get(offer.offer_id, 0)
        clusters[k, _C.MISSED] = 0 if missed is None else missed.get(offer.offer_id, 0)
        clusters[k, _C.MEAN_OCCUPATION] = occupancy.mean(offer.offer_id, offer.quota)
        history[k] = occupancy.ratios(offer.offer_id, offer.quota)
    jobs = np.zeros((len(needs), N_JOB_FIELDS), np.float32)
    pairs = np.zeros((len(needs), len(offers), N_PAIR_FIELDS), np.float32)
    for j, need in enumerate(needs):
        _fill_job(jobs[j], need)
        for k, offer in enumerate(offers):
            moved_s = 0.0 if transfer_s is None else transfer_s.get((need.key.job_id, offer.offer_id), 0.0)
            _fill_pair(pairs[j, k], need, offer, moved_s)
    return Snapshot(clusters, history, jobs, pairs, allow_none=True)


def _fill_offer(row: FloatArray, k: int, offer: Offer, used: int, region: int) -> None:
    row[_C.SEQUENCE] = k + 1
    row[_C.CAPACITY_NORMAL] = offer.quota if offer.market == "owned" else 0
    row[_C.CAPACITY_MAX] = offer.quota
    row[_C.CAPACITY_NOW] = offer.quota if offer.available else 0
    row[_C.HETERO_FACTOR] = hetero_of(offer.speed)
    row[_C.USED] = used
    row[_C.PRICE_USD_HOUR] = offer.price_usd_hour
    row[_C.ON_DEMAND_USD_HOUR] = 0.0 if offer.market == "owned" else offer.on_demand_usd_hour
    row[_C.IS_SPOT] = float(offer.market == "spot")
    row[_C.AVAILABLE] = float(offer.available)
    row[_C.UP_RATIO] = offer.up_ratio
    row[_C.SPELL_S] = offer.spell_s
    row[_C.MEAN_UP_S] = offer.mean_up_s if offer.market == "spot" else 0.0
    row[_C.LAUNCH_S] = offer.launch_s
    row[_C.NOTICE_S] = offer.notice_s
    row[_C.PROVIDER] = 0 if offer.market == "owned" else PROVIDERS.get(offer.provider, RENTED)
    row[_C.REGION] = region
    row[_C.QUEUES] = float(offer.queues)


def _fill_job(row: FloatArray, need: Need) -> None:
    streaming = need.kind == "streaming"
    row[_J.PRESENT] = 1.0
    row[_J.CATEGORY] = float(need.category)
    row[_J.EXPECTED_HETERO] = hetero_of(need.reference_speed)
    row[_J.SENSITIVITY] = FULLY_SENSITIVE if need.sensitivity is None else need.sensitivity
    row[_J.STANDARD_S] = need.standard_s
    row[_J.EXECUTIONS] = need.executions_left
    row[_J.PERIOD_S] = need.period_s
    row[_J.DURATION_S] = (
        need.executions_left * need.period_s if streaming else need.standard_s * (1.0 - need.progress)
    )
    row[_J.WAITED_S] = 0.0 if need.running else need.waited_s
    row[_J.AGE_S] = need.age_s
    row[_J.SLACK_S] = 0.0 if need.slack_s is None else need.slack_s
    row[_J.HAS_DEADLINE] = float(need.slack_s is not None)
    row[_J.PROGRESS] = need.progress
    row[_J.RESTART_S] = need.restart_s
    row[_J.CHECKPOINT_INTERVAL_S] = need.period_s if streaming else need.checkpoint_s
    row[_J.DATA_GB] = need.data_gb
    row[_J.CHECKPOINT_GB] = need.checkpoint_gb
    row[_J.INTERRUPTIONS] = need.interruptions
    row[_J.RUNNING] = float(need.running)
    row[_J.MISSES] = need.misses
    row[_J.BACKLOG] = need.backlog
    if need.kind == "federated":
        _fill_round(row, need)


def _fill_round(row: FloatArray, need: Need) -> None:
    about = need.round
    row[_J.IDLE] = float(about.idle)
    row[_J.IS_SERVER] = float(about.is_server)
    row[_J.OWES] = float(about.owes)
    row[_J.ROUND_LEFT_S] = about.round_left_s
    row[_J.ROUND_S] = about.round_s
    row[_J.PERIOD_S] = about.round_s
    row[_J.DURATION_S] = need.executions_left * about.round_s
    row[_J.COLD_S] = about.cold_s
    row[_J.TIME_ERROR_S] = about.time_error_s
    row[_J.OTHERS_USD_HOUR] = about.others_usd_hour
    if about.budget_left_usd is not None:
        row[_J.HAS_BUDGET] = 1.0
        row[_J.BUDGET_LEFT_USD] = max(0.0, about.budget_left_usd)


def _fill_pair(row: FloatArray, need: Need, offer: Offer, transfer_s: float) -> None:
    """The task on an offer. Where it may never run its request exceeds what there is."""
    here = need.here == offer.offer_id
    request = need.resources.instances
    if not here and need.refusal(offer) is not None:
        request = max(request, request_beyond(offer.quota))
    row[_P.REQUEST] = row[_P.PEAK_REQUEST] = request
    row[_P.DEADLINE_S] = need.allowed_s
    move = need.moves.get(offer.region)
    moved_s, row[_P.EGRESS_USD] = (0.0, 0.0) if move is None else move
    row[_P.TRANSFER_S] = need.restart_s + transfer_s + moved_s + (need.save_s if need.running else 0.0)
    row[_P.HERE] = float(here)
    if here:
        row[_P.EXECUTION_S] = need.left_here_s
        return
    row[_P.EXECUTION_S] = need.left_s(offer.speed) + need.round.cold_s
