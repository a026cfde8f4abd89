"""What the deployed jobs will need, worked by hand."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from envs.simulation import columns as col
from envs.simulation.slices.observe import RESERVE, SOON
from envs.simulation.slices.world import SliceWorld
from tests.envs.slice_cases import Job, make_workload, small_config

STREAM = Job(
    request=20, execution=4, deadline=6, executions=3, period=10, peak=40, peaks=(False, True, False)
)
"""Of ten slots two hold the peak: a coming batch counts 20 + 0.2 * (40 - 20) = 24 executors."""


def after_the_first(first: Job, second: Job, capacity: int = 100, forecast: bool = True) -> SliceWorld:
    """The decision about the second of two jobs; the first runs on cluster 0 of two equal ones."""
    config = dataclasses.replace(small_config(2, (capacity, capacity)), forecast=forecast)
    world = SliceWorld(config)
    world.load(make_workload([first, second], 2))
    world.step(np.array([0]))
    return world


def ahead(world: SliceWorld) -> list[float]:
    return [float(value) for value in world.observation["clusters"][0, :, col.FREE_AHEAD]]


def short(world: SliceWorld) -> list[float]:
    return [float(value) for value in world.observation["pairs"][0, 0, :, col.SHORTAGE]]


def test_a_running_job_holds_its_executors_until_it_ends() -> None:
    # Asked in slice 1; the first job began in slice 0 and ends with slice 10: it holds 30 for 10 slices more.
    world = after_the_first(Job(30, 11), Job(10, 5, arrival=1))
    assert ahead(world) == pytest.approx([100 - 30 * 10 / SOON, 100])


def test_batches_that_are_due_count_with_their_mean_request() -> None:
    # In slice 1: 3 slices of the first batch (20), then 4 from slice 10 and 4 from slice 20 on (24 each).
    world = after_the_first(STREAM, Job(10, 5, arrival=1))
    assert ahead(world) == pytest.approx([100 - (3 * 20 + 8 * 24) / SOON, 100])


def test_a_job_lacks_what_is_held_above_what_is_not_kept_for_others() -> None:
    # Of 100 executors some are kept. The first job holds 60 for 10 slices more, the second wants 50 for 20.
    lacking = 60 + 50 - 100 * (1 - RESERVE)
    world = after_the_first(Job(60, 11), Job(50, 20, arrival=1))
    assert short(world) == pytest.approx([lacking * 10 / 20, 0])


def test_no_more_than_the_request_lacks() -> None:
    world = after_the_first(Job(99, 21), Job(10, 20, arrival=1))
    assert short(world) == pytest.approx([10, 0])


def test_a_stream_lacks_executors_only_in_its_batches() -> None:
    # The first job holds 90 for 30 slices more: all three batches of 4 slices, which start in 1, 11 and 21.
    lacking = min(90 + 24 - 100 * (1 - RESERVE), 24)
    world = after_the_first(Job(90, 31), dataclasses.replace(STREAM, arrival=1))
    assert short(world) == pytest.approx([lacking, 0])
    # For 10 slices more: the first batch of three.
    world = after_the_first(Job(90, 11), dataclasses.replace(STREAM, arrival=1))
    assert short(world) == pytest.approx([lacking / 3, 0])


def test_a_world_without_forecast_shows_none() -> None:
    world = after_the_first(Job(90, 31), Job(50, 20, arrival=1), forecast=False)
    assert ahead(world) == [0, 0] == short(world)
