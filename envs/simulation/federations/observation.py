"""Fills the snapshot's base columns for one question about one task of an application."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate

import numpy as np

from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.federations.rounds.application import SERVER, Application, Market
from spotweave.envs.simulation.federations.rounds.decisions import (
    Answer,
    Awaited,
    Cause,
    Leave,
    Placement,
    Question,
    State,
)
from spotweave.envs.simulation.federations.rounds.member import Member
from spotweave.envs.simulation.federations.rounds.running import RunningApplication
from spotweave.envs.simulation.round_estimates import (
    ASK_AGAIN_LEAST_S,
    COLD_S,
    SPIN_UP_S,
    WARM_S,
    RoundEstimates,
    ask_again_s,
    epoch_left_s,
    slack_s,
)
from spotweave.envs.simulation.series import StepSeries
from spotweave.envs.simulation.snapshot import (
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


class ViewEstimates(RoundEstimates):
    """The estimates of an application that runs; times are on each client's first offer.

    A scheduler sees when its tasks start and deliver; it does not see the simulation's means. Everything here
    is measured, but for the relative speeds of offers (instance types are compared before anything runs) and,
    where pre-scheduling has been done (`measured`), the mean times themselves.

    Args:
        view: the application, at its beginning.
        measured: whether pre-scheduling has measured the mean times (Brum 2023, section 6.1).
    """

    def __init__(self, view: RunningApplication, measured: bool) -> None:
        super().__init__(len(view.clients))
        self._view = view
        self._seen_epochs = [0] * len(view.clients)
        self._seen_ready: list[int | None] = [None] * len(view.clients)
        self._measured = measured
        self._factors: dict[tuple[int, int, int | None], float] = {}
        self._alike: dict[tuple[int, int | None], bool] = {}
        """[client, the server's offer] whether all offers of the client take it the same time."""

    def observe(self) -> None:
        """Take in what has happened since the last call; to be called before each decision."""
        for k, client in enumerate(self._view.clients):
            if client.ready_s is not None and client.ready_s != self._seen_ready[k]:
                self._seen_ready[k] = client.ready_s
                assert client.launched_s is not None
                self.note_spin_up(k, client.ready_s - client.launched_s)
            if client.finished_s is not None and client.finished_s != self._seen_epochs[k]:
                self._seen_epochs[k] = client.finished_s
                self._delivered(k, client)

    def _delivered(self, k: int, client: Member) -> None:
        if client.resumed or client.started_s is None or client.finished_s is None or client.offer is None:
            return
        seconds = (client.finished_s - client.started_s) / self._factor(k, client.offer)
        self.note_epoch(k, seconds, client.epochs_here <= 1)

    def _factor(self, k: int, offer: int) -> float:
        """How much longer an epoch takes on this offer than on the client's first one."""
        view = self._view
        first = view.clients[k].allowed[0]
        if offer == first:
            return 1.0
        key = (k, offer, None if view.server is None else view.server.offer)
        if key not in self._factors:
            there, here = (view.expected_epoch_s(k, place, False) for place in (offer, first))
            self._factors[key] = there / here
        return self._factors[key]

    def epoch_on_s(self, k: int, offer: int, cold: bool) -> float | None:
        """Expected seconds of a whole epoch on an offer; None where neither kind was seen.

        Where times were measured beforehand, those stand in for a kind that was never seen.
        """
        if self._measured and self.measured_s(k, COLD_S if cold else WARM_S) is None:
            return self._view.expected_epoch_s(k, offer, cold)
        seconds = self.epoch_s(k, cold)
        return None if seconds is None else seconds * self._factor(k, offer)

    def guessed_epoch_s(self, k: int, offer: int, cold: bool) -> float:
        """The same; for a client that has never delivered, the longest of the others (0 if nobody has)."""
        seconds = self.epoch_on_s(k, offer, cold)
        if seconds is not None:
            return seconds
        view = self._view
        others = [
            known
            for other, client in enumerate(view.clients)
            if (known := self.epoch_on_s(other, client.allowed[0], cold)) is not None
        ]
        return max(others, default=0.0)

    def cold_extra_on_s(self, k: int, offer: int) -> float:
        """What the first epoch on a new instance takes longer; 0 while unknown."""
        extra_s = self.cold_extra_s(k)
        if extra_s is not None:
            return extra_s * self._factor(k, offer)
        if self._measured:
            return self._view.expected_epoch_s(k, offer, True) - self._view.expected_epoch_s(k, offer, False)
        return 0.0

    def spin_up_s(self, k: int, offer: int) -> float:
        """Expected seconds from request to ready: the client's own, another's, or the provider's word."""
        known = self.measured_s(k, SPIN_UP_S)
        if known is not None:
            return known
        seen = [self.measured_s(other, SPIN_UP_S) for other in range(len(self.times))]
        others = [seconds for seconds in seen if seconds is not None]
        return sum(others) / len(others) if others else self._view.expected_spin_up_s(k, offer)

    def server_spin_up_s(self, offer: int) -> float:
        """Expected seconds from the request of a server there until it serves: the provider's word."""
        return self._view.expected_spin_up_s(SERVER, offer)

    def aggregation_s(self, offer: int) -> float:
        """Expected seconds of an aggregation by a server there."""
        return self._view.expected_epoch_s(SERVER, offer, False)

    def finish_s(self, k: int) -> float:
        """When a client that owes a result can deliver it, if it is started now at the latest."""
        view, now_s = self._view, self._view.now_s
        client = view.clients[k]
        offer = self._place(k)
        epoch_s = self.guessed_epoch_s(k, offer, client.epochs_here == 0)
        left_s = epoch_s - client.saved * self.guessed_epoch_s(k, offer, False)
        if client.state is State.TRAINING:
            assert client.started_s is not None
            known = self._measured or bool(self._seen_epochs[k])
            return now_s + float(epoch_left_s(left_s, now_s - client.started_s, known))
        if client.state is State.IDLE:
            return now_s + left_s
        return self._ready_s(k, offer) + left_s

    def _place(self, k: int) -> int:
        """The offer of a client's instance; without one, that where it would deliver soonest.

        Were it a slow one, all clients could wait for each other for ever: each would seem to be the faster.
        """
        view, client = self._view, self._view.clients[k]
        if client.running and client.offer is not None:
            return client.offer
        key = (k, None if view.server is None else view.server.offer)
        if key not in self._alike:
            kinds = {(self._factor(k, place), view.expected_spin_up_s(k, place)) for place in client.allowed}
            self._alike[key] = len(kinds) == 1
        if self._alike[key]:
            return client.allowed[0]
        return min(
            client.allowed,
            key=lambda place: self.guessed_epoch_s(k, place, False) + view.expected_spin_up_s(k, place),
        )

    def _ready_s(self, k: int, offer: int) -> float:
        """When a client without a ready instance has one, if it is started now at the latest."""
        now_s, client = self._view.now_s, self._view.clients[k]
        spin_up_s = self.spin_up_s(k, offer)
        if client.state is State.SPIN_UP and client.launched_s is not None:
            return max(float(now_s), client.launched_s + spin_up_s)
        return now_s + spin_up_s

    def round_left_s(self, but: int) -> float:
        """Expected seconds until the others have delivered what the round waits for (0: nothing)."""
        view = self._view
        return _until(
            view.awaited(),
            lambda k: self.finish_s(k) - view.now_s if k != but and view.clients[k].has_task else None,
        )

    def round_s(self) -> float:
        """Expected seconds of a whole round on warm instances, aggregation included; 0 while unknown."""
        view = self._view
        epochs_s = _until(view.round_needs(), lambda k: self.epoch_on_s(k, self._place(k), False) or 0.0)
        server = view.server
        at = None if server is None else server.offer
        return epochs_s + (view.aggregation_s if at is None else self.aggregation_s(at))


def _until(needs: Sequence[Awaited], seconds: Callable[[int], float | None]) -> float:
    """Seconds until all needs are met, given each client's; None: it will not deliver."""
    longest_s = 0.0
    for clients, results in needs:
        known_s = sorted(s for s in map(seconds, clients) if s is not None)
        if known_s and results:
            longest_s = max(longest_s, known_s[min(results, len(known_s)) - 1])
    return longest_s


# What the past of an offer's availability says, as the snapshot's columns want it.

DAY_S = 86_400
WEEK_S = 7 * DAY_S


class Uptime:
    """Sums over a recorded availability, so that any look at its past takes two bisections.

    Args:
        series: 1.0 where available; times before its first one count as nothing known.
    """

    def __init__(self, series: StepSeries) -> None:
        times: list[int] = series.times_s.tolist()
        ups: list[bool] = (series.values > 0).tolist()
        kept = [k for k in range(len(ups)) if k == 0 or ups[k] != ups[k - 1]]
        self._times = [times[k] for k in kept]
        self._up = [ups[k] for k in kept]
        lengths = [b - a for a, b in zip(self._times, self._times[1:], strict=False)]
        gains = [length if up else 0 for length, up in zip(lengths, self._up, strict=False)]
        self._sums = [0, *accumulate(gains)]
        self._spells = list(accumulate(1 if up else 0 for up in self._up))

    def up(self, time_s: float) -> bool:
        """Whether it is available."""
        return self._up[self._at(time_s)]

    def _at(self, time_s: float) -> int:
        return max(0, bisect_right(self._times, time_s) - 1)

    def _up_s(self, time_s: float) -> float:
        """Seconds up from the first record to `time_s`."""
        at = self._at(time_s)
        return self._sums[at] + (max(0.0, time_s - self._times[at]) if self._up[at] else 0.0)

    def ratio(self, now_s: float) -> float:
        """Share of the latest 24 h (or of what is recorded of them) in which it was available."""
        start_s = max(now_s - DAY_S, self._times[0])
        if now_s <= start_s:
            return float(self.up(now_s))
        return (self._up_s(now_s) - self._up_s(start_s)) / (now_s - start_s)

    def spell_s(self, now_s: float) -> float:
        """Seconds since it last changed."""
        return max(0.0, now_s - self._times[self._at(now_s)])

    def mean_up_s(self, now_s: float) -> float:
        """Mean length of the up-spells (parts of them at the edges) within the latest 7 days; 0 for none."""
        start_s = max(now_s - WEEK_S, self._times[0])
        first, last = self._at(start_s), self._at(now_s)
        count = self._spells[last] - self._spells[first] + (1 if self._up[first] else 0)
        return (self._up_s(now_s) - self._up_s(start_s)) / count if count else 0.0


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
    pair: FloatArray, cluster: FloatArray, k: int, client: Member, offer: int, known: ViewEstimates
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


# One application as policies see it that read observations: each question a row, each action an answer.


class Observed:
    """Writes the questions of one application into a lane of observations.

    Args:
        view: the application while it runs.
        observation: of all lanes, with a window of one.
        lane: which of them is this application's.
        measured: whether the tasks' mean times are known beforehand (pre-scheduling).

    Attributes:
        known: what the application has shown so far.
    """

    def __init__(self, view: RunningApplication, observation: Observation, lane: int, measured: bool) -> None:
        self._view = view
        self._epoch_cv = view.application.epoch_cv
        self._observation = observation
        self._lane = lane
        self._n_offers = observation["clusters"].shape[1]
        self._offers = OfferColumns(view.application, self._n_offers)
        self.known = ViewEstimates(view, measured)

    def show(self, question: Question) -> Leave | None:
        """Show a question. `Leave` where no policy is asked: the client's budget cannot pay for the round."""
        self.known.observe()
        self._offers.fill(self._view, self._observation["clusters"][self._lane])
        fill_task(self._observation, self._lane, question, self._view, self.known)
        return Leave() if self._must_leave(question) else None

    def answer(self, question: Question, action: int) -> Answer:
        """What an action means: an offer from now on, or no instance until the task is asked again."""
        if action < self._n_offers:
            return Placement(action)
        first = self._view.member(question.client).allowed[0]
        if self._observation["jobs"][self._lane, 0, col.EXECUTIONS] == 0:
            return Placement(first, np.inf)
        return Placement(first, self._view.now_s + int(ask_again_s(self._slack_s(question))))

    def _slack_s(self, question: Question) -> float:
        """Until the latest start in time, on the offer that leaves most time."""
        job, pairs = self._observation["jobs"][self._lane, 0], self._observation["pairs"][self._lane, 0]
        clusters = self._observation["clusters"][self._lane]
        owes, left_s, round_s = (float(job[k]) for k in (col.OWES, col.ROUND_LEFT_S, col.ROUND_S))
        return max(
            float(
                slack_s(
                    owes > 0,
                    left_s,
                    round_s,
                    float(clusters[offer, col.LAUNCH_S] + pairs[offer, col.TRANSFER_S]),
                    float(pairs[offer, col.EXECUTION_S]),
                )
            )
            for offer in self._view.member(question.client).allowed
        )

    def _must_leave(self, question: Question) -> bool:
        """Before a round: whether a client's budget cannot pay for it, so that it would lose its work."""
        client = self._view.member(question.client)
        if question.cause is not Cause.ROUND or client.budget_usd is None:
            return False
        left = client.budget_usd - self._view.spent_usd(question.client)
        return not any(
            self._round_usd(offer) <= left
            for offer in client.allowed
            if self._view.available(offer) or client.offer == offer
        )

    def _round_usd(self, offer: int) -> float:
        """What a client pays for the coming round on an offer, with a margin for a late start."""
        pair = self._observation["pairs"][self._lane, 0, offer]
        seconds = float(pair[col.FINISH_S]) + 2 * ASK_AGAIN_LEAST_S
        return (1.0 + 3.0 * self._epoch_cv) * seconds * self._view.usd_hour(offer) / 3600
