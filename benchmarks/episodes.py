"""CPU time of a whole episode in the default market: what learning is bought with."""

from __future__ import annotations

import time
from collections.abc import Iterator

from agents.rules import make_rule
from agents.stored import policy_file
from benchmarks.machine import one_core
from benchmarks.measurement import Measurement
from envs.environments import ENVIRONMENTS
from training.checkpoint import load_policy
from training.evaluation.episodes import Suite, run_suite
from training.markets import market_config

COPIES = 64
RULE_BAR_MS, POLICY_BAR_MS = 5.0, 8.0


def measure(*, smallest: bool = False) -> Iterator[Measurement]:
    """The strongest rule and the released policy, 64 episodes at the same time; the draws are included."""
    world = ENVIRONMENTS["multicloud"].build(market_config("default"), COPIES)
    released = load_policy(policy_file("multicloud"), world.spec)
    suite = Suite("benchmark", "validation", 0, 2 if smallest else 4 * COPIES)
    for policy, bar_ms in ((make_rule("expected_cost"), RULE_BAR_MS), (released, POLICY_BAR_MS)):
        with one_core():
            run_suite(world, policy, Suite("warm-up", "validation", 1, 2))  # compiles
            started = time.process_time()
            results = run_suite(world, policy, suite)
            spent_ms = 1000.0 * (time.process_time() - started)
        decisions = sum(result.decisions for result in results) / len(results)
        note = f"{decisions:.0f} decisions, draws and metrics included, per CPU second of one core"
        yield Measurement(
            f"{policy.name}, an episode",
            spent_ms / len(results),
            "ms",
            bar_ms,
            higher_is_better=False,
            note=note,
        )
