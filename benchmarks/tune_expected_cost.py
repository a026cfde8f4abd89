"""Tune the parameters of the rule `expected_cost` by random search: python -m benchmarks.tune_expected_cost.

Only episodes of the "train" split are played, under a seed that no published suite uses, with the offers of
both clouds and with those of each alone: a rule shall not depend on one set of offers. Candidates are drawn
around the defaults and around the best so far; the best of a few episodes are measured on more. What comes
out on top is written into the defaults of `agents.rules.expected_cost.ExpectedCostParameters` by hand.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agents.rules import make_rule
from agents.rules.expected_cost import ExpectedCostParameters
from envs.multicloud import MarketWorldConfig, build_market
from envs.simulation.market.config import MarketConfig
from envs.simulation.market.world import MarketWorld
from training.evaluation.episodes import run_suite
from training.evaluation.suite import Suite

SEED = 4004
OBJECTIVE = "cost_usd_eq"
PROVIDERS = (("aws", "gcp"), ("aws",), ("gcp",))

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
}
SHARES: Mapping[str, tuple[float, float]] = {
    "spell_memory": (0.0, 1.0),
    "down_memory": (0.0, 1.0),
    "move_margin": (0.0, 0.6),
    "allowance": (1.0, 1.5),
}
WIDTH = 0.25
"""Standard deviation of a step around the best, as a share of the (logarithmic) range."""


@dataclass(frozen=True)
class Candidate:
    """Parameters and the mean objective in USD on the episodes that they were measured on."""

    parameters: dict[str, float]
    usd: float


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
    """(episodes,) objective in USD of the rule on training episodes, mean over the worlds."""
    rule = make_rule("expected_cost", parameters)
    suite = Suite("tuning", "train", SEED, episodes)
    played = [[result.metrics[OBJECTIVE] for result in run_suite(world, rule, suite)] for world in worlds]
    means: NDArray[np.float64] = np.array(played).mean(0)
    return means


def search(
    worlds: Sequence[MarketWorld], trials: int, few: int, many: int, finalists: int, seed: int
) -> Candidate:
    """The best of `trials` candidates: screened on `few` episodes, the finalists measured on `many`."""
    rng = np.random.default_rng(seed)
    defaults = {
        name: float(getattr(ExpectedCostParameters(), name)) for name in ExpectedCostParameters.names()
    }
    best = Candidate(defaults, float(measure(worlds, defaults, few).mean()))
    seen = [best]
    print(f"defaults: {best.usd:.1f} USD on {few} episodes")
    for trial in range(trials):
        # A quarter starts from the defaults, so that one lucky candidate does not decide everything.
        around = defaults if rng.random() < 0.25 else best.parameters
        parameters = draw(rng, around)
        candidate = Candidate(parameters, float(measure(worlds, parameters, few).mean()))
        seen.append(candidate)
        if candidate.usd < best.usd:
            best = candidate
            print(f"trial {trial + 1}: {best.usd:.1f} USD", flush=True)
    ranked = sorted(seen, key=lambda candidate: candidate.usd)[:finalists]
    measured = [Candidate(c.parameters, float(measure(worlds, c.parameters, many).mean())) for c in ranked]
    return min(measured, key=lambda candidate: candidate.usd)


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
    worlds = [
        build_market(MarketWorldConfig(market=MarketConfig(providers=list(names))), lanes)
        for names in PROVIDERS
    ]
    best = search(worlds, chosen.trials, chosen.few, chosen.many, chosen.finalists, chosen.seed)
    before = measure(worlds, {}, chosen.many)
    gain = before - measure(worlds, best.parameters, chosen.many)
    half = 1.96 * gain.std(ddof=1) / np.sqrt(len(gain))
    print(f"best on {chosen.many} training episodes: {best.usd:.1f} USD, defaults {before.mean():.1f} USD")
    print(f"paired gain over the defaults: {gain.mean():.1f} ± {half:.1f} USD an episode (95 %)")
    for name, value in best.parameters.items():
        print(f"    {name}: float = {value:.4g}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
