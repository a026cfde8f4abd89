"""What every world keeps, whatever it simulates and whatever is decided."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from spotweave.envs.bags_episodes import BagsConfig
from spotweave.envs.environments import ENVIRONMENTS
from spotweave.envs.federated_episodes import FederatedConfig
from spotweave.envs.infrastructure import AnyClustersConfig
from spotweave.envs.render import draw_gantt
from spotweave.envs.simulation.arrivals import ArrivalConfig
from spotweave.envs.simulation.market import config as groups
from spotweave.envs.simulation.market.config import MarketConfig, MarketWorldConfig
from spotweave.envs.simulation.market.config import WorkloadConfig as MarketWorkload
from spotweave.envs.simulation.market.world import MarketWorld
from spotweave.envs.simulation.slices.config import Chapter4Config, SliceWorldConfig, ValueConfig
from spotweave.envs.simulation.slices.config import WorkloadConfig as SliceWorkload
from spotweave.envs.simulation.streams import SPLITS
from spotweave.envs.simulation.world import BatchWorld, EpisodeKey, Timeline, WorldError
from spotweave.envs.spot_episodes import SpotConfig
from spotweave.envs.workflows_episodes import WorkflowsConfig
from tests.envs.checks import refused
from tests.envs.market_cases import federated_config, random_market, small_config

CONFIGS: dict[str, Any] = {
    "multicloud": MarketWorldConfig(MarketWorkload(jobs=12)),
    "multicluster": SliceWorldConfig(n_jobs=20, allow_none=True),
    "anyclusters": AnyClustersConfig(clusters=4, world=SliceWorldConfig(n_jobs=20)),
    "chapter4": Chapter4Config("beta", "stressed", n_jobs=20),
    "federated": FederatedConfig(clients_most=4, rounds_most=6),
    "spot": SpotConfig(work_h=6, launch_failure=0.2, notice_s=600),
    "bags": BagsConfig(),
    "workflows": WorkflowsConfig(steps=20),
}
WORLDS: dict[str, Callable[[int], BatchWorld]] = {
    **{name: lambda n, name=name: ENVIRONMENTS[name].build(CONFIGS[name], n) for name in CONFIGS},  # type: ignore[misc]
    "federated zones": lambda n: ENVIRONMENTS["federated"].build(
        FederatedConfig(market="zones", rounds_most=6, measured=True, budget_share=0.5), n
    ),
    "bags J60": lambda n: ENVIRONMENTS["bags"].build(
        BagsConfig(job="J60", scenario="s_2", deadline_s=2700, launch_s=180), n
    ),
    "random market": lambda n: MarketWorld(small_config(), random_market(4), n),
    "random market, federated": lambda n: MarketWorld(federated_config(), random_market(5), n),
}
KEYS = [EpisodeKey(2, "train", index) for index in range(3)]
every_world = pytest.mark.parametrize("build", WORLDS.values(), ids=WORLDS)


def shown(world: BatchWorld, lane: int) -> dict[str, NDArray[Any]]:
    return {name: np.array(array[lane]) for name, array in world.observation.items()}  # type: ignore[index]


def assert_shown(world: BatchWorld, lane: int, expected: dict[str, NDArray[Any]]) -> None:
    for name, array in shown(world, lane).items():
        np.testing.assert_array_equal(array, expected[name], err_msg=name)


def alone(world: BatchWorld, lane: int) -> NDArray[np.bool_]:
    return np.asarray(np.arange(world.n_lanes) == lane)


def step(world: BatchWorld, lane: int, action: int) -> tuple[float, bool]:
    """One decision in one lane."""
    rewards, done = world.step(np.full(world.n_lanes, action), alone(world, lane))
    return float(rewards[lane]), bool(done[lane])


def choose(world: BatchWorld, lane: int, rng: np.random.Generator) -> int:
    return int(rng.choice(np.flatnonzero(world.observation["action_mask"][lane])))


def play(world: BatchWorld, lane: int, seed: int, most: int = 100_000) -> list[tuple[int, float]]:
    """Random valid decisions in one lane, to the end unless told: (action, reward) of each."""
    rng, done = np.random.default_rng(seed), False
    taken: list[tuple[int, float]] = []
    while not done and len(taken) < most:
        action = choose(world, lane, rng)
        reward, done = step(world, lane, action)
        taken.append((action, reward))
    return taken


def test_every_environment_is_here() -> None:
    assert list(ENVIRONMENTS) == list(CONFIGS)


@every_world
def test_rewards_sum_to_the_objective(build: Callable[[int], BatchWorld]) -> None:
    world = build(1)
    for seed, key in enumerate(KEYS):
        world.reset([key])
        total = sum(reward for _, reward in play(world, 0, seed))
        metrics = world.metrics(0)
        assert tuple(metrics) == world.spec.metrics
        sign = 1 if world.spec.higher_is_better[0] else -1
        assert total == pytest.approx(sign * metrics[world.spec.metrics[0]], rel=1e-9, abs=1e-6)


@every_world
def test_an_invalid_action_is_refused_in_every_lane_and_changes_nothing(
    build: Callable[[int], BatchWorld],
) -> None:
    world, twin = build(2), build(2)
    for each in (world, twin):
        each.reset(KEYS[:2])
        play(each, 1, 0, most=3)
    before = [shown(world, lane) for lane in (0, 1)]
    masked = np.flatnonzero(world.observation["action_mask"][1] == 0).tolist()  # may be empty
    valid = choose(world, 0, np.random.default_rng(0))
    for wrong in (-1, world.spec.n_actions, 10_000, *masked[:1], *masked[-1:]):
        with pytest.raises(ValueError, match=rf"action {wrong} (in|of) lane 1 is ") as refused:
            world.step(np.array([valid, wrong]))
        assert "\n" not in str(refused.value)
        for lane in (0, 1):
            assert_shown(world, lane, before[lane])
    for lane in (0, 1):
        assert play(world, lane, 1) == play(twin, lane, 1)
        assert dict(world.metrics(lane)) == dict(twin.metrics(lane))


@every_world
def test_an_episode_that_has_ended_takes_no_action(build: Callable[[int], BatchWorld]) -> None:
    world = build(2)
    world.reset(KEYS[:2])
    play(world, 0, 0)
    assert not world.observation["action_mask"][0].any()
    with pytest.raises(ValueError, match=r"has ended|is not valid"):
        step(world, 0, 0)
    rewards, done = world.step(np.full(2, choose(world, 1, np.random.default_rng(0))), alone(world, 1))
    assert (rewards[0], done[0]) == (0, True)


@every_world
def test_lanes_do_not_disturb_each_other(build: Callable[[int], BatchWorld]) -> None:
    together, generators = build(3), [np.random.default_rng(lane) for lane in range(3)]
    together.reset(KEYS)
    taken: list[list[tuple[int, float]]] = [[], [], []]
    active = np.ones(3, np.bool_)
    while active.any():
        actions = np.zeros(3, np.int64)
        for lane in np.flatnonzero(active).tolist():
            actions[lane] = choose(together, lane, generators[lane])
        rewards, done = together.step(actions, active)
        for lane in np.flatnonzero(active).tolist():
            taken[lane].append((int(actions[lane]), float(rewards[lane])))
        active &= ~done
    single = build(1)
    for lane, key in enumerate(KEYS):
        single.reset([key])
        assert play(single, 0, lane) == taken[lane]
        assert dict(single.metrics(0)) == dict(together.metrics(lane))


@pytest.mark.parametrize("steps", [1, 9])
@every_world
def test_a_copied_lane_has_the_same_future_and_its_own(
    build: Callable[[int], BatchWorld], steps: int
) -> None:
    world, rng, done = build(3), np.random.default_rng(1), False
    world.reset(KEYS)
    play(world, 0, 0, most=5)
    world.copy_lanes(np.array([0, 0]), np.array([1, 2]))
    third, future = shown(world, 2), []
    while not done:
        assert_shown(world, 1, shown(world, 0))
        action = choose(world, 0, rng)
        rewards, ends = world.step(np.full(3, action), np.array([True, True, False]))
        assert (rewards[0], ends[0]) == (rewards[1], ends[1])
        assert world.decided_jobs()[0] == world.decided_jobs()[1]
        future.append((action, float(rewards[0])))
        done = bool(ends[0])
    metrics = dict(world.metrics(0))
    assert dict(world.metrics(1)) == metrics
    # A new episode where it was copied from leaves the copy as it was.
    world.reset([EpisodeKey(2, "train", 9)], [0])
    play(world, 0, 2, most=3)
    assert_shown(world, 2, third)
    assert [(action, step(world, 2, action)[0]) for action, _ in future] == future
    assert dict(world.metrics(2)) == metrics


@every_world
def test_an_episode_is_a_function_of_its_key_whatever_was_decided_before(
    build: Callable[[int], BatchWorld],
) -> None:
    fresh, used, key = build(1), build(1), EpisodeKey(3, "test", 5)
    fresh.reset([key])
    first = shown(fresh, 0)
    expected = play(fresh, 0, 7), dict(fresh.metrics(0))
    for seed in (1, 2):
        used.reset([key])
        assert_shown(used, 0, first)
        play(used, 0, seed)
        used.reset([KEYS[seed]])
        play(used, 0, seed, most=4)
    used.reset([key])
    assert (play(used, 0, 7), dict(used.metrics(0))) == expected


@every_world
def test_fingerprints_tell_episodes_apart_and_no_decision_changes_them(
    build: Callable[[int], BatchWorld],
) -> None:
    world = build(1)
    keys = [EpisodeKey(seed, split, index) for seed in (0, 1) for split in SPLITS for index in range(3)]
    prints = [world.fingerprint(key) for key in keys]
    assert len(set(prints)) == len(keys)
    assert all(len(one) == 64 for one in prints)
    world.reset(keys[:1])
    play(world, 0, 0)
    fresh = build(1)
    assert prints == [world.fingerprint(key) for key in keys] == [fresh.fingerprint(key) for key in keys]


@pytest.mark.parametrize("name", CONFIGS)
def test_an_episode_can_be_drawn_from_beginning_to_end(name: str) -> None:
    world: Any = ENVIRONMENTS[name].build_recording(CONFIGS[name])
    world.reset(KEYS[:1])
    blank = draw_gantt(world.timeline(0), window=(0.0, 1.0))
    while world.observation["action_mask"][0].any():
        play(world, 0, 0, most=5)
        assert all(part.start <= part.end for part in world.timeline(0).segments)
    timeline: Timeline = world.timeline(0)
    assert timeline.segments
    assert {part.cluster for part in timeline.segments} <= set(range(world.spec.n_clusters))
    assert (draw_gantt(timeline) != blank).any()


def market(**changes: Any) -> MarketWorldConfig:
    return MarketWorldConfig(market=MarketConfig(**changes))


def jobs(**changes: Any) -> MarketWorldConfig:
    return MarketWorldConfig(MarketWorkload(**changes))


def arriving(**changes: Any) -> SliceWorldConfig:
    return SliceWorldConfig(workload=SliceWorkload(arrivals=ArrivalConfig(**changes)))


def chapter4(pattern: Any, load: Any = "normal") -> Chapter4Config:
    return Chapter4Config(pattern, load)


def of_five(*factors: float) -> list[float]:
    return [*factors, *[80.0] * (5 - len(factors))]


REFUSED: dict[str, list[tuple[Any, str]]] = {
    "bags": [
        (BagsConfig(job="J61"), "env.job is 'J61': expected one of J60, J80, J100, ED200, or empty"),
        (BagsConfig(scenario="s_6"), "env.scenario: there is no scenario 's_6'"),
        (BagsConfig(deadline_s=0), "env.deadline_s is 0: expected seconds > 0"),
        (BagsConfig(launch_s=-1), "env.launch_s is -1: expected a number >= 0"),
        (BagsConfig(omega=1), "env.omega is 1: expected a number between 0 and 1"),
    ],
    "federated": [
        (FederatedConfig(clients_least=9), "env.clients_least is 9 and env.clients_most 8"),
        (FederatedConfig(rounds_least=0), "env.rounds_least is 0"),
        (FederatedConfig(time_weight=float("nan")), "env.time_weight is nan: expected a number >= 0"),
        (FederatedConfig(budget_share=1.5), "env.budget_share is 1.5"),
        (FederatedConfig(scenario="nope"), "nope: no such file, and no bundled scenario"),
    ],
    "workflows": [
        (WorkflowsConfig(family="montane"), "env.family is 'montane': expected one of 1000genome, blast"),
        (WorkflowsConfig(steps=3), "env.steps is 3: expected 10 to 500"),
        (WorkflowsConfig(ratio=0), "env.ratio is 0: expected a number > 0"),
        (WorkflowsConfig(private_share=2), "env.private_share is 2: expected a share in [0, 1]"),
        (WorkflowsConfig(owned_executors=-1), "env.owned_executors is -1: expected a number >= 0"),
        (WorkflowsConfig(spot_quota=0), "market.spot_quota is 0"),
        (WorkflowsConfig(offers=["x"]), "market.offers has 'x'"),
        (WorkflowsConfig(offers=["aws/us-east-1a/p3.2xlarge/spot"]), "env.offers has no on-demand offer"),
        (WorkflowsConfig(instance="none.json"), "env.instance is 'none.json'"),
        (WorkflowsConfig(family="blast", instance="x"), "env.family is 'blast' beside env.instance"),
    ],
    "spot": [
        (SpotConfig(zones=["us-east-9x"]), "env.zones has 'us-east-9x': expected different zones among us-"),
        (SpotConfig(deadline_h=40.0), "env.deadline_h is 40.0: expected more than env.work_h"),
        (SpotConfig(deadline_h=400.0), "no stretch of the train days holds 400 hours"),
        (SpotConfig(up_h=0.0), "env.up_h is 0.0: expected hours > 0"),
        (SpotConfig(launch_s=-1), "env.launch_s is -1: expected a number >= 0"),
        (SpotConfig(launch_failure=1.5), "env.launch_failure is 1.5: expected a share"),
        (SpotConfig(notice_missed=float("nan")), "env.notice_missed is nan: expected a share"),
    ],
    "multicloud": [
        (market(window=0), "market.window is 0"),
        (market(miss_usd=0.0), "market.miss_usd is 0.0"),
        (market(beta=1.5), "market.beta is 1.5"),
        (market(delay_usd_hour=float("nan")), "market.delay_usd_hour is nan"),
        (market(providers=["ibm"]), "names among aws, gcp, azure"),
        (market(offers=["aws/mars"]), "market.offers has 'aws/mars': expected names among aws/us-east-1a"),
        (jobs(jobs=0), "the workload is empty"),
        (jobs(general=0.9), "sum to 1"),
        (jobs(standard_s=[600, 500]), "workload.standard_s is [600, 500]"),
        (jobs(slack=[0.0, 1.0]), "workload.slack"),
        (jobs(gangs=[1, 2], gang_weights=[1.0]), "one weight"),
        (jobs(gangs=[64], gang_weights=[1.0]), "raise a quota"),
        (jobs(data_gb_median=float("nan")), "data_gb_median is nan"),
        (jobs(arrivals=ArrivalConfig(pattern="weekly")), "unknown arrival pattern"),
        (jobs(bags=groups.BagsConfig(share=1.5)), "workload.bags.share is 1.5"),
        (
            jobs(workflows=groups.WorkflowsConfig(share=0.5, width=[3, 2])),
            "workload.workflows.width is [3, 2]",
        ),
        (
            jobs(jobs=20, bags=groups.BagsConfig(share=0.6), workflows=groups.WorkflowsConfig(share=0.6)),
            "are 24 of 20 arrivals",
        ),
    ],
    "multicloud, federated": [
        (federated_config({"share": 0.0}), "applications.share is 0.0: expected a share in (0, 1]"),
        (federated_config({"clients": [0, 3]}), "workload.applications.clients is [0, 3]: expected two bou"),
        (federated_config({"rounds": [5, 2]}), "workload.applications.rounds is [5, 2]: expected two bounds"),
        (federated_config({"epoch_spread": 1.0}), "epoch_spread is 1.0: expected 0 <= spread < 1"),
        (federated_config({"budget": 1.5}), "applications.budget is 1.5: expected a share in [0, 1]"),
        (federated_config({"cold_share": [-0.1, 0.2]}), "workload.applications.cold_share"),
    ],
    "multicluster": [
        (SliceWorldConfig(n_jobs=0), "the workload is empty"),
        (SliceWorldConfig(capacities=[800]), "one entry per cluster"),
        (SliceWorldConfig(hetero_factors=of_five(0.0)), "hetero_factors > 0"),
        (SliceWorldConfig(capacities=[200, 1200, 1500, 1800, 2300]), "never fit on a cluster of 200"),
        (SliceWorldConfig(elastic_window=0), "env.elastic_window is 0"),
        (SliceWorldConfig(elastic_threshold=float("nan")), "env.elastic_threshold is nan"),
        (SliceWorldConfig(window=0), "env.window is 0"),
        (SliceWorldConfig(loads=[22, 33]), "loads [22, 33] stand for several worlds"),
        (SliceWorldConfig(value=ValueConfig(kind="chapter6")), "unknown value.kind 'chapter6'"),
        (SliceWorldConfig(value=ValueConfig(beta=1.5)), "value.beta is 1.5: expected a share"),
        (SliceWorldConfig(value=ValueConfig(p_m=0.5)), "value.p_m is 0.5: expected a number >= 1"),
        (SliceWorldConfig(workload=SliceWorkload(general=0.6)), "sum to 1"),
        (
            SliceWorldConfig(workload=SliceWorkload(slack=[0.4, 0.1])),
            "workload.slack is [0.4, 0.1]: expected two bounds",
        ),
        (
            SliceWorldConfig(workload=SliceWorkload(executions=[1])),
            "workload.executions is [1]: expected two bounds",
        ),
        (SliceWorldConfig(workload=SliceWorkload(max_peaks=5)), "max_peaks"),
        (arriving(pattern="weibull"), "unknown arrival pattern"),
        (arriving(a=5, b=4), "1 <= a <= b"),
        (arriving(pattern="bernoulli", p=0.0), "0 < p <= 1"),
        (arriving(pattern="beta", alpha=0.0), "alpha > 0"),
        (arriving(pattern="poisson", rate=0.0), "rate > 0"),
        (arriving(pattern="trace"), "the list is empty"),
        (arriving(pattern="trace", times=[4, 3]), "sorted times"),
        (arriving(pattern="trace", times=[1, 2]), "names 2 jobs, the episode needs 1000"),
        (arriving(jobs_std=-1.0), "jobs_std >= 0"),
    ],
    "anyclusters": [
        (AnyClustersConfig(), "clusters is 0, which stands for many infrastructures"),
        (AnyClustersConfig(clusters=-1), "env.clusters is -1: expected a number >= 0"),
        (AnyClustersConfig(clusters=3, members=0), "env.members is 0: expected a number >= 1"),
        (AnyClustersConfig(clusters=3, smallest=9, largest=4), "1 <= smallest <= largest, got 9 and 4"),
        (AnyClustersConfig(clusters=3, world=arriving(pattern="beta")), "need uniform arrivals, got 'beta'"),
    ],
    "chapter4": [
        (chapter4("weekly"), "unknown arrival pattern 'weekly' of chapter 4: expected one of uniform, bern"),
        (chapter4("beta", "heavy"), "unknown load 'heavy' of chapter 4: expected one of normal, eased, s"),
    ],
}


@pytest.mark.parametrize(
    ("name", "config", "message"),
    [(name.partition(",")[0], *row) for name, rows in REFUSED.items() for row in rows],
    ids=[f"{name}: {message}" for name, rows in REFUSED.items() for _, message in rows],
)
def test_a_configuration_that_makes_no_sense_is_refused_in_one_line(
    name: str, config: Any, message: str
) -> None:
    with refused(WorldError, message):
        ENVIRONMENTS[name].build(config, 1).reset([EpisodeKey(0, "train", 0)])
