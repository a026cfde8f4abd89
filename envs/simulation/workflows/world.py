"""Workflows as a `QuestionWorld`."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.market.config import PROVIDERS
from spotweave.envs.simulation.questions import QuestionLane, QuestionWorld
from spotweave.envs.simulation.snapshot import (
    FULLY_SENSITIVE,
    N_CLUSTER_FIELDS,
    REFERENCE_HETERO,
    Category,
    FloatArray,
    Observation,
    derive_into,
)
from spotweave.envs.simulation.snapshot import request_beyond as beyond
from spotweave.envs.simulation.workflows.execution import IDLE, NONE, Asking, Execution, Question
from spotweave.envs.simulation.workflows.options import Case, CaseSource, on_demand_usd
from spotweave.envs.simulation.world import EpisodeKey, Segment, Timeline, held, used

_MARKET = [col.AVAILABLE, col.CAPACITY_NOW, col.PRICE_USD_HOUR, col.UP_RATIO, col.SPELL_S, col.MEAN_UP_S]


class Picture:
    """The columns of one execution.

    `CAPACITY_NORMAL` of a place is what is rented there. `LAUNCH_S` is 0 where an idle instance would take
    the step; where an instance itself is asked about, it is what a new one would take.
    `SLACK_S` is the time until a step must have ended for on demand to be able to do the rest, `DURATION_S`
    its upward rank, `BACKLOG` the steps that are ready behind it. A round is what is ready now:
    `ROUND_LEFT_S` is the expected time until an instance becomes idle (of one that is idle: until it is
    wanted), `ROUND_S` until all that are ready would have ended on the instances that there are.

    Args:
        case: what is carried out.
    """

    def __init__(self, case: Case) -> None:
        self._case = case
        fixed = np.zeros((len(case.offers), N_CLUSTER_FIELDS), np.float32)
        on_demand = [c for c, offer in enumerate(case.offers) if offer.market == "on_demand"]
        for c, offer in enumerate(case.offers):
            row = fixed[c]
            same = [k for k in on_demand if case.offers[k].region == offer.region] or on_demand
            row[col.CAPACITY_MAX] = row[col.CAPACITY_NOW] = offer.quota
            row[col.HETERO_FACTOR] = offer.hetero_factor
            row[col.IS_SPOT], row[col.AVAILABLE], row[col.UP_RATIO] = case.spot[c], 1.0, 1.0
            row[col.PROVIDER], row[col.REGION], row[col.QUEUES] = (
                PROVIDERS.index(offer.provider),
                case.region[c],
                1.0,
            )
            if not case.owned[c]:
                row[col.PRICE_USD_HOUR] = case.quotes[c].price_usd_hour(0.0)
                usd_hour = [case.quotes[k].price_usd_hour(0.0) for k in same]
                row[col.ON_DEMAND_USD_HOUR] = min(usd_hour, default=0.0)
        fixed[:, col.SEQUENCE] = np.arange(1, len(case.offers) + 1)
        self._clusters, self._spot = fixed, np.flatnonzero(case.spot).tolist()
        self._beyond = np.array([beyond(offer.quota) for offer in case.offers], np.float32)
        rented = np.where(case.owned, np.inf, case.problem.run_s).min(1)
        self._work_s = np.where(np.isfinite(rented), rented, case.problem.run_s.min(1))
        self._at_s = -1.0

    def show(self, question: Question, execution: Execution, into: Observation, lane: int) -> None:
        """Overwrite the row `lane` of a batch of observations with a question."""
        case, now_s = self._case, execution.now_s
        if now_s != self._at_s:
            self._at_s = now_s
            for c in self._spot:
                quotes, quota = case.quotes[c], case.offers[c].quota
                up = quotes.available(now_s)
                self._clusters[c, _MARKET] = (
                    up,
                    up * quota,
                    quotes.price_usd_hour(now_s),
                    *quotes.habits(now_s),
                )
        clusters, pairs, jobs = into["clusters"][lane], into["pairs"][lane, 0], into["jobs"][lane]
        total, idle = execution.counts()
        clusters[:] = self._clusters
        clusters[:, col.CAPACITY_NORMAL], clusters[:, col.USED] = total, total - idle
        clusters[:, col.LAUNCH_S] = np.where(idle > 0, 0.0, case.launch_s)
        pairs[:] = 0.0
        jobs[0] = 0.0
        row = jobs[0]
        row[col.PRESENT], row[col.CATEGORY] = 1.0, Category.GENERAL
        row[col.EXPECTED_HETERO], row[col.SENSITIVITY] = REFERENCE_HETERO, FULLY_SENSITIVE
        row[col.EXECUTIONS], row[col.HAS_DEADLINE] = execution.steps_left, np.isfinite(case.deadline_s)
        row[col.AGE_S], row[col.INTERRUPTIONS] = now_s, len(execution.lost)
        row[col.OTHERS_USD_HOUR] = sum(
            float(self._clusters[one.place, col.PRICE_USD_HOUR])
            for one in execution.rented()
            if one is not question.instance
        )
        pairs[:, col.REQUEST] = self._beyond
        if question.instance is None:
            self._show_step(question, execution, row, pairs)
        else:
            clusters[:, col.LAUNCH_S] = case.launch_s
            self._show_idle(question, execution, row, pairs)
        pairs[:, col.DEADLINE_S] = row[col.SLACK_S]
        none = question.options is None or question.options.none
        derive_into(clusters, jobs, into["pairs"][lane], none, into["action_mask"][lane])

    def _show_step(
        self, question: Question, execution: Execution, row: FloatArray, pairs: FloatArray
    ) -> None:
        case, step, options = self._case, question.step, question.options
        assert options is not None
        row[col.STANDARD_S], row[col.DURATION_S] = self._work_s[step], case.path_s[step]
        row[col.SLACK_S] = self._left_s(execution) - execution.reserve.tail_s[step]
        row[col.DATA_GB] = case.gb[case.reads[step]].sum()
        later = execution.ready[execution.ready.index(step) :]
        row[col.BACKLOG] = len(later) - 1
        row[col.ROUND_LEFT_S], row[col.ROUND_S] = self._round(execution, later)
        may = case.may[step]
        pairs[may, col.EXECUTION_S] = case.problem.run_s[step, may]
        # Files move while an instance launches.
        pairs[:, col.TRANSFER_S] = np.maximum(0.0, options.files_s - options.launch_s)
        pairs[:, col.EGRESS_USD] = options.egress_usd
        pairs[options.valid, col.REQUEST] = 1.0

    def _show_idle(
        self, question: Question, execution: Execution, row: FloatArray, pairs: FloatArray
    ) -> None:
        assert question.instance is not None
        place = question.instance.place
        row[col.IDLE], row[col.SLACK_S] = 1.0, self._left_s(execution)
        row[col.BACKLOG] = len(execution.ready)
        before = execution.rented()
        kept = sum(one.step == IDLE for one in before[: before.index(question.instance)])
        row[col.ROUND_LEFT_S] = row[col.ROUND_S] = self._wanted_s(execution, kept)
        pairs[place, col.HERE] = pairs[place, col.REQUEST] = 1.0

    def _left_s(self, execution: Execution) -> float:
        deadline_s = self._case.deadline_s
        return deadline_s - execution.now_s if np.isfinite(deadline_s) else 0.0

    def _round(self, execution: Execution, later: list[int]) -> tuple[float, float]:
        """(seconds until an instance becomes idle, until all of `later` would have ended), as expected."""
        now_s = execution.now_s
        busy = [max(now_s, one.end_s) for one in execution.instances if one.step != IDLE]
        free = busy + [now_s for one in execution.instances if one.step == IDLE]
        heapq.heapify(free)
        if not free:
            return self._case.conditions.asks_again_s, float(self._work_s[later].sum())
        last_s = now_s
        for step in later:
            end_s = free[0] + self._work_s[step]
            heapq.heapreplace(free, end_s)
            last_s = max(last_s, end_s)
        return min(busy, default=now_s + self._case.conditions.asks_again_s) - now_s, last_s - now_s

    def _wanted_s(self, execution: Execution, kept: int) -> float:
        """Expected seconds until there are more steps to start than instances, `kept` idle ones counted.

        Only steps that wait for nothing but what runs now are counted; later ones come later.
        """
        case, now_s = self._case, execution.now_s
        ends_s = {one.step: max(now_s, one.end_s) for one in execution.instances if one.step != IDLE}
        followers = {follower for step in ends_s for follower in case.after[step]}
        ready_s = [
            max(ends_s.get(one, now_s) for one in case.before[follower])
            for follower in followers
            if execution.waits_for(follower) == sum(one in ends_s for one in case.before[follower])
        ]
        changes = sorted([(end_s, -1) for end_s in ends_s.values()] + [(when_s, 1) for when_s in ready_s])
        wanted = len(execution.ready)
        for when_s, change in changes:
            wanted += change
            if wanted > kept:
                return when_s - now_s
        return max(0.0, self._left_s(execution))


# An execution as a timeline for pictures: which step ran where, and what was interrupted.


def timeline_of(execution: Execution) -> Timeline:
    """What happened so far. Jobs are the steps, clusters the places; whole seconds."""
    case, now_s = execution.case, execution.now_s
    ran = [(one.step, one.place, one.start_s, one.end_s) for one in execution.attempts]
    ran += [(one.step, one.place, one.start_s, now_s) for one in execution.instances if one.step != IDLE]
    segments = [
        Segment(step, place, start_s, end_s, 1, int(Category.GENERAL), end_s > case.deadline_s)
        for step, place, start_s, end_s in ran
        if end_s > start_s
    ]
    rented = execution.held + [(one.place, one.since_s, now_s) for one in execution.instances]
    return Timeline(
        cluster_names=tuple(offer.name for offer in case.offers),
        time_unit="s",
        end=max(1.0, now_s),
        segments=tuple(sorted(segments, key=lambda segment: segment.start)),
        capacity=tuple(
            held((start, end, 1) for place, start, end in rented if place == c)
            for c in range(len(case.offers))
        ),
        used=used(segments, len(case.offers)),
        price_usd_hour=tuple(quotes.prices for quotes in case.quotes),
        interruptions=tuple(execution.lost),
    )


MISSED_PERCENT = 100.0
"""What a missed deadline adds to the objective: as much as all the work on demand."""
METRICS = (
    "cost_index",
    "cost_usd",
    "missed",
    "makespan_s",
    "interruptions",
    "lost_s",
    "launches",
    "on_demand",
    "egress_usd",
    "unused_usd",
)
COMPONENTS = ("late", "cost")


@dataclass(kw_only=True)
class _Lane(QuestionLane):
    """One episode. `whole_usd` is what all the work costs on demand."""

    execution: Execution
    asking: Asking
    picture: Picture
    whole_usd: float
    question: Question | None = None


class WorkflowWorld(QuestionWorld[_Lane]):
    """N copies of workflows; each question of an `Execution` is one decision.

    Args:
        source: gives every episode its case.
        n_lanes: copies.
    """

    def __init__(self, source: CaseSource, n_lanes: int) -> None:
        self.source = source
        super().__init__(
            n_lanes,
            [offer.name for offer in source.offers],
            (1.0, 1.0),
            name="workflows",
            components=COMPONENTS,
            scales=(10.0, 10.0),
            metrics=METRICS,
        )

    def metrics(self, lane: int) -> Mapping[str, float]:
        """Metrics of the finished episode."""
        state = self._lane(lane)
        execution = state.execution
        late, cost = self._components(state)
        lost_s = sum(one.end_s - one.start_s for one in execution.attempts if not one.whole)
        on_demand = [c for c, offer in enumerate(execution.case.offers) if offer.market == "on_demand"]
        return {
            "cost_index": late + cost,
            "cost_usd": execution.spent_usd(),
            "missed": float(late > 0),
            "makespan_s": execution.now_s,
            "interruptions": float(len(execution.lost)),
            "lost_s": lost_s,
            "launches": float(execution.launches.sum()),
            "on_demand": float(execution.launches[on_demand].sum()),
            "egress_usd": execution.egress_usd,
            "unused_usd": execution.unused_usd(),
        }

    def reward_of_usd(self, lane: int) -> float:
        """See `QuestionWorld`."""
        return 100.0 / self._lane(lane).whole_usd

    def question(self, lane: int) -> Question:
        """What a lane is asked now."""
        question = self._lane(lane).question
        if question is None:
            raise ValueError(f"the episode in lane {lane} has ended: reset it first")
        return question

    def execution(self, lane: int) -> Execution:
        """The execution in a lane."""
        return self._lane(lane).execution

    def timeline(self, lane: int = 0) -> Timeline:
        """What happened in a lane so far."""
        return timeline_of(self._lane(lane).execution)

    def fingerprint(self, key: EpisodeKey) -> str:
        """SHA-256 of the workflow, the true run times and the market of an episode."""
        case = self.source.case(key)
        digest = hashlib.sha256(repr((case.workflow, case.offers, case.conditions)).encode())
        digest.update(case.actual.tobytes())
        for quotes in case.quotes:
            digest.update(quotes.digest())
        return digest.hexdigest()

    def _begin(self, key: EpisodeKey, number: int) -> _Lane:
        case = self.source.case(key)
        execution = Execution(case)
        return _Lane(
            key=key,
            execution=execution,
            asking=execution.questions(),
            picture=Picture(case),
            whole_usd=on_demand_usd(case),
        )

    def _advance(self, lane: _Lane, number: int, action: int | None) -> int | None:
        try:
            if action is None:
                lane.question = next(lane.asking)
            else:
                lane.question = lane.asking.send(NONE if action == self.spec.n_clusters else action)
        except StopIteration:
            lane.question = None
            return None
        lane.picture.show(lane.question, lane.execution, self.observation, number)
        return lane.question.step

    def _components(self, lane: _Lane) -> tuple[float, float]:
        """Lateness and cost so far, in per cent of what the work costs on demand."""
        execution = lane.execution
        late = execution.finished and execution.now_s > execution.case.deadline_s + 1e-6
        return MISSED_PERCENT * late, 100 * execution.spent_usd() / lane.whole_usd

    def _objective(self, lane: _Lane) -> float:
        return sum(self._components(lane))
