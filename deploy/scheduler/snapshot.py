"""Write offers and needs as the snapshot: the live counterpart of a simulator's observation."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spotweave.deploy.model.instances import Offer, hetero_of
from spotweave.deploy.scheduler.needs import Kind, Need
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.guards import GuardRules, hide_lost_deadline, soonest_s
from spotweave.envs.simulation.snapshot import (
    FULLY_SENSITIVE,
    HISTORY_STEPS,
    N_CLUSTER_FIELDS,
    N_JOB_FIELDS,
    N_PAIR_FIELDS,
    RENTED,
    Category,
    FloatArray,
    MaskArray,
    Observation,
    Snapshot,
    encode,
    request_beyond,
)

PROVIDERS = {"aws": 1, "gcp": 2, "azure": 3}  # numbers of `PROVIDER` of what is rented; 0 is what is owned
_CATEGORIES: dict[Kind, Category] = {
    "general": Category.GENERAL,
    "deadline": Category.TIME_CRITICAL,
    "streaming": Category.STREAMING,
    "federated": Category.FEDERATED,
}


def snapshot_of(
    offers: Sequence[Offer],
    needs: Sequence[Need],
    used: Mapping[str, int],
    occupancy: Occupancy,
    transfer_s: Mapping[tuple[str, str], float] | None = None,
) -> Snapshot:
    """A snapshot of base columns; the encoder derives the rest.

    Args:
        offers: the clusters, in a fixed order.
        needs: the tasks that await a decision, by arrival.
        used: instances that run or boot on each offer, by its id.
        occupancy: their history.
        transfer_s: (task's job id, offer id) seconds to move data there beyond `Need.moves`, where known.

    Returns:
        A snapshot with `allow_none`.
    """
    return View(offers, Counter(used), Counter(), occupancy, {}, transfer_s).snapshot(needs)


def _fill_offer(row: FloatArray, k: int, offer: Offer, region: int) -> None:
    row[col.SEQUENCE] = k + 1
    row[col.CAPACITY_NORMAL] = offer.quota if offer.market == "owned" else 0
    row[col.CAPACITY_MAX] = offer.quota
    row[col.CAPACITY_NOW] = offer.quota if offer.available else 0
    row[col.HETERO_FACTOR] = hetero_of(offer.speed)
    row[col.PRICE_USD_HOUR] = offer.price_usd_hour
    row[col.ON_DEMAND_USD_HOUR] = 0.0 if offer.market == "owned" else offer.on_demand_usd_hour
    row[col.IS_SPOT] = float(offer.market == "spot")
    row[col.AVAILABLE] = float(offer.available)
    row[col.UP_RATIO] = offer.up_ratio
    row[col.SPELL_S] = offer.spell_s
    row[col.MEAN_UP_S] = offer.mean_up_s if offer.market == "spot" else 0.0
    row[col.LAUNCH_S] = offer.launch_s
    row[col.NOTICE_S] = offer.notice_s
    row[col.PROVIDER] = 0 if offer.market == "owned" else PROVIDERS.get(offer.provider, RENTED)
    row[col.REGION] = region
    row[col.QUEUES] = float(offer.queues)


def _fill_job(row: FloatArray, need: Need) -> None:
    streaming = need.kind == "streaming"
    row[col.PRESENT] = 1.0
    row[col.CATEGORY] = float(_CATEGORIES[need.kind])
    row[col.EXPECTED_HETERO] = hetero_of(need.reference_speed)
    row[col.SENSITIVITY] = FULLY_SENSITIVE if need.sensitivity is None else need.sensitivity
    row[col.STANDARD_S] = need.standard_s
    row[col.EXECUTIONS] = need.executions_left
    row[col.PERIOD_S] = need.period_s
    row[col.DURATION_S] = (
        need.executions_left * need.period_s if streaming else need.standard_s * (1.0 - need.progress)
    )
    row[col.WAITED_S] = 0.0 if need.running else need.waited_s
    row[col.AGE_S] = need.age_s
    row[col.SLACK_S] = 0.0 if need.slack_s is None else need.slack_s
    row[col.HAS_DEADLINE] = float(need.slack_s is not None)
    row[col.PROGRESS] = need.progress
    row[col.RESTART_S] = need.restart_s
    row[col.CHECKPOINT_INTERVAL_S] = need.period_s if streaming else need.checkpoint_s
    row[col.DATA_GB] = need.data_gb
    row[col.CHECKPOINT_GB] = need.checkpoint_gb
    row[col.INTERRUPTIONS] = need.interruptions
    row[col.RUNNING] = float(need.running)
    row[col.MISSES] = need.misses
    row[col.BACKLOG] = need.backlog
    if need.kind == "federated":
        _fill_round(row, need)


def _fill_round(row: FloatArray, need: Need) -> None:
    about = need.round
    row[col.IDLE] = float(about.idle)
    row[col.IS_SERVER] = float(about.is_server)
    row[col.OWES] = float(about.owes)
    row[col.ROUND_LEFT_S] = about.round_left_s
    row[col.ROUND_S] = about.round_s
    row[col.PERIOD_S] = about.round_s
    row[col.DURATION_S] = need.executions_left * about.round_s
    row[col.COLD_S] = about.cold_s
    row[col.TIME_ERROR_S] = about.time_error_s
    row[col.OTHERS_USD_HOUR] = about.others_usd_hour
    if about.budget_left_usd is not None:
        row[col.HAS_BUDGET] = 1.0
        row[col.BUDGET_LEFT_USD] = max(0.0, about.budget_left_usd)


def _fill_pair(row: FloatArray, need: Need, offer: Offer, transfer_s: float) -> None:
    """The task on an offer. Where it may never run its request exceeds what there is."""
    here = need.here == offer.offer_id
    request = need.resources.instances
    if not here and request <= offer.quota and need.refusal(offer) is not None:
        request = int(request_beyond(offer.quota))
    row[col.REQUEST] = row[col.PEAK_REQUEST] = request
    row[col.DEADLINE_S] = need.allowed_s
    move = need.moves.get(offer.region)
    moved_s, row[col.EGRESS_USD] = (0.0, 0.0) if move is None else move
    row[col.TRANSFER_S] = need.restart_s + transfer_s + moved_s + (need.save_s if need.running else 0.0)
    row[col.HERE] = float(here)
    row[col.EXECUTION_S] = need.left_here_s if here else need.fresh_s(offer)


# What a policy is shown of live tasks: a snapshot without lost deadlines, encoded.


class Row(NamedTuple):
    """What an observation shows of one task: clusters, its job and pairs, and its part of the mask."""

    clusters: FloatArray
    job: FloatArray
    pairs: FloatArray
    mask: MaskArray


@dataclass(frozen=True)
class Observed:
    """An observation of live tasks."""

    observation: Observation  # of a window of tasks
    lost: Sequence[str]  # by row: why the task's deadline can be met nowhere any more; "" where it can

    def row(self, k: int) -> Row:
        """Row of the k-th task."""
        shown = self.observation
        n_places = shown["clusters"].shape[0] + 1
        mask = shown["action_mask"][k * n_places : (k + 1) * n_places]
        return Row(shown["clusters"], shown["jobs"][k], shown["pairs"][k], mask)


def observe(snapshot: Snapshot, needs: Sequence[Need], window: int, rules: GuardRules) -> Observed:
    """Encode a snapshot of some needs, in their order, as policies see it.

    A deadline that nothing can meet any more is not shown (see `guards`); the snapshot is changed.
    """
    lost = []
    for k, need in enumerate(needs[:window]):
        words = ""
        if hide_lost_deadline(snapshot.clusters, snapshot.jobs[k], snapshot.pairs[k], rules):
            allowed_s, least_s = need.allowed_s, soonest_s(snapshot.clusters, snapshot.pairs[k])
            when = f"is in {allowed_s:.0f} s" if allowed_s >= 0 else f"was {-allowed_s:.0f} s ago"
            words = f"the deadline {when} and what is left takes {least_s:.0f} s at best"
        lost.append(words)
    return Observed(encode(snapshot, window), lost)


# What a pass of the scheduler sees of the offers, and what it has given away of them since.


class View:
    """Offers and their use in one pass; see `snapshot_of`.

    Columns are computed once: a task is shown many times before it is decided about.
    """

    def __init__(
        self,
        offers: Sequence[Offer],
        used: Counter[str],
        halted: Counter[str],
        occupancy: Occupancy,
        missed: Mapping[str, int],
        transfer_s: Mapping[tuple[str, str], float] | None = None,
    ) -> None:
        self.offers, self.used, self._halted = offers, used, halted
        self._occupancy, self._missed, self._transfer_s = occupancy, missed, transfer_s or {}
        self.sure = [offer for offer in offers if offer.market != "spot"]
        self._by_id = {offer.offer_id: offer for offer in offers}
        self._rows: dict[int, tuple[Need, tuple[FloatArray, FloatArray]]] = {}

    @cached_property
    def _clusters(self) -> tuple[FloatArray, FloatArray]:
        """(C, N_CLUSTER_FIELDS) of offers apart from their use, and (C, HISTORY_STEPS) of their past."""
        clusters = np.zeros((len(self.offers), N_CLUSTER_FIELDS), np.float32)
        history = np.zeros((len(self.offers), HISTORY_STEPS), np.float32)
        regions: dict[str, int] = {}
        for k, offer in enumerate(self.offers):
            # By name alone: an owned cluster next to a cloud's region is in that region.
            _fill_offer(clusters[k], k, offer, regions.setdefault(offer.region, len(regions)))
            clusters[k, col.MEAN_OCCUPATION] = self._occupancy.mean(offer.offer_id, offer.quota)
            history[k] = self._occupancy.ratios(offer.offer_id, offer.quota)
        return clusters, history

    def snapshot(self, needs: Sequence[Need]) -> Snapshot:
        """Snapshot of these needs and all offers."""
        clusters, history = self._clusters
        clusters = clusters.copy()
        for column, counts in ((col.USED, self.used), (col.HALTED, self._halted), (col.MISSED, self._missed)):
            clusters[:, column] = [counts.get(offer.offer_id, 0) for offer in self.offers]
        jobs = np.zeros((len(needs), N_JOB_FIELDS), np.float32)
        pairs = np.zeros((len(needs), len(self.offers), N_PAIR_FIELDS), np.float32)
        for k, need in enumerate(needs):
            jobs[k], pairs[k] = self._rows_of(need)
            if need.kind == "federated":
                self._keep_from_queues(need, pairs[k])
        return Snapshot(clusters, history, jobs, pairs, allow_none=True)

    def _keep_from_queues(self, need: Need, pairs: FloatArray) -> None:
        """A client does not queue: others of its training may hold what it waits for, and wait for it."""
        for k, offer in enumerate(self.offers):
            full = self.used[offer.offer_id] + need.resources.instances > offer.quota
            if offer.queues and full and offer.offer_id != need.here:
                beyond = max(need.resources.instances, int(request_beyond(offer.quota)))
                pairs[k, [col.REQUEST, col.PEAK_REQUEST]] = beyond

    def _rows_of(self, need: Need) -> tuple[FloatArray, FloatArray]:
        """(N_JOB_FIELDS,) of a task and (C, N_PAIR_FIELDS) of it on each offer."""
        known = self._rows.get(id(need))
        if known is None:
            job = np.zeros(N_JOB_FIELDS, np.float32)
            pairs = np.zeros((len(self.offers), N_PAIR_FIELDS), np.float32)
            _fill_job(job, need)
            for row, offer in zip(pairs, self.offers, strict=True):
                further_s = self._transfer_s.get((need.key.job_id, offer.offer_id), 0.0)
                _fill_pair(row, need, offer, further_s)
            known = need, (job, pairs)
            self._rows[id(need)] = known  # which keeps the need, so that its id stays its own
        return known[1]

    def offer(self, offer_id: str) -> Offer:
        """By its id. Raises KeyError."""
        return self._by_id[offer_id]

    def take(self, offer_id: str, instances: int) -> None:
        """What a task was given is not there for the next one."""
        offer = self.offer(offer_id)
        waits = offer.queues and self.used[offer_id] + instances > offer.quota
        (self._halted if waits else self.used)[offer_id] += instances


# How full each offer has been lately: the history that snapshots show.

SAMPLE_S = 300.0  # between two samples, as in the simulated market
MEAN_STEPS = 100


class Occupancy:
    """The latest `HISTORY_STEPS` samples of used instances by offer, at whole multiples of `SAMPLE_S`."""

    def __init__(self) -> None:
        self._samples: dict[str, deque[int]] = {}
        self._taken = 0
        self._next_s: float | None = None
        self._used: Mapping[str, int] = {}

    @classmethod
    def of(cls, histories: Mapping[str, Iterable[int]]) -> Occupancy:
        """With given samples of used instances by offer, the latest last."""
        made = cls()
        for offer, history in histories.items():
            made._samples[offer] = deque(history, maxlen=HISTORY_STEPS)
            made._taken = max(made._taken, len(made._samples[offer]))
        return made

    def sample(self, now_s: float) -> None:
        """Take every sample that is due up to `now_s`: of what was in use since the latest `hold`."""
        if self._next_s is None:
            self._next_s = math.ceil(now_s / SAMPLE_S) * SAMPLE_S
        while self._next_s <= now_s:
            for offer in {*self._samples, *self._used}:
                ring = self._samples.setdefault(offer, deque(maxlen=HISTORY_STEPS))
                ring.append(self._used.get(offer, 0))
            self._taken += 1
            self._next_s += SAMPLE_S

    def hold(self, used: Mapping[str, int]) -> None:
        """This many instances are in use on each offer from now on; those left out have none."""
        self._used = dict(used)

    def ratios(self, offer: str, quota: int) -> NDArray[np.float32]:
        """(HISTORY_STEPS,) used / quota within 0..1, latest last, 0 before the first sample."""
        row = np.zeros(HISTORY_STEPS, np.float32)
        ring = self._samples.get(offer)
        if ring and quota > 0:
            row[HISTORY_STEPS - len(ring) :] = np.minimum(1.0, np.array(ring, np.float32) / quota)
        return row

    def mean(self, offer: str, quota: int) -> float:
        """Mean ratio of the latest 100 samples, those among them in which the offer was not used yet."""
        ring = self._samples.get(offer)
        if not ring or quota <= 0:
            return 0.0
        latest = list(ring)[-MEAN_STEPS:]
        return min(1.0, sum(latest) / (min(self._taken, MEAN_STEPS) * quota))
