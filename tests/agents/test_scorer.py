"""The scorer against a plain forward pass, the tuned rule it starts as, and what must not matter to it."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest

from agents.rules import make_rule
from agents.rules.tuned import TunedParameters, tuned_cost
from agents.scorer import columns as at
from agents.scorer.columns import N_CLUSTER_COLUMNS, N_JOB_COLUMNS, N_PLACE_COLUMNS
from agents.scorer.inputs import count_jobs, describe_clusters, describe_job
from agents.scorer.kernel import WORST
from agents.scorer.policy import ScorerPolicy, cluster_scorer
from agents.vector_policy import Scorer
from envs.simulation import columns as col
from envs.simulation.slices.chapter4 import chapter4
from envs.simulation.slices.config import SliceWorldConfig
from envs.simulation.slices.world import SliceWorld
from envs.simulation.snapshot import (
    N_CLUSTER_FIELDS,
    N_JOB_FIELDS,
    N_PAIR_FIELDS,
    Observation,
    arrays_of,
    take_rows,
)
from envs.simulation.world import EpisodeKey

HIDDEN = 6


def random_scorer(seed: int) -> Scorer:
    rng = np.random.default_rng(seed)
    scorer = cluster_scorer(HIDDEN)
    scorer.set_vector(rng.normal(0.0, 2.0, scorer.layout.size).astype(np.float32))
    return scorer


def seen_observations(config: SliceWorldConfig | None = None, decisions: int = 400) -> list[Observation]:
    """Real observations of an episode that the rule MAF plays (crowded: several jobs wait, queues form)."""
    world = SliceWorld(config, 1)
    world.reset([EpisodeKey(3, "train", 0)])
    rule = make_rule("maf")
    found: list[Observation] = []
    for _ in range(decisions):
        shown = take_rows(world.observation, np.zeros(1, np.int64))
        found.append(cast(Observation, {name: array[0] for name, array in shown.items()}))  # type: ignore[index]
        _, done = world.step(rule.act_lanes(world.observation, np.zeros(1, np.int64)))
        if done[0]:
            break
    return found


def columns_of(observation: Observation, job: int) -> tuple[np.ndarray, np.ndarray]:
    n_clusters = len(observation["clusters"])
    places = np.zeros((n_clusters, N_PLACE_COLUMNS), np.float32)
    seen = np.zeros(N_JOB_COLUMNS, np.float32)
    obs = arrays_of(observation)
    describe_clusters(obs, places)
    describe_job(obs, job, count_jobs(obs), places, seen)
    return seen, places


def forward(vector: np.ndarray, seen: np.ndarray, places: np.ndarray) -> np.ndarray:
    """(C, 2) outputs, as the layout's docstring describes them."""
    parts = np.split(
        vector, np.cumsum([N_JOB_COLUMNS * HIDDEN, N_PLACE_COLUMNS * HIDDEN, HIDDEN, 2 * HIDDEN])
    )
    job_weights = parts[0].reshape(N_JOB_COLUMNS, HIDDEN)
    place_weights = parts[1].reshape(N_PLACE_COLUMNS, HIDDEN)
    hidden = np.maximum(0.0, seen @ job_weights + places @ place_weights + parts[2])
    outputs: np.ndarray = hidden @ parts[3].reshape(2, HIDDEN).T
    outputs[:, 0] += places @ parts[4]
    return outputs


def test_scores_are_the_networks_output_minus_the_rules_cost() -> None:
    scorer = random_scorer(0)
    policy = ScorerPolicy(scorer, "test")
    rule = TunedParameters().vector()
    for observation in seen_observations()[::40]:
        scores = policy.scores(observation)
        assert len(scores) == int((observation["jobs"][:, col.PRESENT] > 0).sum())
        for job, row in enumerate(scores):
            seen, places = columns_of(observation, job)
            expected = forward(scorer.vector, seen, places)[:, 0]
            for c in range(len(row)):
                cost = tuned_cost(arrays_of(observation), job, c, rule)
                assert row[c] == pytest.approx(expected[c] - min(WORST, cost), rel=1e-3, abs=1e-3)


