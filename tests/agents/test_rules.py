"""The rules on hand-made observations: every expected choice is computed by hand in the comments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from spotweave.agents.rules import RULES, make_rule
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.snapshot import Category, Observation, derive_into, empty_observation

Row = Mapping[str, float]

OWNED: Row = {"CAPACITY_NOW": 1000, "AVAILABLE": 1, "QUEUES": 1}
GENERAL: Row = {"CATEGORY": Category.GENERAL, "STANDARD_S": 100, "EXECUTIONS": 1}
CRITICAL: Row = {"CATEGORY": Category.TIME_CRITICAL, "STANDARD_S": 100, "EXECUTIONS": 1, "HAS_DEADLINE": 1}
ASK: Row = {"REQUEST": 100, "PEAK_REQUEST": 100, "EXECUTION_S": 100, "DEADLINE_S": 150}


def observe(
    clusters: Sequence[Row], jobs: Sequence[Row], pairs: Sequence[Sequence[Row]], allow_none: bool = False
) -> Observation:
    """An observation with a spare job row, from columns by name; derived columns are derived."""
    observation = empty_observation(len(jobs) + 1, len(clusters))
    for c, cluster in enumerate(clusters):
        row = {"SEQUENCE": c + 1, **cluster}
        row.setdefault("CAPACITY_NORMAL", row.get("CAPACITY_NOW", 0.0))
        row.setdefault("CAPACITY_MAX", row.get("CAPACITY_NOW", 0.0))
        for name, value in row.items():
            observation["clusters"][c, getattr(col, name)] = value
    for j, job in enumerate(jobs):
        for name, value in {"PRESENT": 1, **job}.items():
            observation["jobs"][j, getattr(col, name)] = value
        for c, pair in enumerate(pairs[j]):
            for name, value in pair.items():
                observation["pairs"][j, c, getattr(col, name)] = value
    derive_into(
        observation["clusters"],
        observation["jobs"],
        observation["pairs"],
        allow_none,
        observation["action_mask"],
    )
    return observation


def pick(
    name: str, observation: Observation, parameters: Mapping[str, float] | None = None
) -> tuple[int, int]:
    """(job, cluster) that the rule chooses; the cluster number C means none."""
    n_clusters = len(observation["clusters"])
    rule = make_rule(name, parameters)
    rule.begin(0, 7)
    action = rule.act(observation)
    assert observation["action_mask"][action] == 1
    return divmod(action, n_clusters + 1)


def three_clusters(used: Sequence[float] = (0, 0, 0)) -> list[dict[str, float]]:
    # On average free: (1 - .5) * 1000 = 500, (1 - .4) * 500 = 300, (1 - .6) * 2000 = 800.
    capacities, occupations = (1000, 500, 2000), (0.5, 0.4, 0.6)
    return [
        {**OWNED, "CAPACITY_NOW": capacity, "MEAN_OCCUPATION": occupation, "USED": busy}
        for capacity, occupation, busy in zip(capacities, occupations, used, strict=True)
    ]


def two_jobs() -> Observation:
    # Mean requests: job 0: (100 + 100 + 190) / 3 = 130, job 1: (90 + 100 + 80) / 3 = 90.
    return observe(
        three_clusters(),
        [GENERAL, GENERAL],
        [[{**ASK, "REQUEST": r} for r in (100, 100, 190)], [{**ASK, "REQUEST": r} for r in (90, 100, 80)]],
    )


@pytest.mark.parametrize(
    ("name", "expected"), [("sf_p", (1, 1)), ("lf_p", (0, 1)), ("sf_e", (1, 2)), ("lf_e", (0, 2))]
)
def test_the_smallest_or_largest_job_goes_to_the_least_utilised_or_most_available_cluster(
    name: str, expected: tuple[int, int]
) -> None:
    assert pick(name, two_jobs()) == expected


def test_maf_divides_the_available_executors_by_the_request() -> None:
    # Job 0 alone: 500 / 100 = 5, 300 / 100 = 3, 800 / 190 = 4.2 -> cluster 0, where SF-E would take 2.
    pairs = [[{**ASK, "REQUEST": r} for r in (100, 100, 190)]]
    assert pick("maf", observe(three_clusters(), [GENERAL], pairs)) == (0, 0)
    # Job 1 of the two: 500 / 90 = 5.6, 300 / 100 = 3, 800 / 80 = 10.
    assert pick("maf", two_jobs()) == (1, 2)


@pytest.mark.parametrize("name", [name for name in RULES if name != "random"])
def test_the_first_to_arrive_wins_a_tie_between_jobs(name: str) -> None:
    observation = observe(three_clusters(), [GENERAL, GENERAL], [[ASK] * 3, [ASK] * 3])
    assert pick(name, observation)[0] == 0


def test_eft_weighs_finish_against_waiting_and_load() -> None:
    # Cluster 0: 80/100 + 3 * [100 > 50 free] + .2 * .95 = 3.99; cluster 1: 1.1 + .2 * .5 = 1.2;
    # cluster 2: 1.15 + .2 * 0.1 = 1.17.
    clusters = [{**OWNED, "USED": 950}, {**OWNED, "MEAN_OCCUPATION": 0.5}, {**OWNED, "USED": 100}]
    pairs = [[{**ASK, "EXECUTION_S": s} for s in (80, 110, 115)]]
    observation = observe(clusters, [GENERAL], pairs)
    assert pick("eft", observation) == (0, 2)
    # Without load: 3.8, 1.1, 1.15. Without either: .8 is smallest.
    assert pick("eft", observation, {"load": 0.0}) == (0, 1)
    assert pick("eft", observation, {"load": 0.0, "no_fit": 0.0}) == (0, 0)


def test_eft_counts_launch_and_transfer() -> None:
    # Finish ratio: (100 + 60 s launch) / 100 = 1.6 against 150 / 100 = 1.5.
    clusters = [{**OWNED, "LAUNCH_S": 60}, OWNED]
    observation = observe(clusters, [GENERAL], [[ASK, {**ASK, "EXECUTION_S": 150}]])
    assert pick("eft", observation) == (0, 1)


def test_deadline_safe_avoids_missing_and_waiting_before_anything_else() -> None:
    # Cluster 0: IH (200 > 150), idle: 10 + 2 * 2 + 0; 1, no room: 10 + 2 * 1 + .01; 2: 2 + .7.
    clusters = [OWNED, {**OWNED, "CAPACITY_NOW": 100, "USED": 1}, {**OWNED, "USED": 700}]
    pairs = [[{**ASK, "EXECUTION_S": 200}, ASK, ASK]]
    observation = observe(clusters, [CRITICAL], pairs)
    assert pick("deadline_safe", observation) == (0, 2)
    # Without barriers: 4, 2.01, 2.7; without the ratio as well: 0, .01, .7.
    open_gates = {"improper": 0.0, "no_fit": 0.0}
    assert pick("deadline_safe", observation, open_gates) == (0, 1)
    assert pick("deadline_safe", observation, {**open_gates, "ratio": 0.0}) == (0, 0)
    # A general job has no deadline to miss: 4, 12.01, 2.7; with half the weight on the ratio 1, 10.51, 1.2.
    assert pick("deadline_safe", observe(clusters, [GENERAL], pairs)) == (0, 2)
    assert pick("deadline_safe", observe(clusters, [GENERAL], pairs), {"ratio": 0.5}) == (0, 0)


def test_tuned_rule_reproduces_its_cost_by_hand() -> None:
    # A: exec ratio 1.3, free 1000: 6.5 + .12 * 0 = 6.5.
    # B: ratio 0.9, free 300, load .7: 4.5 + .084 + 5 * (.7 - .631) * tc = 4.929 (tc 1), 4.6875 (tc .3).
    # C: ratio 0.8, free 80 < .89 * 100, load .92: 4 + .1104 + tc * (34.4 + 5 * .289) = 39.96 / 14.86.
    clusters = [OWNED, {**OWNED, "USED": 400, "HALTED": 300}, {**OWNED, "USED": 920}]
    pairs = [[{**ASK, "EXECUTION_S": s} for s in (130, 90, 80)]]
    critical = observe(clusters, [CRITICAL], pairs)
    assert pick("tuned", critical) == (0, 1)
    # Halved peaks: C's 80 free cover .89 * 50. C costs 4 + .1104 + 5 * .289 = 5.5554, still above B.
    half = [[{**pair, "PEAK_REQUEST": 50} for pair in pairs[0]]]
    assert pick("tuned", observe(clusters, [CRITICAL], half)) == (0, 1)
    # For a general job C costs 4 + .1104 + .3 * 1.445 = 4.5439, below B's 4.6875.
    assert pick("tuned", observe(clusters, [GENERAL], half)) == (0, 2)


def test_tuned_rule_counts_improper_heterogeneity_per_execution() -> None:
    # IH on cluster 0 (deadline 80 < 90): 4.5 + .24 * n against 5.2: 4.98 for n = 2, 5.22 for n = 3.
    pairs = [[{**ASK, "EXECUTION_S": 90, "DEADLINE_S": 80}, {**ASK, "EXECUTION_S": 104}]]
    for executions, cluster in ((2, 0), (3, 1)):
        job = {**CRITICAL, "CATEGORY": Category.STREAMING, "EXECUTIONS": executions}
        assert pick("tuned", observe([OWNED, OWNED], [job], pairs)) == (0, cluster)


def test_ih_filter_takes_most_free_executors_among_proper_clusters() -> None:
    # Free: 900, 400, 600; cluster 0 is improper.
    clusters = [{**OWNED, "USED": 100}, {**OWNED, "USED": 300, "HALTED": 300}, {**OWNED, "USED": 400}]
    pairs = [[{**ASK, "EXECUTION_S": 200}, ASK, ASK]]
    assert pick("ih_filter", observe(clusters, [CRITICAL], pairs)) == (0, 2)
    improper = [[{**ASK, "EXECUTION_S": 200}] * 3]
    assert pick("ih_filter", observe(clusters, [CRITICAL], improper)) == (0, 0)


def test_half_free_adds_half_of_what_is_free_now_to_half_of_the_mean() -> None:
    # Free now 200, 400, 900; on average 500, 300, 800 -> 350, 350, 850 / now only 200, 400, 900.
    clusters = three_clusters(used=(800, 100, 1100))
    assert pick("half_free", observe(clusters, [CRITICAL], [[ASK] * 3])) == (0, 2)
    # Without the third cluster the first two tie, and the first wins; more weight on now prefers the second.
    first_two = observe(clusters[:2], [CRITICAL], [[ASK] * 2])
    assert pick("half_free", first_two) == (0, 0)
    assert pick("half_free", first_two, {"now": 0.6}) == (0, 1)


def test_half_free_goes_where_the_peak_fits_if_it_fits_anywhere() -> None:
    # The third cluster is away; the first two tie at 350 and the first wins. Free now: 200 and 400, so a peak
    # of 201 fits the second only, and one of 401 neither: then the tie is all that counts again.
    clusters = three_clusters(used=(800, 100, 1100))
    clusters[2]["AVAILABLE"] = 0
    for peak, cluster in ((200, 0), (201, 1), (400, 1), (401, 0)):
        pairs = [[{**ASK, "PEAK_REQUEST": peak}] * 3]
        assert pick("half_free", observe(clusters, [CRITICAL], pairs)) == (0, cluster)


def test_half_free_takes_jobs_with_deadlines_first_and_the_smallest_of_them() -> None:
    asks = (50, 90, 80, 80)
    pairs = [[{**ASK, "REQUEST": asked}] * 2 for asked in asks]
    jobs = [GENERAL, CRITICAL, CRITICAL, CRITICAL]
    assert pick("half_free", observe([OWNED, OWNED], jobs, pairs))[0] == 2
    assert pick("half_free", observe([OWNED, OWNED], [GENERAL] * 4, pairs))[0] == 0


def test_committed_weighs_what_lacks_against_what_stays_free() -> None:
    # A streaming job: 30 * 10 - 400 = -100 and 30 * 12 - 450 = -90, so the first; time-critical, at 7 an
    # executor: 70 - 400 = -330 and 84 - 450 = -366, so the second.
    clusters = [{**OWNED, "FREE_AHEAD": 400}, {**OWNED, "FREE_AHEAD": 450}]
    pairs = [[{**ASK, "SHORTAGE": 10}, {**ASK, "SHORTAGE": 12}]]
    streaming = {**CRITICAL, "CATEGORY": Category.STREAMING, "PERIOD_S": 200}
    assert pick("committed", observe(clusters, [streaming], pairs)) == (0, 0)
    assert pick("committed", observe(clusters, [CRITICAL], pairs)) == (0, 1)
    # General, at 16: 160 - 400 = -240 and 192 - 450 = -258.
    assert pick("committed", observe(clusters, [GENERAL], pairs)) == (0, 1)
    assert pick("committed", observe(clusters, [GENERAL], pairs), {"general_shortage": 26.0}) == (0, 0)


def test_committed_pays_for_a_peak_that_does_not_fit_now_by_category() -> None:
    # 50 executors are free now on the second, and 300 more stay free there: a stream goes (120 < 300), a
    # time-critical job does not (450).
    clusters = [{**OWNED, "FREE_AHEAD": 100}, {**OWNED, "FREE_AHEAD": 400, "USED": 950}]
    streaming = {**CRITICAL, "CATEGORY": Category.STREAMING, "PERIOD_S": 200}
    assert pick("committed", observe(clusters, [streaming], [[ASK, ASK]])) == (0, 1)
    critical = observe(clusters, [CRITICAL], [[ASK, ASK]])
    assert pick("committed", critical) == (0, 0)
    assert pick("committed", critical, {"critical_no_fit": 299.0}) == (0, 1)


def test_round_robin_goes_on_from_its_random_start_and_skips_masked_clusters() -> None:
    clusters = [OWNED, OWNED, {**OWNED, "AVAILABLE": 0}, OWNED]
    observation = observe(clusters, [GENERAL], [[ASK] * 4])
    rule = make_rule("rr")
    rule.begin(0, 7)
    order = [0, 1, 3]
    start = order.index(rule.act(observation))
    assert [rule.act(observation) for _ in range(6)] == [order[(start + k) % 3] for k in range(1, 7)]


def test_random_is_uniform_over_jobs_and_clusters() -> None:
    observation = observe([OWNED] * 3, [GENERAL, GENERAL], [[ASK] * 3, [ASK] * 3])
    rule = make_rule("random")
    rule.begin(0, 1)
    n = 6000
    counts = np.bincount([rule.act(observation) for _ in range(n)], minlength=12)
    valid = observation["action_mask"] == 1
    assert counts[~valid].sum() == 0
    # Six actions of probability 1/6: the standard deviation of a count is sqrt(n * 5 / 36) = 28.9.
    assert np.abs(counts[valid] - n / 6).max() < 4 * 28.9


@pytest.mark.parametrize(
    "name", ["maf", "sf_p", "eft", "tuned", "rr", "random", "ih_filter", "half_free", "committed", "cheapest"]
)
def test_a_running_job_is_left_where_it_is(name: str) -> None:
    job = {**GENERAL, "RUNNING": 1}
    here = {**ASK, "HERE": 1}
    assert pick(name, observe([OWNED, OWNED], [job], [[here, ASK]], allow_none=True)) == (0, 2)


@pytest.mark.parametrize(
    "name", ["maf", "sf_e", "eft", "tuned", "rr", "random", "ih_filter", "committed", "deadline_safe"]
)
def test_rules_for_owned_clusters_never_wait_while_a_cluster_is_valid(name: str) -> None:
    clusters = [{**OWNED, "AVAILABLE": 0}, {**OWNED, "USED": 1000}]
    assert pick(name, observe(clusters, [GENERAL], [[ASK, ASK]], allow_none=True)) == (0, 1)
    clusters[1]["AVAILABLE"] = 0
    assert pick(name, observe(clusters, [GENERAL], [[ASK, ASK]], allow_none=True)) == (0, 2)


def test_an_observation_without_jobs_is_an_error() -> None:
    observation = observe([OWNED], [], [])
    with pytest.raises(ValueError, match="rule maf: the observation offers no valid action, expected a job"):
        make_rule("maf").act(observation)
