"""The safety net over live tasks, and moves of what runs; times and money by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotweave.deploy.billing import CHARGES_PER_USD, Bill
from spotweave.deploy.model.instances import LaunchRequest, Market, Offer
from spotweave.deploy.model.jobs import (
    Flower,
    FlowerClient,
    FlowerServer,
    JobSpec,
    JobState,
    Places,
    Resources,
    SparkStreaming,
    TaskKey,
)
from spotweave.deploy.model.tasks import Phase
from spotweave.deploy.providers.base import CapacityError
from spotweave.deploy.scheduler.guards import (
    Guards,
    Outcome,
    Standing,
    leave_the_spent,
    mean_usd_hour,
    net_words,
    pays_nowhere,
    standing_of,
    starts_nowhere,
    too_few,
)
from spotweave.deploy.scheduler.needs import Need, Round
from spotweave.deploy.scheduler.settings import SchedulerSettings
from spotweave.deploy.scheduler.snapshot import Occupancy, Row, observe, snapshot_of
from spotweave.deploy.store.store import Store
from spotweave.envs.simulation.guards import GuardsConfig
from tests.deploy.scheduler.worlds import Restless, World, batch, cheap_and_sure, need, offer, rentable

SPOT, SURE, FAST = (
    offer("spot"),
    offer("sure", "on_demand"),
    offer("fast", "on_demand", speed=2.0, price_usd_hour=3.0),
)
OFFERS = [SPOT, SURE, FAST]
GUARDS = Guards(GuardsConfig(gain_test=False, margin_s=60.0, margin_share=0.1))


def row_of(task: Need, offers: Sequence[Offer] = OFFERS, used: Mapping[str, int] | None = None) -> Row:
    """What a policy sees of a task; `used` instances are taken of each offer."""
    return observe(snapshot_of(offers, [task], used or {}, Occupancy()), [task], 1, GUARDS.rules).row(0)


def goes(task: Need, chosen: str | None, offers: Sequence[Offer] = OFFERS, **used: int) -> str | None:
    """Where a task goes."""
    return GUARDS.bound(row_of(task, offers, used), task, chosen, offers).offer_id


ON_SPOT: dict[str, Any] = {"running": True, "here": "spot", "left_here_s": 300.0}
ON_SURE = {**ON_SPOT, "here": "sure"}
STREAM = {"kind": "streaming", "executions_left": 9, "period_s": 600.0}
GONE = [SPOT, SURE, replace(FAST, available=False)]
LARGE = replace(FAST, offer_id="large", instance_type="large", speed=1.0)
PICKY = {"places": Places(instance_types=("large",))}


# On the fast type 60 s of launch and 300 of work; with margins 360 * 1.1 + 60 = 456 s. On the slower one 660,
# with margins 786 s.
@pytest.mark.parametrize(
    ("slack_s", "chosen", "changes", "expected", "there"),
    [
        pytest.param(457.0, "spot", {}, "spot", {}, id="time to spare"),
        pytest.param(457.0, None, {}, None, {}, id="time to wait"),
        pytest.param(456.0, "spot", {}, "fast", {}, id="time is up"),
        pytest.param(456.0, None, {}, "fast", {}, id="no time to wait"),
        pytest.param(360.0, "spot", {}, "fast", {}, id="just possible"),
        pytest.param(359.0, "spot", {}, "spot", {}, id="nothing meets it"),
        pytest.param(400.0, "sure", {}, "sure", {}, id="on demand is chosen"),
        pytest.param(400.0, None, ON_SURE, None, {}, id="runs on demand"),
        pytest.param(310.0, None, ON_SURE, None, {}, id="runs on demand, and nowhere else in time"),
        pytest.param(400.0, None, ON_SPOT, "fast", {}, id="runs on spot"),
        pytest.param(None, "spot", {"kind": "general"}, "spot", {}, id="no deadline"),
        pytest.param(400.0, "spot", STREAM, "spot", {}, id="a stream"),
        pytest.param(456.0, "spot", {}, "spot", {"fast": 4}, id="no room on the fast type"),
        pytest.param(780.0, "spot", {}, "sure", {"fast": 4}, id="room on the slower one"),
        pytest.param(456.0, "spot", {}, "spot", {"offers": GONE}, id="no capacity of the fast type"),
        pytest.param(780.0, "spot", {}, "sure", {"offers": GONE}, id="capacity of the slower one"),
        pytest.param(780.0, None, PICKY, None, {}, id="not where it may not run"),
        pytest.param(780.0, None, PICKY, "large", {"offers": [SPOT, SURE, LARGE]}, id="where it may"),
    ],
)
def test_a_task_goes_where_it_ends_first_when_its_time_is_up(
    slack_s: float | None,
    chosen: str | None,
    changes: dict[str, Any],
    expected: str | None,
    there: dict[str, Any],
) -> None:
    """Only what is free counts, has capacity, and is where the task may go."""
    assert goes(need(**{"kind": "deadline", **changes}, slack_s=slack_s), chosen, **there) == expected


def test_the_net_counts_all_rounds_of_a_client() -> None:
    """60 s of launch, its own epoch of 100 s, and four more rounds of 300 s."""
    offers = [SPOT, SURE]
    client = need(kind="federated", standard_s=100.0, executions_left=5, round=Round(round_s=300.0))
    needed_s, later_s = 160.0, 1200.0
    spare = replace(client, slack_s=later_s + needed_s * 1.1 + 61)
    assert goes(spare, "spot", offers) == "spot"
    assert goes(replace(spare, slack_s=later_s + needed_s * 1.1 + 60), None, offers) == "sure"
    # An idle one on sure capacity is not released any more.
    idle = replace(
        spare, slack_s=later_s + 160, here="sure", left_here_s=100.0, round=Round(True, round_s=300.0)
    )
    assert goes(idle, None, offers, sure=4) == "sure"


@given(slack_s=st.floats(1, 3000), step_s=st.floats(5, 300), progress=st.floats(0, 0.99))
def test_whoever_asks_often_enough_never_loses_a_deadline_that_could_be_met(
    slack_s: float, step_s: float, progress: float
) -> None:
    """Asked every `step_s` below the fixed margin, the net catches before the latest start."""
    step_s = min(step_s, GUARDS.rules.margin_s)
    task = need(kind="deadline", slack_s=slack_s, progress=progress)
    if task.finish_s(FAST) > slack_s:
        return
    while True:
        caught = goes(task, None)
        assert task.slack_s is not None
        if caught is not None:
            assert task.finish_s(FAST) <= task.slack_s
            return
        task = need(kind="deadline", slack_s=task.slack_s - step_s, progress=progress)
        assert task.finish_s(FAST) <= (task.slack_s or 0.0), "the last moment has passed unseen"


DEAR = offer("dear", "on_demand", price_usd_hour=1.0, on_demand_usd_hour=1.0)
HALF_DONE = need(standard_s=3600.0, progress=0.5, restart_s=20.0, running=True, here="dear", left_here_s=1800)
START = 1_000_000.0


class Moved(NamedTuple):
    """A move, appraised."""

    gain_usd: float
    cost_usd: float
    worth: bool


def moved(price: float, standing: Standing | None = None, task: Need = HALF_DONE, **facts: float) -> Moved:
    there = offer("fair", "on_demand", price_usd_hour=price, on_demand_usd_hour=1.0, **facts)
    offers: list[Offer] = [DEAR, there]
    outcome = Guards(GuardsConfig()).bound(
        row_of(task, offers), task, "fair", offers, standing=standing or Standing()
    )
    assert outcome.gain_usd is not None
    assert outcome.cost_usd is not None
    return Moved(outcome.gain_usd, outcome.cost_usd, outcome.offer_id == "fair")


def test_a_lower_price_for_half_an_hour_is_worth_a_launch() -> None:
    """Here 1800 s at 1 USD/h, there 80 s of start and 1800 s at 0.5."""
    move = moved(0.5)
    start, overlap = 0.5 * 80 / 3600, 1.0 * 60 / 3600
    assert move.gain_usd == pytest.approx((1.0 - 0.5) * 1800 / 3600, abs=1e-5)
    assert move.cost_usd == pytest.approx(start + overlap, abs=1e-5)
    assert move.worth


def test_work_that_was_not_saved_is_paid_again_at_the_new_price() -> None:
    quarter, half = (moved(0.5, Standing(unsaved=share)) for share in (0.25, 0.5))
    assert quarter.cost_usd == pytest.approx(0.5 * 80 / 3600 + 60 / 3600 + 0.5 * 900 / 3600, abs=1e-5)
    assert quarter.worth  # 0.25 against 1.2 x 0.153
    assert not half.worth  # 0.25 against 1.2 x 0.278


@pytest.mark.real
def test_what_is_left_of_the_billing_minimum_is_paid_for_nothing() -> None:
    assert moved(0.5, Standing(minimum_left_s=30)).cost_usd == moved(0.5).cost_usd
    longer = moved(0.5, Standing(minimum_left_s=240)).cost_usd
    assert longer - moved(0.5).cost_usd == pytest.approx(180 / 3600, abs=1e-9)
    # Of a new minimum of 3600 s start and work use 1880.
    short = moved(0.5, billing_minimum_s=3600.0).cost_usd
    assert short - moved(0.5).cost_usd == pytest.approx(0.5 * 1720 / 3600, abs=1e-9)


def test_a_price_below_the_cost_of_the_switch_is_not_followed_without_a_hint() -> None:
    """At 0.92 the move gains 0.0400 USD, the switch costs 0.0371: within the margin of a fifth."""
    assert moved(0.92).gain_usd > moved(0.92).cost_usd
    assert not moved(0.92).worth
    assert moved(0.92, Standing(hinted=True)).worth


def test_a_move_that_saves_the_deadline_need_not_gain_anything() -> None:
    late = replace(HALF_DONE, kind="deadline", slack_s=1500.0)
    assert not moved(2.5, task=replace(late, slack_s=4000.0), speed=2.0).worth
    assert moved(2.5, task=late, speed=2.0).worth
    assert not moved(2.5, task=late, speed=1.1).worth  # it would be late there too


def test_several_instances_cost_several_times_as_much() -> None:
    three = moved(0.5, task=replace(HALF_DONE, resources=Resources(instances=3)))
    assert three.cost_usd == pytest.approx(3 * moved(0.5).cost_usd)


def test_how_a_running_task_stands() -> None:
    def held(launched_s: float | None, *, rebalance: bool = False, notice_s: float | None = None) -> Any:
        place = replace(SPOT, billing_minimum_s=60.0)
        return SimpleNamespace(offer=place, launched_s=launched_s, rebalance=rebalance, notice_s=notice_s)

    def stands(*instances: Any, phase: Phase = Phase.RUNNING, saved: float = 0.5) -> Standing:
        task: Any = SimpleNamespace(phase=phase, progress=0.75, saved=saved)
        return standing_of(task, instances, 1000.0)

    # The younger one has run for 30 s of the 60 that are paid in any case.
    assert stands(held(970.0), held(950.0)) == Standing(unsaved=0.25, minimum_left_s=30.0, hinted=False)
    assert stands(held(None)).minimum_left_s == 60.0, "it was only asked for"
    assert stands(held(900.0)).minimum_left_s == 0.0
    assert stands(held(970.0), saved=0.8).unsaved == 0.0
    assert stands(held(970.0), phase=Phase.STARTING).unsaved == 0.0
    assert stands(held(970.0), held(970.0, rebalance=True)).hinted
    assert stands(held(970.0), held(970.0, notice_s=1100.0)).hinted


@pytest.mark.parametrize(
    ("changes", "usd", "leaves"),
    [
        pytest.param({}, 0.001, True, id="no round is paid"),
        pytest.param({}, 1.0, False, id="one is"),
        pytest.param({"here": "spot"}, 0.001, False, id="it has a place"),
        pytest.param({"executions_left": 0}, 0.001, False, id="it has delivered all"),
        pytest.param(
            {"places": Places(regions=("elsewhere",))}, 0.001, False, id="it may go nowhere in any case"
        ),
        pytest.param({}, None, False, id="it has no budget"),
    ],
)
def test_a_client_leaves_whose_budget_pays_nowhere(
    changes: dict[str, Any], usd: float | None, leaves: bool
) -> None:
    client = need(kind="federated", round=Round(budget_left_usd=usd), **changes)
    why = "its budget leaves 0.0010 USD, which pays no further round anywhere"
    assert pays_nowhere(client, OFFERS) == (why if leaves else "")


@pytest.mark.parametrize(
    ("quorum", "gone", "needed"),
    [
        (None, "", 0),
        (None, "ab", 0),
        (None, "abc", 1),
        ("0", "abc", 1),
        ("1", "ab", 0),
        ("2", "ab", 2),
        ("9", "", 0),
        ("9", "ab", 9),
        ("most", "ab", 0),
    ],
)
def test_a_training_ends_when_fewer_are_left_than_its_quorum(
    quorum: str | None, gone: str, needed: int
) -> None:
    clients = tuple(FlowerClient(name=name) for name in "abc")
    run_config = {} if quorum is None else {"quorum": quorum}
    work = Flower(kind="flower", app="x", rounds=9, clients=clients, run_config=run_config)
    job: Any = SimpleNamespace(spec=SimpleNamespace(work=work))
    tasks: Any = [
        SimpleNamespace(
            key=TaskKey("job", f"client-{name}"), phase=Phase.LEFT if name in gone else Phase.RUNNING
        )
        for name in "abc"
    ]
    why = f"{3 - len(gone)} of 3 clients are left, {needed} are needed: "
    why += f"the budget of {', '.join(gone)} is spent; raise it or lower the quorum"
    assert too_few(job, tasks) == (why if needed else "")


@pytest.mark.parametrize("all_have_budgets", [True, False])
def test_who_has_instances_and_no_budget_left_leaves(
    all_have_budgets: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    budgets_usd: dict[str, float | None] = {
        "none": None,
        "waits": 1.0,
        "left": 1.0,
        "just": 1.0,
        "spent": 1.0,
        "too": 2.0,
    }
    if all_have_budgets:
        del budgets_usd["none"]
    clients = tuple(FlowerClient(name=name, budget_usd=usd) for name, usd in budgets_usd.items())
    work = Flower(kind="flower", app="x", rounds=9, clients=clients, server=FlowerServer())
    job: Any = SimpleNamespace(job_id="job", spec=SimpleNamespace(work=work))
    tasks = [
        SimpleNamespace(
            key=TaskKey("job", name),
            instances=() if name == "client-waits" else ("i",),
            phase=Phase.LEFT if name == "client-left" else Phase.RUNNING,
        )
        for name in ("server", *(f"client-{name}" for name in budgets_usd))
    ]
    costs_usd = {task.key.task: 3.0 for task in tasks} | {"client-just": 1.0, "client-spent": 1.01}
    bills = {name: Bill(cost=round(usd * CHARGES_PER_USD)) for name, usd in costs_usd.items()}
    told: list[tuple[str, str, float]] = []
    monkeypatch.setattr(
        "spotweave.deploy.scheduler.guards.leave",
        lambda _, task, why, now_s: told.append((task.key.task, why, now_s)),
    )
    store: Any = SimpleNamespace(
        costs=SimpleNamespace(of_tasks=lambda job_id, soon_s: bills if soon_s == 160.0 else {}),
        tasks=SimpleNamespace(of_job=lambda job_id: tasks),
        transaction=nullcontext,
    )
    leave_the_spent(store, job, 100.0, 160.0)
    assert told == [
        ("client-spent", "its budget of 1 USD is spent", 100.0),
        ("client-too", "its budget of 2 USD is spent", 100.0),
    ]


def test_a_choice_that_does_not_stand_says_why() -> None:
    strict = Guards(GuardsConfig(margin_s=60.0, margin_share=0.1))

    def outcome(task: Need, chosen: str, **more: Any) -> Outcome:
        return strict.bound(row_of(task), task, chosen, OFFERS, **more)

    poor = outcome(need(), "spot", left_usd=0.001)
    assert poor == Outcome(None, "budgets leave 0.0010 USD, a start there costs more")
    assert outcome(need(), "spot", left_usd=need().start_usd(SPOT)) == Outcome("spot")
    late = outcome(need(kind="deadline", slack_s=400.0), "spot")
    assert late.offer_id == "fast"
    assert late.overruled.endswith("no more time for spot")
    # On the faster type at three times the price the 300 s that are left cost more.
    stays = outcome(need(**ON_SURE), "fast", standing=Standing(unsaved=0.1))
    assert stays.offer_id is None
    assert stays.gain_usd is not None
    assert stays.cost_usd is not None
    assert stays.gain_usd < stays.cost_usd
    gain_usd, cost_usd = stays.gain_usd, stays.cost_usd
    assert (
        stays.overruled == f"it stays: moving gains {gain_usd:.4f} USD, the switch costs {cost_usd:.4f} USD"
    )


@pytest.mark.parametrize(("chosen", "words"), [(None, "waiting"), ("spot", "spot")])
def test_the_net_says_what_on_demand_capacity_needs(chosen: str | None, words: str) -> None:
    task = need(kind="deadline", standard_s=1000.0, slack_s=900.0)
    fastest_s = task.finish_s(FAST)
    assert task.finish_s(SPOT) != fastest_s
    assert net_words(row_of(task), task, [one.offer_id for one in OFFERS], chosen) == (
        f"the deadline is in 900 s and on-demand capacity needs {fastest_s:.0f} s: no more time for {words}"
    )


def test_a_job_whose_budget_pays_one_start_just_so_starts() -> None:
    least_usd = need().start_usd(SPOT)
    assert starts_nowhere(need(budget_left_usd=least_usd), [SPOT]) == ""
    why = f"its budget leaves {0.9 * least_usd:.4f} USD, which pays no further start anywhere"
    assert starts_nowhere(need(budget_left_usd=0.9 * least_usd), [SPOT]) == why
    assert starts_nowhere(need(budget_left_usd=least_usd), [SURE, SPOT]) == ""
    nowhere = need(budget_left_usd=0.0, places=Places(regions=("elsewhere",)))
    assert starts_nowhere(nowhere, OFFERS) == ""


def test_a_mean_price_weighs_each_price_by_its_time(store: Store) -> None:
    quoted = offer("spot", price_usd_hour=0.5)
    with store.transaction():
        for price, moment in ((0.2, 0.0), (0.6, 3000.0), (0.4, 6000.0)):
            store.prices.record([replace(quoted, price_usd_hour=price)], moment)
    assert mean_usd_hour(quoted, store.prices, 8000.0, 20_000.0) == pytest.approx(3200 / 8000)
    assert mean_usd_hour(quoted, store.prices, 8000.0, 4000.0) == pytest.approx(0.5)
    assert mean_usd_hour(offer("unseen", price_usd_hour=0.7), store.prices, 8000.0, 4000.0) == 0.7
    # Of no time at all the mean is the price of now, of a second the one that was seen.
    assert mean_usd_hour(quoted, store.prices, 0.0, 4000.0) == 0.5
    assert mean_usd_hour(quoted, store.prices, 1.0, 4000.0) == pytest.approx(0.2)


def swinging(swing: bool, settings: SchedulerSettings, folder: Path, market: Market = "on_demand") -> World:
    """Two on-demand offers: prices swap every half hour, or one of them falls for good after two hours."""

    def first(now_s: float) -> float:
        return 0.3 if not swing or int((now_s - START) // 1800) % 2 == 0 else 0.5

    def second(now_s: float) -> float:
        if swing:
            return 0.8 - first(now_s)
        return 0.1 if now_s - START >= 7200 else 0.5

    offers = [
        rentable(name, market, prices=price, launch_s=60.0) for name, price in (("a", first), ("b", second))
    ]
    return World(folder, offers, Restless(), settings=settings)


SLOW = SchedulerSettings(period_s=300.0, ask_again_s=300.0, reconsider_s=600.0)
QUICK = SchedulerSettings(period_s=10.0, ask_again_s=10.0, reconsider_s=100.0)


@pytest.mark.real
def test_nobody_runs_after_prices_that_swing_for_a_day(tmp_path: Path) -> None:
    world = swinging(True, SLOW, tmp_path)
    job = world.submit(batch(work_s=86_400.0))
    world.ends_well(job, most_s=100_000.0)
    assert world.events("task.moved") == []
    # Asked every ten minutes all day: that it stays, by choice and for the cost, is written down once each.
    placed, *stayed = reversed(world.store.decisions.latest(100, job_id=job))
    assert (placed.chosen, [one.chosen for one in stayed]) == ("a", [None, None])
    (by_cost,) = (one for one in stayed if any("it stays" in item.reason for item in one.candidates))
    assert "moving gains" in next(one.reason for one in by_cost.candidates if one.offer_id == "b")


@pytest.mark.real
def test_without_a_memory_of_prices_it_would_run_after_them(tmp_path: Path) -> None:
    world = swinging(True, replace(SLOW, guards=GuardsConfig(price_memory_s=1.0)), tmp_path)
    world.submit(batch(work_s=28_800.0))
    world.until_all_end()
    assert len(world.events("task.moved")) > 8


def test_a_price_that_falls_for_good_is_followed_once(tmp_path: Path) -> None:
    world = swinging(False, SLOW, tmp_path)
    job = world.submit(batch(work_s=21_600.0))
    world.ends_well(job, most_s=100_000.0)
    (event,) = world.events("task.moved")
    assert (event.data["from"], event.data["to"]) == ("a", "b")
    assert event.data["gain_usd"] > 1.2 * event.data["cost_usd"] > 0
    assert event.decision_id is not None
    assert world.store.decisions.get(event.decision_id).chosen == "b"
    assert world.cloud.completions == {TaskKey(job, "main"): 1}
    assert world.metric("moves_total") == 1


@pytest.mark.real
@pytest.mark.parametrize("market", ["on_demand", "spot"])
def test_a_stream_moves_when_a_batch_has_ended(market: Market, tmp_path: Path) -> None:
    """Batches of 1000 s, a pass every 300 s; the price falls after two hours, in the eighth batch."""
    world = swinging(False, SLOW, tmp_path, market)
    work = SparkStreaming(script="s.py", period_s=1000.0, batch_deadline_s=500.0, batches=30)
    job = world.submit(JobSpec(name="clicks", work=work))
    world.ends_well(job, most_s=100_000.0)
    (event,) = world.events("task.moved")
    assert (event.data["from"], event.data["to"]) == ("a", "b")
    decided_s = world.store.decisions.get(event.decision_id or 0).time_s
    began_s = min(one.began_s for one in world.cloud.works.values())
    assert decided_s - START >= 7200
    assert (decided_s - began_s) // 1000 > (decided_s - 300.0 - began_s) // 1000  # a batch ended since
    assert world.cloud.completions == {TaskKey(job, "main"): 1}


def test_what_runs_on_spot_capacity_is_not_asked_about_again_as_in_training(tmp_path: Path) -> None:
    world = swinging(False, SLOW, tmp_path, market="spot")
    job = world.submit(batch(work_s=21_600.0))
    world.until_all_end(100_000.0)
    assert world.events("task.moved") == []
    (placed,) = world.store.decisions.latest(100, job_id=job)
    assert placed.chosen == "a"


@pytest.mark.real
def test_the_old_place_is_kept_until_the_new_one_is_ready(tmp_path: Path) -> None:
    """Spot capacity comes after 400 s; its launch takes 30 s, in which the work goes on."""
    later = cheap_and_sure(available=lambda now_s: now_s - START >= 400)
    world = World(tmp_path, later, Restless(), settings=QUICK)
    job = world.submit(batch(work_s=2000.0))
    world.go(600)
    old, new = (machine.report for machine in world.cloud.machines.values())
    assert (old.offer_id, new.offer_id) == ("sure", "spot")
    assert old.ended_s is not None
    assert 30 <= old.ended_s - new.launched_s <= 60
    world.ends_well(job)
    assert world.events("task.lost") == []


@pytest.mark.real
@pytest.mark.parametrize("restarts", [False, True])
def test_a_move_to_what_is_not_to_be_had_leaves_the_task_where_it_is(tmp_path: Path, restarts: bool) -> None:
    offers = cheap_and_sure(available=lambda now_s: now_s - START >= 400)
    # It is shown, and every launch there is refused for want of room.
    offers[0].offer = replace(offers[0].offer, quota=4)
    world = World(tmp_path, offers, Restless(), settings=QUICK)

    def refuse(request: LaunchRequest) -> None:
        if request.offer_id == "spot":
            raise CapacityError("no room")

    world.before_launches(refuse)
    job = world.submit(batch(work_s=1200.0))
    for _ in range(200):
        world.go(10)
        if restarts and world.store.intents.pending():
            world.restart()
            world.before_launches(refuse)
    assert world.state(job) is JobState.SUCCEEDED
    assert world.events("task.stayed")
    assert world.events("task.moved") == []
    assert world.offers_taken() == ["sure"]
    world.check_nothing_is_left()


@pytest.mark.real
def test_what_a_notice_dooms_is_replaced_while_it_still_works(world: World) -> None:
    job = world.submit(batch(work_s=2000.0))
    world.go(300)
    (machine,) = world.cloud.machines.values()
    machine.report = replace(machine.report, notice_s=world.clock.now() + 120)
    world.go(120)
    world.cloud.kill(machine.report.instance_id, by_provider=True)
    world.ends_well(job)
    assert world.events("task.lost") == []
    # Not to where the next one would be ended too.
    assert [event.data["to"] for event in world.events("task.moved")] == ["sure"]
    assert world.offers_taken() == ["spot", "sure"]


@pytest.mark.real
def test_a_hint_to_leave_is_asked_about_at_once_and_once(tmp_path: Path) -> None:
    world = World(tmp_path, cheap_and_sure(available=lambda now_s: now_s - START >= 200), Restless())
    job = world.submit(batch(work_s=3000.0))
    world.go(400)
    assert world.events("task.moved") == []
    (machine,) = world.cloud.machines.values()
    machine.report = replace(machine.report, rebalance=True)
    world.go(100)
    assert [event.data["to"] for event in world.events("task.moved")] == ["spot"]
    world.cancel(job)
    world.go(100)
    world.check_nothing_is_left()


def test_how_long_a_batch_took_counts_at_the_speed_it_ran_at() -> None:
    """600 s at half the speed are 300 s at the reference speed, and 200 s at one and a half times that."""
    stream = need(kind="streaming", standard_s=1.0).measured(600.0, 0.5)
    assert stream.standard_s == pytest.approx(300.0)
    assert stream.execution_s(0.5) == 600
    assert stream.execution_s(1.5) == 200
