"""Tune the parameters of the rule `expected_cost` by random search: python -m benchmarks.tune_expected_cost.

Only episodes of the "train" split are played, under a seed that no published suite uses, in every market of
configs/env/markets without federated work: a rule shall not depend on one set of offers. Costs count relative
to those of the defaults, so that no market outweighs the others. Candidates are drawn around the defaults and
around the best so far; the best on a few episodes are measured on more. What comes out on top is written into
the defaults of `agents.rules.expectation.ExpectedCostParameters` by hand.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agents.rules import make_rule
from agents.rules.expectation import ExpectedCostParameters
from envs.multicloud import build_market
from envs.simulation.market.world import MarketWorld
from training.evaluation.episodes import run_suite
from training.evaluation.suite import Suite
from training.markets import market_configs

SEED = 4004
OBJECTIVE = "cost_usd_eq"

# Prices of misses and delay are the objective's own, but a rule that looks one decision ahead may do better
# with others. `postpone_s` follows from the time between two decisions and stays.
RANGES: Mapping[str, tuple[float, float]] = {
    "miss_usd": (5.0, 60.0),
    "batch_miss_usd": (1.0, 15.0),
    "delay_usd_hour": (0.1, 2.0),
    "owned_usd_hour": (0.01, 2.0),
    "hazard": (0.02, 4.0),
    "typical_up_s": (1800.0, 43200.0),
    "typical_down_s": (900.0, 28800.0),
    "patience": (0.5, 30.0),
    "queue_s": (1800.0, 200000.0),
    "safety_s": (30.0, 1800.0),
    "move_usd": (0.05, 20.0),
    "queue_risk": (1.0, 100.0),
    "full_s": (1800.0, 200000.0),
    "ask_usd": (0.005, 0.3),
}
SHARES: Mapping[str, tuple[float, float]] = {
    "spell_memory": (0.0, 1.0),
    "down_memory": (0.0, 1.0),
    "move_margin": (0.0, 0.6),
    "allowance": (1.0, 1.5),
    "full_memory": (0.0, 2.0),
    "owned_power": (0.0, 1.5),
}
WIDTH = 0.25
"""Standard deviation of a step around the best, as a share of the (logarithmic) range."""


@dataclass(frozen=True)
class Candidate:
    """Parameters, and their cost in percent of what the defaults cost on the same episodes."""

    parameters: dict[str, float]
    percent: float


def draw(rng: np.random.Generator, around: Mapping[str, float]) -> dict[str, float]:
    """Parameters near `around`: about half of them are moved, within their ranges."""
    drawn = dict(around)
    for name, (low, high) in RANGES.items():
        if rng.random() < 0.5:
            step = rng.normal(0.0, WIDTH) * np.log(high / low)
            drawn[name] = float(np.clip(around[name] * np.exp(step), low, high))
    for name, (low, high) in SHARES.items():
        if rng.random() < 0.5:
            step = rng.normal(0.0, WIDTH) * (high - low)
            drawn[name] = float(np.clip(around[name] + step, low, high))
    return drawn


def measure(
    worlds: Sequence[MarketWorld], parameters: Mapping[str, float], episodes: int
) -> NDArray[np.float64]:
    """(worlds, episodes) objective in USD of the rule on training episodes."""
    rule = make_rule("expected_cost", parameters)
    suite = Suite("tuning", "train", SEED, episodes)
    return np.array([[r.metrics[OBJECTIVE] for r in run_suite(world, rule, suite)] for world in worlds])


def percent(usd: NDArray[np.float64], defaults: NDArray[np.float64]) -> float:
    """Cost in percent of that of the defaults, mean over the worlds."""
    return float(100.0 * (usd.mean(1) / defaults.mean(1)).mean())


def search(
    worlds: Sequence[MarketWorld], trials: int, few: int, many: int, finalists: int, seed: int
) -> Candidate:
    """The best of `trials` candidates: screened on `few` episodes, the finalists measured on `many`."""
    rng = np.random.default_rng(seed)
    defaults = {
        name: float(getattr(ExpectedCostParameters(), name)) for name in ExpectedCostParameters.names()
    }
    usd = measure(worlds, defaults, few)
    best = Candidate(defaults, 100.0)
    seen = [best]
    for trial in range(trials):
        # A quarter starts from the defaults, so that one lucky candidate does not decide everything.
        around = defaults if rng.random() < 0.25 else best.parameters
        parameters = draw(rng, around)
        candidate = Candidate(parameters, percent(measure(worlds, parameters, few), usd))
        seen.append(candidate)
        if candidate.percent < best.percent:
            best = candidate
            print(f"trial {trial + 1}: {best.percent:.2f} %", flush=True)
    ranked = sorted(seen, key=lambda candidate: candidate.percent)[:finalists]
    usd = measure(worlds, defaults, many)
    measured = [Candidate(c.parameters, percent(measure(worlds, c.parameters, many), usd)) for c in ranked]
    return min(measured, key=lambda candidate: candidate.percent)


def main(arguments: Sequence[str] | None = None) -> int:
    """Search and print the best parameters next to the defaults."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--trials", type=int, default=150)
    parser.add_argument("--few", type=int, default=16, help="episodes that a candidate is screened on")
    parser.add_argument("--many", type=int, default=64, help="episodes that the finalists are measured on")
    parser.add_argument("--finalists", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0, help="of the search, not of the episodes")
    chosen = parser.parse_args(arguments)
    lanes = max(chosen.few, chosen.many)
    configs = {name: one for name, one in market_configs().items() if not one.workload.federated}
    worlds = [build_market(one, lanes) for one in configs.values()]
    best = search(worlds, chosen.trials, chosen.few, chosen.many, chosen.finalists, chosen.seed)
    before = measure(worlds, {}, chosen.many)
    gain = before - measure(worlds, best.parameters, chosen.many)
    half = 1.96 * gain.std(1, ddof=1) / np.sqrt(chosen.many)
    print(f"best on {chosen.many} training episodes: {best.percent:.2f} % of what the defaults cost")
    for name, usd, mean, width in zip(configs, before.mean(1), gain.mean(1), half, strict=True):
        print(f"    {name:<12} defaults {usd:7.1f} USD, paired gain {mean:6.1f} ± {width:.1f} (95 %)")
    for name, value in best.parameters.items():
        print(f"    {name}: float = {value:.4g}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