def test_the_choice_takes_the_pair_of_highest_priority_among_the_jobs_best_clusters() -> None:
    scorer = random_scorer(1)
    policy = ScorerPolicy(scorer, "test")
    crowded = [shown for shown in seen_observations() if shown["jobs"][1, col.PRESENT] > 0]
    assert len(crowded) > 50
    for observation in crowded[:50]:
        n_clusters = len(observation["clusters"])
        best, chosen = -np.inf, -1
        for job, row in enumerate(policy.scores(observation)):
            seen, places = columns_of(observation, job)
            c = int(row.argmax())
            request = observation["pairs"][job, :, col.REQUEST].mean()
            priority = 0.3 * forward(scorer.vector, seen, places)[c, 1] - request / 50.0
            if priority > best:
                best, chosen = priority, job * (n_clusters + 1) + c
        assert policy.act(observation) == chosen


def test_one_for_equal_executors_starts_as_the_rule_committed_and_sees_its_columns() -> None:
    scorer = cluster_scorer(HIDDEN, "committed")
    scorer.set_vector(scorer.layout.start(np.random.default_rng(0)))
    policy, rule = ScorerPolicy(scorer, "test"), make_rule("committed")
    shown = seen_observations(chapter4(), 300)
    for observation in shown:
        assert policy.act(observation) == rule.act(observation)
    # The two columns that only it has, with a weight of their own each.
    observation = shown[-1]
    before = policy.scores(observation)[0]
    vector = scorer.vector.copy()
    vector[-2:] = 3.0, -5.0
    scorer.set_vector(vector)
    clusters, pairs = observation["clusters"], observation["pairs"][0]
    free = clusters[:, col.FREE_AHEAD] / clusters[:, col.CAPACITY_NOW]
    lacking = pairs[:, col.SHORTAGE] / pairs[:, col.REQUEST].mean()
    assert np.ptp(free) > 0.01
    np.testing.assert_allclose(policy.scores(observation)[0] - before, 3.0 * free - 5.0 * lacking, atol=1e-4)


@pytest.mark.parametrize("n_clusters", [1, 3, 12])
def test_it_serves_any_number_of_clusters(n_clusters: int) -> None:
    config = SliceWorldConfig(
        capacities=[1500] * n_clusters,
        hetero_factors=np.linspace(70.0, 90.0, n_clusters).tolist(),
        elastic=[False] * n_clusters,
        n_jobs=60,
    )
    policy = ScorerPolicy(random_scorer(3), "test")
    world = SliceWorld(config, 2)
    world.reset([EpisodeKey(0, "train", 0), EpisodeKey(0, "train", 1)])
    active = np.ones(2, np.bool_)
    actions = np.zeros(2, np.int64)
    while active.any():
        lanes = np.flatnonzero(active)
        actions[lanes] = policy.act_lanes(world.observation, lanes)
        _, done = world.step(actions, active)
        active &= ~done
    assert np.isfinite(world.metrics(0)["s"])


