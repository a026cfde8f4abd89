"""How fast worlds are simulated, and executions of plans."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import cast

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from benchmarks.measurement import Measurement, at_most, one_core, timed
from spotweave.agents.bags.schedulers import Hads
from spotweave.agents.federated.rules.fed_cost_aware import FedCostAware
from spotweave.agents.rules import make_rule
from spotweave.agents.stored import policy_file
from spotweave.agents.workflows.planners import plan_workflow
from spotweave.envs.environments import ENVIRONMENTS, register
from spotweave.envs.simulation.bags.cases import SCENARIOS, drawn
from spotweave.envs.simulation.bags.execution import Execution
from spotweave.envs.simulation.federations.rounds.application import (
    Application,
    Client,
    Market,
    Offer,
    Tariff,
)
from spotweave.envs.simulation.federations.rounds.world import play as play_rounds
from spotweave.envs.simulation.snapshot import Observation
from spotweave.envs.simulation.streams import Streams
from spotweave.envs.simulation.workflows.families import drawn_platform, family_workflow, scaled
from spotweave.training.checkpoint import load_policy
from spotweave.training.config import compose_values, world_config
from spotweave.training.evaluation.episodes import Suite, run_suite
from spotweave.training.studies.bags.chapter_7 import ENVIRONMENT, starting_plan

COPIES = 64
REPEATS = 5
REPEAT_S = 1.5
"""CPU seconds of one repeat; the median repeat counts. Warm-up (compilation) comes before the first."""
RULE_BAR_MS, POLICY_BAR_MS = 5.0, 8.0
EXECUTIONS = APPLICATIONS = 1000
STEPS = 1200  # about: this draw has somewhat more than 1,000
CLUSTERS = 20


def measure_steps(
    env_id: str, rule: str, single_bar: float, vector_bar: float, *, smallest: bool = False
) -> Iterator[Measurement]:
    """One copy of an environment, and 64 copies in one call; the rule's time and resets are included."""
    title = env_id.removeprefix("spotweave/")
    register()
    note = f"{rule} decides, resets included, per CPU second of one core"
    forms = (("one copy", _single, single_bar), (f"{COPIES} copies", _vector, vector_bar))
    with one_core():
        for form, played, bar in forms:
            rate = _rate(played(env_id, rule), 1 if smallest else REPEATS, 0.01 if smallest else REPEAT_S)
            yield Measurement(f"{title}, {form}", rate, "steps/s", bar, note=note)


def _rate(play: Callable[[], int], repeats: int, repeat_s: float) -> float:
    """Median steps per CPU second over the repeats after the first, which compiles.

    CPU seconds, so that neighbours cost nothing. `play` takes some steps and tells how many.
    """
    rates = []
    for _ in range(1 + repeats):
        steps, spent_s, started = 0, 0.0, time.process_time()
        while spent_s < repeat_s:
            steps += play()
            spent_s = time.process_time() - started
        rates.append(steps / spent_s)
    return statistics.median(rates[1:])


def _single(env_id: str, rule: str) -> Callable[[], int]:
    # Gymnasium's checker compares every step with the spaces; nobody trains with it.
    env = gymnasium.make(env_id, disable_env_checker=True)
    policy = make_rule(rule)
    observation, _ = env.reset(seed=0)
    policy.begin(0, 0)

    def play() -> int:
        nonlocal observation
        for _ in range(100):
            action = policy.act(cast(Observation, observation))
            observation, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                observation, _ = env.reset()
                policy.begin(0, 0)
        return 100

    return play


def _vector(env_id: str, rule: str) -> Callable[[], int]:
    # In the mode SAME_STEP every observation belongs to a decision, so that the rule can act on all of them.
    env = gymnasium.make_vec(
        env_id,
        num_envs=COPIES,
        vectorization_mode="vector_entry_point",
        autoreset_mode=AutoresetMode.SAME_STEP,
        copy=False,
    )
    policy = make_rule(rule)
    observations, _ = env.reset(seed=0)
    lanes = np.arange(COPIES)
    for lane in range(COPIES):
        policy.begin(lane, lane)

    def play() -> int:
        nonlocal observations
        for _ in range(20):
            actions = policy.act_batch(cast(Observation, observations), lanes)
            observations, _, _, _, _ = env.step(actions)
        return 20 * COPIES

    return play


