"""The spot world: what is billed and shown, launches and notices, the rules of a tick, days of a split."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest

from spotweave.agents.named import named_rule
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.spot.clairvoyant import clairvoyant_usd
from spotweave.envs.simulation.spot.lanes import Habits
from spotweave.envs.simulation.spot.ticks import (
    NONE,
    ON_DEMAND,
    SPOT,
    decide,
    is_guaranteed,
    is_spot_safe,
    settle,
)
from spotweave.envs.simulation.streams import SPLITS, Split, Streams
from spotweave.envs.simulation.world import EpisodeKey, WorldError
from spotweave.envs.spot_episodes import (
    LEADERBOARD_DAYS,
    MARGIN_S,
    RecordedJobs,
    RulesName,
    SpotConfig,
    build_spot,
    stretches_s,
)
from spotweave.envs.traces.bundle import DAY_S, load_bundle
from spotweave.training.evaluation.episodes import Suite, run_suite
from tests.envs.checks import check
from tests.spot_cases import act, begun, job_of, up

RECORD_END_S = 3_937_790


class TestBilling:
    def test_each_tick_at_the_price_of_the_zone_where_it_ran(self) -> None:
        price = np.array([[1.0, 2.0]] * 3 + [[1.5, 2.5]] * 3)
        world = begun(job_of(up("111111", "111111"), price=price))
        # Zone 0 in tick 0 (1 USD/h), zone 1 in tick 1 (2 USD/h, no overhead), on there in tick 2 (2 USD/h),
        # and in tick 3 (2.5 USD/h): 70 + 100 + 100 + 30 s of work; the last tick is billed whole.
        act(world, 0, 1, 3, 3)
        told = world.metrics(0)
        check(told, cost_usd=7.5 * 100 / 3600, starts=1, interruptions=0, late=0, spot_hours=400 / 3600)
        # The work alone on demand costs 300 * 3 / 3600 = 0.25 USD, on spot 0.0833.
        check(told, score=100 * (0.25 - 7.5 / 36) / (0.25 - 300 / 3600))

    def test_rewards_sum_to_minus_the_index(self) -> None:
        world = begun(job_of(up("101011", "000000")))
        rewards = act(world, 0, 3, 0, 2, 3)
        told = world.metrics(0)
        assert sum(rewards) == pytest.approx(-told["cost_index"])
        # Spot in tick 0, interrupted and idle in 1, spot in 2, interrupted and on demand in 3 and 4:
        # 70 + 0 + 70 + 70 + 90 s of work.
        assert (told["interruptions"], told["starts"]) == (2, 3)

    def test_a_job_that_its_deadline_finds_unfinished_is_late(self) -> None:
        # 345 s in 5 ticks. Spot in tick 0: 275 s are left, 305 with a start, which are the 4 ticks left: the
        # guarantee holds on to spot in tick 1 and in tick 2, which has none and is lost. On demand does 70
        # and 100 of the 175 s then left.
        world = begun(job_of(up("11011"), work_s=345))
        rewards = act(world, 0, 2, 2, 2, 2)
        index = 8 * 100 / 3600 / 0.2875 * 100 + 100
        check(world.metrics(0), late=1.0, cost_usd=8 * 100 / 3600, cost_index=index)
        assert sum(rewards) == pytest.approx(-index)
        assert world.timeline().misses


class TestTheObservation:
    def test_a_job_that_runs(self) -> None:
        world = begun(job_of(up("111111", "011111"), work_s=280, restart_s=130))
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
        world = begun(job_of(up("1101101"), work_s=100))
        act(world, 2, 2, 2, 2, 2)
        spot = world.observation["clusters"][0, 0]
        # Tick 5 is down: 4 of 6 ticks had spot, it changed just now, and the spells seen took 2 ticks each.
        assert spot[col.UP_RATIO] == pytest.approx(4 / 6)
        assert spot[[col.SPELL_S, col.MEAN_UP_S, col.AVAILABLE]].tolist() == [0, 200, 0]

    def test_what_comes_is_not_shown(self) -> None:
        first, other = up("110110", "011111"), up("110000", "011000")
        worlds = [begun(job_of(one, work_s=100)) for one in (first, other)]
        for world in worlds:
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


N = 8


def habits(launch_s: tuple[int, int] = (0, 0), fails: str = "0" * N, announced: str = "0" * N) -> Habits:
    """Of one zone: launches of spot and on demand, ticks whose starts fail, ticks with a notice."""
    return Habits(np.tile(launch_s, (N, 1)), up(fails), up(announced))


class TestLaunches:
    def test_a_start_takes_its_launch_and_the_overhead(self) -> None:
        # Spot: 30 + 20 s of the first 100 pass before work begins. On demand, the slowest: 30 + 50.
        for action, left_s in ((0, 250), (1, 280)):
            world = begun(job_of(up("1" * N), habits=habits((20, 50))))
            act(world, action)
            assert world.observation["jobs"][0, 0, col.DURATION_S] == left_s

    def test_what_is_reckoned_with_is_the_slowest_launch(self) -> None:
        world = begun(job_of(up("1" * N), habits=habits((20, 50))))
        assert world.observation["jobs"][0, 0, col.RESTART_S] == 80
        with pytest.raises(WorldError, match="after 80 s of restart cannot end within 350 s"):
            job_of(up("1" * 7), 300, tick_s=50, habits=Habits(np.full((7, 2), 50), up("0" * 7), up("0" * 7)))

    def test_a_start_that_fails_costs_a_tick_and_nothing_else(self) -> None:
        world = begun(job_of(up("1" * N), habits=habits(fails="11000000")))
        act(world, 0, 0, 0)
        # Two ticks in vain, then 70 s of work for one tick at 1 USD/h.
        assert world.observation["jobs"][0, 0, [col.DURATION_S, col.AGE_S]].tolist() == [230, 300]
        check(world.metrics(0), cost_usd=100 / 3600, starts=1, idle_hours=200 / 3600)

    def test_a_job_on_demand_goes_on_while_starts_on_spot_fail(self) -> None:
        world = begun(job_of(up("1" * N), habits=habits(fails="01000000")))
        act(world, 1, 0)
        # 70 and 100 s on demand; had spot started in the second tick, it would be 70 and 70.
        assert world.observation["jobs"][0, 0, col.DURATION_S] == 130
        assert world.metrics(0)["starts"] == 1

    def test_a_move_that_fails_leaves_the_job_in_its_zone(self) -> None:
        told = Habits(np.zeros((N, 3), np.int64), up("0" * N, "01000000"), up("0" * N, "0" * N))
        price = np.tile([1.0, 2.0], (N, 1))
        world = begun(job_of(up("1" * N, "1" * N), price=price, habits=told))
        act(world, 0, 1)
        check(world.metrics(0), cost_usd=2 * 100 / 3600)
        act(world, 1)
        check(world.metrics(0), cost_usd=(2 * 1 + 2) * 100 / 3600)


class TestNotices:
    def test_a_zone_that_is_known_to_end_takes_no_start_and_runs_to_its_end(self) -> None:
        world = begun(job_of(up("11100000"), habits=habits(announced="01100000")))
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


G = 100
D = 30


class TestSettling:
    def test_overhead_is_paid_before_work_and_only_what_runs_works(self) -> None:
        # 100 s of a tick pay the 30 s first: 70 s of work, 500 - 70 = 430 are left.
        assert settle(SPOT, 30, 500, G) == (0, 430)
        assert settle(ON_DEMAND, 0, 40, G) == (0, 0)
        assert settle(NONE, 30, 500, G) == (30, 500)

    def test_overhead_longer_than_a_tick(self) -> None:
        # 720 s in ticks of 195 s: 720, 525, 330, 135 and then 195 - 135 = 60 s of work.
        rem_s, left_s = 720, 1000
        seen = []
        for _ in range(4):
            rem_s, left_s = settle(ON_DEMAND, rem_s, left_s, 195)
            seen.append((rem_s, left_s))
        assert seen == [(525, 1000), (330, 1000), (135, 1000), (0, 940)]


class TestTheGuarantee:
    def test_where_it_begins(self) -> None:
        # 500 s of work and 30 s of overhead are 6 ticks (5.3 rounded up): the last 6 ticks are theirs.
        assert not is_guaranteed(500, 7, G, D)
        assert is_guaranteed(500, 6, G, D)
        assert not is_guaranteed(0, 1, G, D)
        # 5 ticks of work without overhead: exactly 5.
        assert is_guaranteed(500, 5, G, 0)
        assert not is_guaranteed(501 - 1, 6, G, 0)

    def test_a_preemption_while_spot_is_forced_wastes_a_tick_and_ends_late(self) -> None:
        # 6 ticks, 500 s of work. SPOT ran and is gone; the guarantee still asks for SPOT, which becomes NONE.
        runs, rem_s = decide(ON_DEMAND, SPOT, True, False, 0, 500, 6, G, D)
        assert (runs, rem_s) == (NONE, 0)
        # 5 ticks are left for 530 s: on demand works 70 + 4 * 100 = 470 of the 500.
        left_s = 500
        for ticks_left in range(5, 0, -1):
            runs, rem_s = decide(NONE, runs, False, False, rem_s, left_s, ticks_left, G, D)
            assert runs == ON_DEMAND
            rem_s, left_s = settle(runs, rem_s, left_s, G)
        assert left_s == 30


@pytest.mark.parametrize(
    ("given", "expected"),
    # Given: asked, ran, interrupted, up, rem_s, left_s, ticks_left.
    [
        # In the last 6 ticks for 500 s of work the guarantee decides: an idle job goes on demand,
        ((NONE, NONE, False, True, 0, 500, 6), (ON_DEMAND, D)),
        ((SPOT, NONE, False, True, 0, 500, 6), (ON_DEMAND, D)),
        # spot whose overhead is paid stays, and with 10 s of it left is given up, not adding them to the 30;
        ((ON_DEMAND, SPOT, False, True, 0, 500, 6), (SPOT, 0)),
        ((SPOT, SPOT, False, True, 10, 500, 6), (ON_DEMAND, D)),
        # on demand stays and pays nothing again,
        ((SPOT, ON_DEMAND, False, True, 0, 500, 6), (ON_DEMAND, 0)),
        # and where the zone was changed to one with spot nothing runs, so the request sets the overhead.
        ((SPOT, SPOT, True, True, 0, 500, 6), (SPOT, D)),
        # Before them a start sets the overhead and does not add it to the 20 s,
        ((ON_DEMAND, SPOT, False, True, 20, 100, 20), (ON_DEMAND, D)),
        # with which spot goes on that moves to another zone;
        ((SPOT, SPOT, False, True, 20, 100, 20), (SPOT, 20)),
        # spot without spot is nothing, whatever ran;
        ((SPOT, NONE, False, False, 0, 100, 20), (NONE, 0)),
        ((SPOT, ON_DEMAND, False, False, 0, 100, 20), (NONE, 0)),
        # and a start after a preemption or a pause pays.
        ((SPOT, SPOT, True, True, 0, 100, 20), (SPOT, D)),
        ((ON_DEMAND, NONE, False, False, 0, 100, 20), (ON_DEMAND, D)),
    ],
)
def test_what_a_tick_runs_and_the_overhead_that_is_due(
    given: tuple[int, int, bool, bool, int, int, int], expected: tuple[int, int]
) -> None:
    assert decide(*given, G, D) == expected


def can_be_late(state: tuple[int, bool, int, int, int], tick_s: int, restart_s: int) -> bool:
    """Whether availability can make on demand, asked for in every tick, late from here."""
    ran, interrupted, rem_s, left_s, ticks_left = state
    if left_s == 0:
        return False
    if ticks_left == 0:
        return True
    runs, rem_now_s = decide(
        ON_DEMAND, ran, interrupted, not interrupted, rem_s, left_s, ticks_left, tick_s, restart_s
    )
    rem_now_s, left_now_s = settle(runs, rem_now_s, left_s, tick_s)
    after = [
        (runs, lost, rem_now_s, left_now_s, ticks_left - 1)
        for lost in ([False, True] if runs == SPOT else [False])
    ]
    return any(can_be_late(one, tick_s, restart_s) for one in after)


@pytest.mark.parametrize(("tick_s", "restart_s"), [(10, 3), (10, 0), (10, 10), (10, 25)])
def test_spot_is_called_safe_exactly_where_on_demand_can_still_end_in_time(
    tick_s: int, restart_s: int
) -> None:
    calls = {True: 0, False: 0}
    rems = sorted({0, *(restart_s - k * tick_s for k in range(4) if restart_s - k * tick_s > 0)})
    for ticks_left, left_s, ran, rem_s in product(
        range(1, 9), range(5, 75, 5), (NONE, SPOT, ON_DEMAND), rems
    ):
        for interrupted in [False, True] if ran == SPOT else [False]:
            state = (ran, interrupted, rem_s, left_s, ticks_left)
            if can_be_late(state, tick_s, restart_s):
                continue
            runs, rem_now_s = decide(
                SPOT, ran, interrupted, True, rem_s, left_s, ticks_left, tick_s, restart_s
            )
            rem_now_s, left_now_s = settle(runs, rem_now_s, left_s, tick_s)
            after = [(runs, lost, rem_now_s, left_now_s, ticks_left - 1) for lost in (False, True)]
            safe = is_spot_safe(ran, interrupted, rem_s, left_s, ticks_left, tick_s, restart_s)
            calls[safe] += 1
            if runs == SPOT:
                assert safe == (not any(can_be_late(one, tick_s, restart_s) for one in after)), state
    assert min(calls.values()) > 20


def cheapest(
    has_spot: np.ndarray, price: np.ndarray, on_demand: float, work_s: int, tick_s: int, restart_s: int
) -> float:
    """The least cost of all plans, by trying every proposal in every zone at every tick."""
    n, n_zones = has_spot.shape

    def best(t: int, ran: int, zone: int, rem_s: int, left_s: int) -> float:
        if left_s == 0:
            return 0.0
        if t == n:
            return float("inf")
        interrupted = ran == SPOT and not has_spot[t, zone]
        found = float("inf")
        for proposal, parked in product((NONE, SPOT, ON_DEMAND), range(n_zones)):
            runs, rem_now_s = decide(
                proposal, ran, interrupted, bool(has_spot[t, parked]), rem_s, left_s, n - t, tick_s, restart_s
            )
            usd = {NONE: 0.0, SPOT: price[t, parked], ON_DEMAND: on_demand}[runs] * tick_s / 3600
            if usd < found:
                found = min(found, usd + best(t + 1, runs, parked, *settle(runs, rem_now_s, left_s, tick_s)))
        return found

    return best(0, NONE, 0, 0, work_s)


class TestTheClairvoyant:
    @pytest.mark.parametrize("n_zones", [1, 2])
    @pytest.mark.parametrize(
        ("work_s", "restart_s"), [(300, 30), (270, 100), (200, 130), (260, 0), (150, 250)]
    )
    def test_brute_force(self, n_zones: int, work_s: int, restart_s: int) -> None:
        rng = np.random.default_rng(work_s + n_zones)
        for _ in range(12):
            n = 6 if n_zones == 1 else 5
            has_spot = rng.random((n, n_zones)) < 0.6
            price = rng.uniform(0.3, 1.5, (n, n_zones))
            if work_s + restart_s > n * G:
                continue
            found = clairvoyant_usd(has_spot, price, 3.06, work_s, G, restart_s)
            assert found == pytest.approx(cheapest(has_spot, price, 3.06, work_s, G, restart_s))

    def test_what_cannot_end_in_time_is_one_line(self) -> None:
        with pytest.raises(WorldError, match="480 s of work and 30 s of restart do not fit into 5 ticks"):
            clairvoyant_usd(np.ones((5, 1), bool), np.ones((5, 1)), 3.0, 480, G, D)
