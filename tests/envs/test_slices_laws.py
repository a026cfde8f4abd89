"""What holds in every episode of the slice world, whatever is decided."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envs.simulation import columns as col
from envs.simulation.arrivals import ArrivalConfig
from envs.simulation.series import StepSeries
from envs.simulation.slices import columns as at
from envs.simulation.slices.config import SliceWorldConfig, WorkloadConfig
from envs.simulation.slices.workload import Workload, draw_workload
from envs.simulation.slices.world import SliceWorld
from envs.simulation.timeline import Timeline
from envs.simulation.world import EpisodeKey

worlds = st.builds(
    SliceWorldConfig,
    capacities=st.just([380, 420, 500]),
    hetero_factors=st.just([70.0, 60.0, 100.0]),
    elastic=st.lists(st.booleans(), min_size=3, max_size=3),
    elastic_step=st.integers(1, 60),
    elastic_max=st.integers(0, 130),
    elastic_window=st.integers(1, 120),
    elastic_threshold=st.floats(0.3, 1.0),
    n_jobs=st.integers(1, 40),
    window=st.integers(1, 5),
    allow_none=st.booleans(),
    strict_fifo=st.booleans(),
    workload=st.builds(
        WorkloadConfig,
        arrivals=st.builds(ArrivalConfig, b=st.integers(1, 40), jobs_mean=st.floats(1.0, 6.0)),
    ),
)
quick = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def play(world: SliceWorld, seed: int) -> tuple[float, list[int]]:
    """Random valid decisions to the end: the return and the jobs in the order of their deployment."""
    rng = np.random.default_rng(seed)
    total, deployed, done = 0.0, [], False
    while not done:
        clusters = world.observation["clusters"][0]
        assert (clusters[:, col.USED] <= clusters[:, col.CAPACITY_NOW]).all()
        assert (clusters[:, col.CAPACITY_NOW] <= clusters[:, col.CAPACITY_MAX]).all()
        last = world.observation["occupation"][0]
        assert last.min() >= 0.0
        assert last.max() <= 1.0
        valid = np.flatnonzero(world.observation["action_mask"][0])
        action = int(rng.choice(valid))
        rewards, dones = world.step(np.array([action]))
        total, done = total + float(rewards[0]), bool(dones[0])
        if action % (world.spec.n_clusters + 1) < world.spec.n_clusters:
            deployed.append(int(world.decided_jobs()[0]))
    return total, deployed


def on_each_slice(series: StepSeries, end: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array([series.at(time) for time in range(end)])


@pytest.mark.real
@quick
@given(config=worlds, seed=st.integers(0, 10_000))
def test_jobs_and_executors_are_conserved(config: SliceWorldConfig, seed: int) -> None:
    key = EpisodeKey(seed, "train", 0)
    workload = draw_workload(config, key)
    world = SliceWorld(config, record=True)
    world.reset([key])
    total, deployed = play(world, seed)

    assert sorted(deployed) == list(range(config.n_jobs))
    timeline = world.timeline()
    assert_executions_are_complete(timeline, workload)
    end = int(timeline.end)
    for cluster, normal in enumerate(config.capacities):
        capacity = on_each_slice(timeline.capacity[cluster], end)
        used = on_each_slice(timeline.used[cluster], end)
        assert (used <= capacity).all()
        assert (used >= 0).all()
        assert capacity.min() >= normal
        assert capacity.max() <= normal + (config.elastic_max if config.elastic[cluster] else 0)
        held = sum(
            segment.executors * (segment.end - segment.start)
            for segment in timeline.segments
            if segment.cluster == cluster
        )
        assert used.sum() == held
        # What was recorded slice by slice is used / capacity.
        latest = world.observation["occupation"][0, cluster][-min(end, 105) :]
        np.testing.assert_array_equal(latest, (used / capacity)[-105:].astype(np.float32))
    assert (world.lanes.cluster[0, :, at.USED] == 0).all()
    assert (world.lanes.cluster[0, :, at.HALTED] == 0).all()

    metrics = world.metrics(0)
    assert np.isclose(total, metrics["s"], rtol=1e-9, atol=1e-6)
    assert len(timeline.misses) == metrics["tmdl"]
    assert world.observation["clusters"][0, :, col.MISSED].sum() == metrics["tmdl"]
    assert (world.values(0, np.array(deployed), world.marks())[:, :2] <= 0.0).all()


def assert_executions_are_complete(timeline: Timeline, workload: Workload) -> None:
    """Every job ran as often as it should, on one cluster, never twice at a time, as long as it takes."""
    runs: dict[int, list[tuple[float, float, int]]] = {}
    for segment in timeline.segments:
        runs.setdefault(segment.job, []).append((segment.start, segment.end, segment.cluster))
    assert sorted(runs) == list(range(workload.n_jobs))
    for job, times in runs.items():
        assert len(times) == workload.executions[job]
        assert len({cluster for _, _, cluster in times}) == 1
        assert times[0][0] >= workload.arrival[job]
        for before, after in itertools.pairwise(times):
            assert before[1] <= after[0]
        for first, last, cluster in times:
            assert last - first == workload.execution[job, cluster]


@quick
@given(config=worlds, seed=st.integers(0, 10_000), other=st.integers(0, 10_000))
def test_the_same_seed_gives_the_same_episode_and_policies_change_no_workload(
    config: SliceWorldConfig, seed: int, other: int
) -> None:
    key = EpisodeKey(seed, "test", 3)
    first, second = SliceWorld(config), SliceWorld(config)
    first.reset([key])
    second.reset([key])
    before = [table.copy() for table in first.tables]
    assert play(first, seed) == play(second, seed)
    assert dict(first.metrics(0)) == dict(second.metrics(0))
    second.reset([key])
    play(second, other)
    for table, original, again in zip(first.tables, before, second.tables, strict=True):
        np.testing.assert_array_equal(table, original)
        np.testing.assert_array_equal(table, again)


def test_keys_name_different_workloads() -> None:
    config = SliceWorldConfig(n_jobs=20)
    world = SliceWorld(config)
    keys = [
        EpisodeKey(1, "train", 0),
        EpisodeKey(1, "train", 1),
        EpisodeKey(1, "test", 0),
        EpisodeKey(2, "train", 0),
    ]
    prints = [world.fingerprint(key) for key in keys]
    assert len(set(prints)) == len(keys)
    assert prints == [world.fingerprint(key) for key in keys]


def test_arrivals_and_sizes_come_from_streams_of_their_own() -> None:
    key = EpisodeKey(9, "train", 0)
    config = SliceWorldConfig(n_jobs=50)
    rarer = dataclasses.replace(config, workload=WorkloadConfig(arrivals=ArrivalConfig(b=40)))
    one, two = draw_workload(config, key), draw_workload(rarer, key)
    assert (one.arrival != two.arrival).any()
    np.testing.assert_array_equal(one.request, two.request)
    np.testing.assert_array_equal(one.uses_peak, two.uses_peak)
