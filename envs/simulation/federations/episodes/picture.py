"""Fills the snapshot's base columns for one question about one task of an application."""

from __future__ import annotations

import numpy as np

from envs.simulation import columns as col
from envs.simulation.federations.episodes.estimates import ViewEstimates
from envs.simulation.federations.episodes.uptime import Uptime
from envs.simulation.federations.rounds.application import Application, Market
from envs.simulation.federations.rounds.decisions import Question
from envs.simulation.federations.rounds.member import Member
from envs.simulation.federations.rounds.running import RunningApplication
from envs.simulation.federations.rounds.server import SERVER
from envs.simulation.snapshot import (
    FULLY_SENSITIVE,
    N_CLUSTER_FIELDS,
    REFERENCE_HETERO,
    RENTED,
    Category,
    FloatArray,
    Observation,
    derive_into,
    request_beyond,
)

_NOW = (col.PRICE_USD_HOUR, col.AVAILABLE)
_PAST = (col.UP_RATIO, col.SPELL_S, col.MEAN_UP_S)
PAST_EVERY_S = 60
"""What the past of an offer says is looked up again this often."""


class OfferColumns:
    """The columns of an application's offers.

    Args:
        application: whose offers.
        n_offers: rows to fill; those beyond the application's offers are never available.
    """

    def __init__(self, application: Application, n_offers: int) -> None:
        self._application = application
        self._uptime = [
            None if offer.availability is None else Uptime(offer.availability) for offer in application.offers
        ]
        zones = list(dict.fromkeys(offer.zone for offer in application.offers))
        tasks = float(len(application.clients) + 1)
        self._fixed = np.zeros((n_offers, N_CLUSTER_FIELDS), np.float32)
        for k, offer in enumerate(application.offers):
            row = self._fixed[k]
            row[col.SEQUENCE] = k + 1
            row[col.CAPACITY_MAX] = tasks
            # Epoch times are given by client and offer: how much faster one is stands in the pairs alone.
            row[col.HETERO_FACTOR] = REFERENCE_HETERO
            row[col.PROVIDER] = RENTED
            row[col.IS_SPOT] = float(offer.market is Market.SPOT)
            row[col.REGION] = zones.index(offer.zone)
            row[col.ON_DEMAND_USD_HOUR] = self._listed(offer.zone)
            row[col.UP_RATIO] = 1.0
            row[col.MEAN_UP_S] = offer.mean_time_to_interruption_s or 0.0
        self._past_at_s = -PAST_EVERY_S

    def _listed(self, zone: str) -> float:
        """The on-demand price next to an offer, else the lowest there is; 0 for none."""
        listed = {
            offer.zone: offer.tariff.usd_hour(0)
            for offer in self._application.offers
            if offer.market is Market.ON_DEMAND
        }
        return listed.get(zone, min(listed.values(), default=0.0))

    def _look_back(self, now_s: int) -> None:
        for k, uptime in enumerate(self._uptime):
            if uptime is not None:
                past = (uptime.ratio(now_s), uptime.spell_s(now_s), uptime.mean_up_s(now_s))
                self._fixed[k, _PAST] = past

    def fill(self, view: RunningApplication, clusters: FloatArray) -> None:
        """Overwrite `clusters` (C, N_CLUSTER_FIELDS) with the offers as they are now."""
        if view.now_s - self._past_at_s >= PAST_EVERY_S:
            self._past_at_s = view.now_s
            self._look_back(view.now_s)
        clusters[:] = self._fixed
        n = len(view.offers)
        clusters[:n, _NOW] = [(view.usd_hour(k), view.available(k)) for k in range(n)]
        clusters[:, col.CAPACITY_NOW] = clusters[:, col.CAPACITY_MAX] * clusters[:, col.AVAILABLE]
        for client in view.clients if view.server is None else [*view.clients, view.server]:
            if client.running and client.offer is not None:
                clusters[client.offer, col.USED] += 1.0