def measure_episodes(*, smallest: bool = False) -> Iterator[Measurement]:
    """Whole episodes in the default market, which is what learning is bought with; the draws are included.

    The strongest rule and the released policy play 64 episodes at the same time.
    """
    config = world_config(compose_values("compare", ["+env=multicloud", "+env/markets=default"])["env"])
    world = ENVIRONMENTS["multicloud"].build(config, COPIES)
    released = load_policy(policy_file("multicloud"), world.spec)
    suite = Suite("benchmark", "validation", 0, 2 if smallest else 4 * COPIES)
    for policy, bar_ms in ((make_rule("expected_cost"), RULE_BAR_MS), (released, POLICY_BAR_MS)):
        run_suite(world, policy, Suite("warm-up", "validation", 1, 2))  # compiles
        results, spent_s = timed(run_suite, world, policy, suite)
        decisions = sum(result.decisions for result in results) / len(results)
        yield at_most(
            f"{policy.name}, an episode",
            1000.0 * spent_s / len(results),
            "ms",
            bar_ms,
            note=f"{decisions:.0f} decisions, draws and metrics included, per CPU second of one core",
        )


def measure_bags(*, smallest: bool = False) -> Iterator[Measurement]:
    """The job ED200 under HADS while its spot VMs hibernate and resume; the plan is made beforehand."""
    plan, scenario = starting_plan("ED200"), SCENARIOS["sc_4"]
    executions = 2 if smallest else EXECUTIONS

    def run(seeds: range) -> None:
        for seed in seeds:
            Execution(plan, ENVIRONMENT, drawn(scenario, seed), Hads()).run()

    run(range(executions, executions + 1))
    _, seconds = timed(run, range(executions))
    yield at_most(
        f"{executions:,} executions of 200 tasks on 16 spot VMs",
        seconds,
        "s",
        60.0,
        note=f"HADS decides, scenario sc_4; {executions / seconds:.0f} per CPU second of one core",
    )


def application() -> Application:
    """8 clients over two zones with prices that change, and interruptions every six hours on average."""
    offers = tuple(
        Offer(
            f"zone {zone} spot",
            f"zone {zone}",
            Market.SPOT,
            Tariff(
                [3600 * hour for hour in range(48)], [0.35 + 0.01 * ((hour + zone) % 7) for hour in range(48)]
            ),
            mean_time_to_interruption_s=6 * 3600.0,
        )
        for zone in range(2)
    )
    clients = tuple(
        Client(f"client {k}", 900.0 * 0.7**k, 900.0 * 0.7**k + 130.0, 180.0, (0, 1), budget_usd=50.0)
        for k in range(8)
    )
    return Application("benchmark", 30, clients, offers, epoch_cv=0.01, spin_up_cv=0.1)


def measure_rounds(*, smallest: bool = False) -> Iterator[Measurement]:
    """Applications of 30 synchronous rounds with 8 clients under FedCostAware."""
    example, policy = application(), FedCostAware()
    applications = 2 if smallest else APPLICATIONS
    play_rounds(example, policy, applications)
    _, seconds = timed(lambda: [play_rounds(example, policy, seed) for seed in range(applications)])
    yield at_most(
        f"{applications:,} federated applications, 30 rounds, 8 clients",
        seconds,
        "s",
        30.0,
        note="FedCostAware decides; changing prices, interruptions and budgets; CPU seconds of one core",
    )


def measure_workflows(*, smallest: bool = False) -> Iterator[Measurement]:
    """Planning a workflow of 1,000 steps on 20 clusters by annealing, with all checks."""
    random = Streams(0).generator("job_sizes")
    platform = drawn_platform(CLUSTERS, random)
    small = family_workflow("montage", 50, random, ("cluster-1",))
    large = small if smallest else family_workflow("montage", STEPS, random, ("cluster-1",))
    workflow = scaled(large, platform, 60.0, 1.0)
    plan_workflow("annealing", small, platform)
    _, seconds = timed(plan_workflow, "annealing", workflow, platform)
    yield at_most(
        f"a plan of {len(workflow.steps):,} steps on {CLUSTERS} clusters",
        seconds,
        "s",
        5.0,
        note="Montage, annealing with its default settings, one core",
    )
