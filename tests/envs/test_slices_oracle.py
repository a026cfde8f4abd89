"""The compiled slice world equals the plain one, bit for bit."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from envs.simulation import columns as col
from envs.simulation.arrivals import ArrivalConfig
from envs.simulation.slices.config import SliceWorldConfig, ValueConfig, WorkloadConfig, chapter4
from envs.simulation.slices.workload import draw_workload
from envs.simulation.slices.world import SliceWorld
from envs.simulation.world import EpisodeKey
from tests.oracles.slices import SliceOracle

BASE_PAIRS = [col.REQUEST, col.PEAK_REQUEST, col.EXECUTION_S, col.DEADLINE_S]


def crowded(**changes: object) -> SliceWorldConfig:
    """A small world in which queues form and clusters extend themselves."""
    config = SliceWorldConfig(
        capacities=[400, 450, 500],
        hetero_factors=[70.0, 60.0, 100.0],
        elastic=[False, True, True],
        elastic_step=50,
        elastic_max=120,
        elastic_window=30,
        n_jobs=60,
        window=4,
        workload=WorkloadConfig(arrivals=ArrivalConfig(b=30)),
    )
    return dataclasses.replace(config, **changes)  # type: ignore[arg-type]


def assert_same_episode(config: SliceWorldConfig, key: EpisodeKey, none_share: float = 0.0) -> None:
    """Random decisions, everything compared with ==."""
    world = SliceWorld(config)
    world.reset([key])
    oracle = SliceOracle(config, draw_workload(config, key))
    rng = np.random.default_rng(key.index)
    n_clusters = len(config.capacities)
    decided = []
    while not oracle.finished:
        expected = oracle.observe()
        pairs, clusters = world.observation["pairs"][0], world.observation["clusters"][0]
        # Sums of halves and tenths, added in another order.
        for column, got, wanted in (
            (col.FREE_AHEAD, clusters, expected["clusters"]),
            (col.SHORTAGE, pairs, expected["pairs"]),
        ):
            np.testing.assert_allclose(got[..., column], wanted[..., column], rtol=1e-5, atol=1e-4)
            wanted[..., column] = got[..., column]
        for name in ("clusters", "occupation", "jobs"):
            seen = world.observation[name][0]
            np.testing.assert_array_equal(seen, expected[name], err_msg=f"{name} in slice {oracle.time}")
        np.testing.assert_array_equal(pairs[..., BASE_PAIRS], expected["pairs"][..., BASE_PAIRS])

        position = int(rng.integers(min(len(oracle.buffer), config.window)))
        cluster = n_clusters if rng.random() < none_share else int(rng.integers(n_clusters))
        chosen = None if cluster == n_clusters else cluster
        number = oracle.buffer[position]
        expected_reward = oracle.decide(position, chosen)
        rewards, dones = world.step(np.array([position * (n_clusters + 1) + cluster]))
        assert rewards[0] == expected_reward
        assert dones[0] == oracle.finished
        assert world.decided_jobs()[0] == number
        decided.append(number)
    jobs = np.array(decided)
    assert sorted(set(decided)) == list(range(config.n_jobs))
    values = world.values(0, jobs, world.marks())
    np.testing.assert_array_equal(values, np.array([oracle.values[n] for n in jobs.tolist()]))
    assert dict(world.metrics(0)) == oracle.metrics()


@pytest.mark.parametrize("index", range(12))
def test_small_world_equals_the_oracle(index: int) -> None:
    assert_same_episode(crowded(), EpisodeKey(3, "train", index))


CHANGES: dict[str, Callable[[], SliceWorldConfig]] = {
    "strict_fifo": lambda: crowded(strict_fifo=True),
    "forecast": lambda: crowded(forecast=True),
    "chapter4_values": lambda: crowded(value=ValueConfig(kind="chapter4")),
    "no_streams": lambda: crowded(workload=WorkloadConfig(general=0.5, time_critical=0.5, streaming=0.0)),
    "streams_only": lambda: crowded(workload=WorkloadConfig(general=0.0, time_critical=0.0, streaming=1.0)),
    "bursts": lambda: crowded(
        workload=WorkloadConfig(arrivals=ArrivalConfig(pattern="poisson", rate=0.5, jobs_mean=12.0))
    ),
    "chapter4_world": chapter4,
}


@pytest.mark.real
@pytest.mark.parametrize("name", CHANGES)
def test_variants_equal_the_oracle(name: str) -> None:
    assert_same_episode(CHANGES[name](), EpisodeKey(4, "validation", 1))


@pytest.mark.parametrize("index", range(3))
def test_waiting_by_choice_equals_the_oracle(index: int) -> None:
    assert_same_episode(crowded(allow_none=True), EpisodeKey(5, "train", index), none_share=0.4)


@pytest.mark.real
@pytest.mark.parametrize("strict", [False, True])
def test_full_chapter5_world_equals_the_oracle(strict: bool) -> None:
    assert_same_episode(SliceWorldConfig(strict_fifo=strict), EpisodeKey(6, "test", 0))