def fill_task(
    observation: Observation, lane: int, question: Question, view: RunningApplication, known: ViewEstimates
) -> None:
    """Write the task that is asked about into row 0 of a lane, then derive columns and mask.

    The clusters of the lane must have been filled. The window has one row: one question, one task.
    """
    k = question.client
    client = view.member(k)
    job = observation["jobs"][lane, 0]
    pairs = observation["pairs"][lane, 0]
    clusters = observation["clusters"][lane]
    job[:] = 0.0
    pairs[:] = 0.0
    serves = k == SERVER
    done = view.round_begun_s is not None and not client.has_task and not serves
    rounds_left = view.rounds - view.round_index - int(done)
    home = client.offer if client.offer is not None else client.allowed[0]
    warm_s = known.epoch_on_s(k, home, False) or 0.0
    round_s = known.round_s()
    job[col.PRESENT] = 1.0
    job[col.CATEGORY] = float(Category.FEDERATED)
    job[col.EXPECTED_HETERO] = REFERENCE_HETERO
    job[col.SENSITIVITY] = FULLY_SENSITIVE
    job[col.STANDARD_S] = warm_s
    job[col.EXECUTIONS] = rounds_left
    job[col.PERIOD_S] = round_s
    job[col.DURATION_S] = rounds_left * round_s
    if client.running and client.finished_s is not None:
        job[col.WAITED_S] = view.now_s - client.finished_s
    job[col.AGE_S] = view.now_s
    job[col.PROGRESS] = client.saved if client.has_task else 0.0
    job[col.IDLE] = float(client.running)
    job[col.IS_SERVER] = float(serves)
    job[col.OWES] = float(client.has_task or serves)
    job[col.ROUND_LEFT_S] = 0.0 if serves else max(0.0, known.round_left_s(k))
    job[col.ROUND_S] = round_s
    job[col.TIME_ERROR_S] = known.error_s(k)
    job[col.COLD_S] = known.cold_extra_on_s(k, home)
    if client.budget_usd is not None:
        job[col.HAS_BUDGET] = 1.0
        job[col.BUDGET_LEFT_USD] = max(0.0, client.budget_usd - view.spent_usd(k))
    others = view.clients if view.server is None else [*view.clients, view.server]
    job[col.OTHERS_USD_HOUR] = sum(
        view.usd_hour(other.offer)
        for other in others
        if other is not client and other.running and other.offer is not None
    )
    pairs[:, col.REQUEST] = pairs[:, col.PEAK_REQUEST] = request_beyond(float(clusters[0, col.CAPACITY_MAX]))
    for offer in client.allowed:
        _fill_pair(pairs[offer], clusters[offer], k, client, offer, known)
        pairs[offer, col.EGRESS_USD] = view.message_usd(k, offer)
    observation["action_mask"][lane] = 0
    derive_into(
        clusters,
        observation["jobs"][lane],
        observation["pairs"][lane],
        not _waited_for(question, view, observation, lane),
        observation["action_mask"][lane],
    )


def _waited_for(question: Question, view: RunningApplication, observation: Observation, lane: int) -> bool:
    """Whether all others wait for this task: it may not wait too, or an application could stand still."""
    if question.client == SERVER:
        return True
    client = view.clients[question.client]
    if not client.has_task or any(
        other.running and other.has_task for k, other in enumerate(view.clients) if k != question.client
    ):
        return False
    pairs, clusters = observation["pairs"][lane, 0], observation["clusters"][lane]
    soonest = (
        min(
            clusters[k, col.LAUNCH_S] + pairs[k, col.EXECUTION_S] for k in client.allowed if view.available(k)
        )
        if any(view.available(k) for k in client.allowed)
        else float("inf")
    )
    return bool(soonest >= observation["jobs"][lane, 0, col.ROUND_LEFT_S])


def _fill_pair(
    pair: FloatArray,
    cluster: FloatArray,
    k: int,
    client: Member,
    offer: int,
    known: ViewEstimates,
) -> None:
    """The client on an offer that it may rent; on the others its request exceeds what there is."""
    here = client.running and client.offer == offer
    if k == SERVER:
        cluster[col.LAUNCH_S] = known.server_spin_up_s(offer)
        pair[col.REQUEST] = pair[col.PEAK_REQUEST] = 1.0
        pair[col.EXECUTION_S] = known.aggregation_s(offer)
        pair[col.HERE] = float(here)
        return
    cold = not here or client.epochs_here == 0
    whole_s = known.guessed_epoch_s(k, offer, cold)
    done_s = client.saved * known.guessed_epoch_s(k, offer, False) if client.has_task else 0.0
    cluster[col.LAUNCH_S] = known.spin_up_s(k, offer)
    pair[col.REQUEST] = pair[col.PEAK_REQUEST] = 1.0
    pair[col.EXECUTION_S] = max(0.0, whole_s - done_s)
    pair[col.HERE] = float(here)
