"""The spot world: what is billed, shown and told, and which days a split may see."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from agents.named import named_rule
from envs.simulation import columns as col
from envs.simulation.spot.clairvoyant import clairvoyant_usd
from envs.simulation.streams import SPLITS, Split
from envs.simulation.world import EpisodeKey
from envs.spot_episodes import (
    LEADERBOARD_DAYS,
    MARGIN_S,
    RecordedJobs,
    RulesName,
    SpotConfig,
    build_spot,
    stretches_s,
)
from envs.traces.bundle import DAY_S, load_bundle
from tests.spot_cases import KEY, act, job_of, up, world_of
from training.evaluation.episodes import Suite, run_suite

RECORD_END_S = 3_937_790


class TestBilling:
    def test_each_tick_at_the_price_of_the_zone_where_it_ran(self) -> None:
        price = np.array([[1.0, 2.0]] * 3 + [[1.5, 2.5]] * 3)
        world = world_of(job_of(up("111111", "111111"), price=price))
        world.reset([KEY])
        # Zone 0 in tick 0 (1 USD/h), zone 1 in tick 1 (2 USD/h, no overhead), on there in tick 2 (2 USD/h),
        # and in tick 3 (2.5 USD/h): 70 + 100 + 100 + 30 s of work; the last tick is billed whole.
        act(world, 0, 1, 3, 3)
        told = world.metrics(0)
        assert told["cost_usd"] == pytest.approx(7.5 * 100 / 3600)
        assert (told["starts"], told["interruptions"], told["late"]) == (1, 0, 0)
        assert told["spot_hours"] == pytest.approx(400 / 3600)
        # The work alone on demand costs 300 * 3 / 3600 = 0.25 USD, on spot 0.0833.
        assert told["score"] == pytest.approx(100 * (0.25 - 7.5 / 36) / (0.25 - 300 / 3600))

    def test_rewards_sum_to_minus_the_index(self) -> None:
        world = world_of(job_of(up("101011", "000000")))
        world.reset([KEY])
        rewards = act(world, 0, 3, 0, 2, 3)
        told = world.metrics(0)
        assert sum(rewards) == pytest.approx(-told["cost_index"])
        # Spot in tick 0, interrupted and idle in 1, spot in 2, interrupted and on demand in 3 and 4:
        # 70 + 0 + 70 + 70 + 90 s of work.
        assert told["interruptions"] == 2
        assert told["starts"] == 3

    def test_a_job_that_its_deadline_finds_unfinished_is_late(self) -> None:
        # 345 s in 5 ticks. Spot in tick 0: 275 s are left, 305 with a start, which are the 4 ticks left: the
        # guarantee holds on to spot in tick 1 and in tick 2, which has none and is lost. On demand does 70
        # and 100 of the 175 s then left.
        world = world_of(job_of(up("11011"), work_s=345))
        world.reset([KEY])
        rewards = act(world, 0, 2, 2, 2, 2)
        told = world.metrics(0)
        assert told["late"] == 1.0
        assert told["cost_index"] == pytest.approx(told["cost_usd"] / 0.2875 * 100 + 100)
        assert told["cost_usd"] == pytest.approx(8 * 100 / 3600)
        assert sum(rewards) == pytest.approx(-told["cost_index"])
        assert world.timeline().misses


class TestTheObservation:
    def test_a_job_that_runs(self) -> None:
        world = world_of(job_of(up("111111", "011111"), work_s=280, restart_s=130))
        world.reset([KEY])
        seen = world.observation
        assert seen["action_mask"][0].tolist() == [1, 0, 1, 1]
        act(world, 0)
        job, pairs = seen["jobs"][0, 0], seen["pairs"][0, 0]
        assert job[[col.RUNNING, col.AGE_S, col.SLACK_S, col.PROGRESS]].tolist() == [1, 100, 500, 0]
        assert pairs[:, col.HERE].tolist() == [1, 0, 0]
        # 30 s of overhead are left here and in the other zone; on demand would pay 130 s anew.
        assert pairs[:, col.FINISH_S].tolist() == [310, 310, 410]
        assert seen["action_mask"][0].tolist() == [0, 1, 1, 1]
        assert seen["clusters"][0, :, col.USED].tolist() == [1, 0, 0]

    def test_the_past_of_a_zone_is_what_was_seen_since_the_job_began(self) -> None:
        world = world_of(job_of(up("1101101"), work_s=100))
        world.reset([KEY])
        act(world, 2, 2, 2, 2, 2)
        spot = world.observation["clusters"][0, 0]
        # Tick 5 is down: 4 of 6 ticks had spot, it changed just now, and the spells seen took 2 ticks each.
        assert spot[col.UP_RATIO] == pytest.approx(4 / 6)
        assert spot[[col.SPELL_S, col.MEAN_UP_S, col.AVAILABLE]].tolist() == [0, 200, 0]

    def test_what_comes_is_not_shown(self) -> None:
        first, other = up("110110", "011111"), up("110000", "011000")
        worlds = [world_of(job_of(one, work_s=100)) for one in (first, other)]
        for world in worlds:
            world.reset([KEY])
            act(world, 3, 3)
        for one, other in zip(*(world.observation.values() for world in worlds), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.real
@pytest.mark.parametrize("rules", ["adrs_single", "adrs_multi"])
def test_no_rule_beats_the_clairvoyant(rules: RulesName) -> None:
    config = SpotConfig(rules=rules, work_h=6.0, deadline_h=8.0, restart_s=360)
    world = build_spot(config, 4)
    suite = Suite("train", "train", 5, 4)
    bounds = []
    for key in suite.episode_keys():
        job = world.source.job(key)
        facts = job.on_demand_usd_hour, job.work_s, job.tick_s, job.restart_s
        bounds.append(clairvoyant_usd(job.has_spot, job.spot_usd_hour, *facts))
    for name in ("on_demand", "spot_fallback", "uniform_progress"):
        for result, bound in zip(run_suite(world, named_rule(name), suite), bounds, strict=True):
            assert result.metrics["late"] or result.metrics["cost_usd"] >= bound - 1e-6


class TestDays:
    @pytest.mark.parametrize("rules", ["adrs_single", "adrs_multi"])
    def test_splits_never_meet(self, rules: RulesName) -> None:
        days = {split: stretches_s(rules, split, RECORD_END_S) for split in SPLITS}
        parts = sorted(part for split in SPLITS for part in days[split])
        assert all(start < end for start, end in parts)
        assert all(one[1] <= other[0] for one, other in pairwise(parts))

    def test_training_and_validation_leave_out_the_days_of_the_leaderboard(self) -> None:
        parts = [
            part
            for split in ("train", "validation")
            for part in stretches_s("adrs_multi", split, RECORD_END_S)
        ]
        for left, right in LEADERBOARD_DAYS:
            for start, end in parts:
                assert end <= round(left * DAY_S) - MARGIN_S or start >= round(right * DAY_S) + MARGIN_S
        # Days 0-7.675, 10.425-14.475, 17.225-19.775; 25.125-31.675 and 37.025-37.275.
        assert sum(end - start for start, end in parts) / DAY_S == pytest.approx(21.075, abs=1e-3)

    @pytest.mark.parametrize("split", SPLITS)
    def test_an_episode_stays_within_its_days(self, split: Split) -> None:
        source = RecordedJobs(SpotConfig(), load_bundle())
        parts = stretches_s("adrs_multi", split, RECORD_END_S)
        for index in range(40):
            job = source.job(EpisodeKey(3, split, index))
            assert any(start <= job.start_s and job.start_s + job.deadline_s <= end for start, end in parts)
            assert job.has_spot.shape[1] == 9

    def test_half_of_the_training_episodes_draw_deadline_and_overhead(self) -> None:
        source = RecordedJobs(SpotConfig(rules="adrs_single"), load_bundle())
        jobs = [source.job(EpisodeKey(0, "train", index)) for index in range(200)]
        drawn = [job for job in jobs if job.restart_s not in (72, 180, 360)]
        assert 70 < len(drawn) < 130
        tests = [source.job(EpisodeKey(0, "test", index)) for index in range(50)]
        assert {job.restart_s for job in tests} == {72, 180, 360}
        assert {job.deadline_s for job in tests} == {52 * 3600, 70 * 3600}
        assert all((job.spot_usd_hour == 0.9731).all() for job in jobs)
