"""Launches that take time or fail, notices, and memoryless availability: by hand, and as drawn."""

from __future__ import annotations

import numpy as np
import pytest

from envs.simulation import columns as col
from envs.simulation.spot.job import Habits
from envs.simulation.streams import Streams
from envs.simulation.world import EpisodeKey, WorldError
from envs.spot_episodes import RecordedJobs, SpotConfig
from envs.traces.bundle import load_bundle
from tests.spot_cases import KEY, act, job_of, up, world_of

N = 8


def habits(launch_s: tuple[int, int] = (0, 0), fails: str = "0" * N, announced: str = "0" * N) -> Habits:
    """Of one zone: launches of spot and on demand, ticks whose starts fail, ticks with a notice."""
    return Habits(np.tile(launch_s, (N, 1)), up(fails), up(announced))


class TestLaunches:
    def test_a_start_takes_its_launch_and_the_overhead(self) -> None:
        # Spot: 30 + 20 s of the first 100 pass before work begins. On demand, the slowest: 30 + 50.
        for action, left_s in ((0, 250), (1, 280)):
            world = world_of(job_of(up("1" * N), habits=habits((20, 50))))
            world.reset([KEY])
            act(world, action)
            assert world.observation["jobs"][0, 0, col.DURATION_S] == left_s

    def test_what_is_reckoned_with_is_the_slowest_launch(self) -> None:
        world = world_of(job_of(up("1" * N), habits=habits((20, 50))))
        world.reset([KEY])
        assert world.observation["jobs"][0, 0, col.RESTART_S] == 80
        with pytest.raises(WorldError, match="after 80 s of restart cannot end within 350 s"):
            job_of(up("1" * 7), 300, tick_s=50, habits=Habits(np.full((7, 2), 50), up("0" * 7), up("0" * 7)))

    def test_a_start_that_fails_costs_a_tick_and_nothing_else(self) -> None:
        world = world_of(job_of(up("1" * N), habits=habits(fails="11000000")))
        world.reset([KEY])
        act(world, 0, 0, 0)
        # Two ticks in vain, then 70 s of work for one tick at 1 USD/h.
        assert world.observation["jobs"][0, 0, [col.DURATION_S, col.AGE_S]].tolist() == [230, 300]
        assert world.metrics(0)["cost_usd"] == pytest.approx(100 / 3600)
        assert world.metrics(0)["starts"] == 1
        assert world.metrics(0)["idle_hours"] == pytest.approx(200 / 3600)

    def test_a_job_on_demand_goes_on_while_starts_on_spot_fail(self) -> None:
        world = world_of(job_of(up("1" * N), habits=habits(fails="01000000")))
        world.reset([KEY])
        act(world, 1, 0)
        # 70 and 100 s on demand; had spot started in the second tick, it would be 70 and 70.
        assert world.observation["jobs"][0, 0, col.DURATION_S] == 130
        assert world.metrics(0)["starts"] == 1

    def test_a_move_that_fails_leaves_the_job_in_its_zone(self) -> None:
        told = Habits(np.zeros((N, 3), np.int64), up("0" * N, "01000000"), up("0" * N, "0" * N))
        price = np.tile([1.0, 2.0], (N, 1))
        world = world_of(job_of(up("1" * N, "1" * N), price=price, habits=told))
        world.reset([KEY])
        act(world, 0, 1)
        assert world.metrics(0)["cost_usd"] == pytest.approx(2 * 100 / 3600)
        act(world, 1)
        assert world.metrics(0)["cost_usd"] == pytest.approx((2 * 1 + 2) * 100 / 3600)


class TestNotices:
    def test_a_zone_that_is_known_to_end_takes_no_start_and_runs_to_its_end(self) -> None:
        world = world_of(job_of(up("11100000"), habits=habits(announced="01100000")))
        world.reset([KEY])
        act(world, 0)
        assert world.observation["action_mask"][0].tolist() == [0, 1, 1]
        assert world.observation["pairs"][0, 0, 0, col.HERE] == 1
        act(world, 2, 2)
        # 70 + 100 + 100 s of work on spot, which ended only now.
        assert world.observation["jobs"][0, 0, [col.DURATION_S, col.INTERRUPTIONS]].tolist() == [30, 1]

    def test_whole_ticks_of_the_notice_count(self) -> None:
        source = RecordedJobs(SpotConfig(notice_s=400), load_bundle())  # two ticks of 195 s
        told = source._habits(up("1110101100"), Streams(0)).announced
        assert told[:, 0].tolist() == [mark == "1" for mark in "0110101100"]
        # What is cut off by the end of the job is not known to end; and 120 s are no tick.
        assert not source._habits(up("0011"), Streams(0)).announced.any()
        source = RecordedJobs(SpotConfig(notice_s=120), load_bundle())
        assert not source._habits(up("1110101100"), Streams(0)).announced.any()

    def test_a_notice_may_be_missed(self) -> None:
        source = RecordedJobs(SpotConfig(notice_s=195, notice_missed=0.25), load_bundle())
        rows = up("10" * 2000)
        assert source._habits(rows, Streams(3)).announced.mean() == pytest.approx(0.5 * 0.75, abs=0.02)


class TestDrawnJobs:
    def test_launches_as_told(self) -> None:
        source = RecordedJobs(SpotConfig(launch_s=100, launch_failure=0.1), load_bundle())
        told = source._habits(np.ones((4000, 2), bool), Streams(1))
        assert (told.launch_s.min(), told.launch_s.max()) == (50, 150)
        assert told.launch_s.mean() == pytest.approx(100, abs=1)
        assert told.fails.mean() == pytest.approx(0.1, abs=0.01)

    def test_poisson_availability_at_the_recorded_prices(self) -> None:
        recorded = RecordedJobs(SpotConfig(), load_bundle())
        drawn = RecordedJobs(SpotConfig(availability="poisson", up_h=3.0, down_h=1.0), load_bundle())
        shares = []
        for index in range(20):
            key = EpisodeKey(5, "train", index)
            one, other = recorded.job(key), drawn.job(key)
            np.testing.assert_array_equal(one.spot_usd_hour, other.spot_usd_hour)
            assert (one.start_s, one.restart_s) == (other.start_s, other.restart_s)
            np.testing.assert_array_equal(other.has_spot, drawn.job(key).has_spot)
            shares.append(other.has_spot.mean())
        # Up 3 of 4 hours; 20 jobs x 9 zones x 13 or more cycles of 4 h.
        assert np.mean(shares) == pytest.approx(0.75, abs=0.02)
