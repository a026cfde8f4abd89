"""The rules of a tick: cases worked by hand, and what the net of the policy promises, by brute force."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from envs.simulation.spot.clairvoyant import clairvoyant_usd
from envs.simulation.spot.ticks import NONE, ON_DEMAND, SPOT, decide, is_guaranteed, is_spot_safe, settle
from envs.simulation.world import WorldError

G = 100
D = 30


class TestSettling:
    def test_overhead_is_paid_before_work(self) -> None:
        # 100 s of a tick pay the 30 s first: 70 s of work, 500 - 70 = 430 are left.
        assert settle(SPOT, 30, 500, G) == (0, 430)

    def test_overhead_longer_than_a_tick(self) -> None:
        # 720 s in ticks of 195 s: 720, 525, 330, 135 and then 195 - 135 = 60 s of work.
        rem_s, left_s = 720, 1000
        seen = []
        for _ in range(4):
            rem_s, left_s = settle(ON_DEMAND, rem_s, left_s, 195)
            seen.append((rem_s, left_s))
        assert seen == [(525, 1000), (330, 1000), (135, 1000), (0, 940)]

    def test_no_more_progress_than_work(self) -> None:
        assert settle(ON_DEMAND, 0, 40, G) == (0, 0)

    def test_nothing_happens_while_nothing_runs(self) -> None:
        assert settle(NONE, 30, 500, G) == (30, 500)


class TestTheGuarantee:
    def test_where_it_begins(self) -> None:
        # 500 s of work and 30 s of overhead are 6 ticks (5.3 rounded up): the last 6 ticks are theirs.
        assert not is_guaranteed(500, 7, G, D)
        assert is_guaranteed(500, 6, G, D)
        assert not is_guaranteed(0, 1, G, D)
        # 5 ticks of work without overhead: exactly 5.
        assert is_guaranteed(500, 5, G, 0)
        assert not is_guaranteed(501 - 1, 6, G, 0)

    def test_it_turns_an_idle_job_to_on_demand(self) -> None:
        assert decide(NONE, NONE, False, True, 0, 500, 6, G, D) == (ON_DEMAND, D)
        assert decide(SPOT, NONE, False, True, 0, 500, 6, G, D) == (ON_DEMAND, D)

    def test_it_holds_on_to_spot_whose_overhead_is_paid(self) -> None:
        assert decide(ON_DEMAND, SPOT, False, True, 0, 500, 6, G, D) == (SPOT, 0)

    def test_spot_with_overhead_left_is_given_up(self) -> None:
        # The new start sets the overhead to 30: it is not added to the 10 that were left.
        assert decide(SPOT, SPOT, False, True, 10, 500, 6, G, D) == (ON_DEMAND, D)

    def test_on_demand_stays_and_pays_nothing_again(self) -> None:
        assert decide(SPOT, ON_DEMAND, False, True, 0, 500, 6, G, D) == (ON_DEMAND, 0)

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

    def test_forced_spot_in_another_zone_is_a_start_after_a_preemption(self) -> None:
        # The zone was changed to one with spot: what runs is nothing, so the request sets the overhead.
        assert decide(SPOT, SPOT, True, True, 0, 500, 6, G, D) == (SPOT, D)


class TestStarts:
    def test_a_start_sets_the_overhead_and_does_not_add_it(self) -> None:
        assert decide(ON_DEMAND, SPOT, False, True, 20, 100, 20, G, D) == (ON_DEMAND, D)

    def test_spot_that_moves_pays_nothing(self) -> None:
        # Spot runs with 20 s of overhead left; in the other zone it goes on with those 20 s.
        assert decide(SPOT, SPOT, False, True, 20, 100, 20, G, D) == (SPOT, 20)

    def test_spot_without_spot_is_nothing(self) -> None:
        assert decide(SPOT, NONE, False, False, 0, 100, 20, G, D) == (NONE, 0)
        assert decide(SPOT, ON_DEMAND, False, False, 0, 100, 20, G, D) == (NONE, 0)

    def test_after_a_preemption_every_start_pays(self) -> None:
        assert decide(SPOT, SPOT, True, True, 0, 100, 20, G, D) == (SPOT, D)

    def test_on_demand_after_idling_pays_again(self) -> None:
        assert decide(ON_DEMAND, NONE, False, False, 0, 100, 20, G, D) == (ON_DEMAND, D)


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

    def test_a_worked_example(self) -> None:
        # 200 s of work, 5 ticks of 100 s, overhead 30 s; spot at 1 USD/h in ticks 1 to 3. One start:
        # 70 + 100 + 30 s of work, three ticks billed whole: 3 * 100 / 3600 USD.
        has_spot = np.array([[0], [1], [1], [1], [0]], bool)
        found = clairvoyant_usd(has_spot, np.ones((5, 1)), 3.0, 200, G, D)
        assert found == pytest.approx(300 / 3600)

    def test_what_cannot_end_in_time_is_one_line(self) -> None:
        with pytest.raises(WorldError, match="480 s of work and 30 s of restart do not fit into 5 ticks"):
            clairvoyant_usd(np.ones((5, 1), bool), np.ones((5, 1)), 3.0, 480, G, D)