def test_columns_worked_out_by_hand() -> None:
    """Two clusters of 1,000 and 3,000 executors; a streaming job of 100 executors, peak 150, of 4 batches."""
    clusters = np.zeros((2, N_CLUSTER_FIELDS), np.float32)
    clusters[:, col.CAPACITY_NORMAL] = [1000, 2800]
    clusters[:, col.CAPACITY_NOW] = [1000, 3000]
    clusters[:, col.CAPACITY_MAX] = [1000, 3100]
    clusters[:, col.USED] = [500, 3000]
    clusters[:, col.HALTED] = [400, 600]
    clusters[:, col.HETERO_FACTOR] = [90, 60]
    clusters[:, col.MEAN_OCCUPATION] = [0.5, 0.5]
    occupation = np.zeros((2, 105), np.float32)
    occupation[:, -20:] = 1.0
    jobs = np.zeros((1, N_JOB_FIELDS), np.float32)
    for field, given in ((col.PRESENT, 1), (col.CATEGORY, 1), (col.EXECUTIONS, 4)):
        jobs[0, field] = given
    jobs[0, [col.STANDARD_S, col.PERIOD_S, col.SENSITIVITY]] = [60, 90, 5]
    jobs[0, col.EXPECTED_HETERO] = 75
    jobs[0, col.PEAK_SLOTS] = 2
    pairs = np.zeros((1, 2, N_PAIR_FIELDS), np.float32)
    pairs[0, :, col.REQUEST] = 100
    pairs[0, :, col.PEAK_REQUEST] = 150
    pairs[0, :, col.EXECUTION_S] = [50, 75]
    pairs[0, :, col.DEADLINE_S] = 70
    pairs[0, :, col.FREE] = [100, -600]
    pairs[0, :, col.EXECUTION_RATIO] = [50 / 60, 75 / 60]
    pairs[0, :, col.IMPROPER] = [0, 1]
    observation: Observation = {
        "clusters": clusters,
        "occupation": occupation,
        "jobs": jobs,
        "pairs": pairs,
        "action_mask": np.ones(3, np.int8),
    }
    seen, places = columns_of(observation, 0)
    expected_job = {
        at.STREAMING: 1.0,
        at.LOG_STANDARD: 0.0,
        at.PERIOD_SLACK: 0.5,
        at.SENSITIVITY: 1.0,
        at.EXPECTED_SPEED: 0.0,
        at.MEAN_REQUEST: 0.5,
        at.BUFFERED: 0.2,
        at.PEAK_SLOTS: 0.5,
        at.MEAN_LOAD: 0.5,
        at.MEAN_FREE: -0.05,
        at.MOST_FREE: 0.1,
        at.SHARE_ROOMY: 0.0,
        at.SHARE_PROPER: 0.5,
        at.GENERAL: 0.0,
    }
    for job_column, value in expected_job.items():
        assert seen[job_column] == pytest.approx(value, abs=1e-6), job_column
    expected_places = {
        at.LOAD_NOW: (1.0, 1.0),
        at.LOAD_10: (1.0, 1.0),
        at.LOAD_30: (20 / 30, 20 / 30),
        at.HALTED: (0.4, 0.2),
        at.FREE: (0.1, -0.2),
        at.EXTENSIBLE: (0.0, 5 * 100 / 3000),
        at.EXTENSION: (0.0, 5 * 200 / 3000),
        at.SPEED: (1.0, -1.0),
        at.UNREST: (1.5, 1.5),
        at.RATIO: (-1 / 6, 0.25),
        at.REGRET: (0.0, 25 / 60),
        at.IMPROPER_EXECUTIONS: (0.0, 0.2),
        at.FITS: (1.0, 0.0),
        at.PEAK_FITS: (0.0, 0.0),
        at.ROOM: (0.0, -700 / 3000),
        at.PEAK_ROOM: (-0.05, -0.25),
        at.PEAK_ROOM_REQUESTS: (-50 / 225, -2.0),
        at.REQUEST: (0.5, 500 / 3000),
        at.SLACK: (1.0, -0.25),
        at.FREE_ABOVE_MEAN: (0.15, -0.15),
        at.STREAMING_RATIO: (50 / 60, 75 / 60),
        at.GENERAL_REGRET: (0.0, 0.0),
        at.SIZE: (np.log(0.5), np.log(1.5)),
    }
    for column, values in expected_places.items():
        assert places[:, column] == pytest.approx(values, abs=1e-5), column
    assert N_CLUSTER_COLUMNS == at.RATIO


def test_without_a_valid_cluster_the_job_waits() -> None:
    policy = ScorerPolicy(random_scorer(6), "test")
    observation = seen_observations(decisions=2)[1]
    observation["action_mask"][:] = 0
    observation["action_mask"][5] = 1
    assert policy.act(observation) == 5
