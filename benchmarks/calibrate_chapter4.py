"""Calibrate the jobs of Liu 2022, chapter 4: python -m benchmarks.calibrate_chapter4 [--joint] [--check].

The thesis gives the clusters and the arrival patterns of chapter 4, but no distribution of a job parameter.
It does give what the rule SF-E comes to in the mean of 50 episodes: TMDL and AJDR under three arrival
patterns (Table 4.2) and under "eased" and "stressed" workloads (Table 4.3). One set of distributions is
fitted to those ten numbers, from the distributions of chapter 5 on, with the published means' own errors as
units.

Means of episodes are noisy and step where a parameter is a whole number, so an optimiser that differentiates
them gets stuck. Instead, rounds of a response surface: parameters are drawn around the best so far, the
logarithms of the ten means are regressed on those of the parameters, and least squares on that surface gives
the next centre. Only episodes of the split "train" are played, under a seed that no published suite uses.

`--joint` also asks that the best rule known, `committed`, misses no more deadlines than the thesis's trained
agent: five more means, which say whether any workload of this family leaves as few misses as are printed.

What comes out is rounded by hand into `envs.simulation.slices.chapter4.chapter4`. `--check` fits nothing: it
plays that function's worlds with every rule on episodes that had no part in the fit.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares
from scipy.stats.qmc import LatinHypercube

from agents.named import rules_of
from agents.rules import make_rule
from envs.simulation.arrivals import ArrivalConfig
from envs.simulation.slices.chapter4 import chapter4
from envs.simulation.slices.config import SliceWorldConfig, WorkloadConfig
from envs.simulation.slices.world import SliceWorld
from envs.simulation.world import WorldError
from training.evaluation.episodes import run_suite
from training.evaluation.suite import Suite

SEED = 4004
CHECK_SEED = 5005
CHECK_EPISODES = 150
BEST_RULE = "committed"
PUBLISHED_EPISODES = 50


@dataclass(frozen=True)
class Case:
    """Published means of SF-E and of the trained agent, and the parameter that scales the streaming requests.

    Attributes:
        name: what is printed.
        arrivals: the pattern.
        tmdl: of SF-E.
        ajdr: of SF-E.
        trained_tmdl: of RL (RL-FC).
        scaled_by: the parameter; None: none.
    """

    name: str
    arrivals: ArrivalConfig
    tmdl: float
    ajdr: float
    trained_tmdl: float
    scaled_by: str | None = None

    def published(self, joint: bool) -> NDArray[np.float64]:
        """SF-E's TMDL and AJDR, and jointly the TMDL that the best rule shall not exceed."""
        return np.array([self.tmdl, self.ajdr, self.trained_tmdl][: 3 if joint else 2])


UNIFORM = ArrivalConfig("uniform", a=1, b=39)
CASES = (
    Case("bernoulli", ArrivalConfig("bernoulli", p=0.08), 189.34, 5.78, 35.04),
    Case("uniform", UNIFORM, 349.9, 10.80, 46.34),
    Case("beta", ArrivalConfig("beta", alpha=4.0, beta=2.0, maximum=30), 248.86, 6.07, 56.52),
    Case("uniform eased", UNIFORM, 140.52, 4.87, 16.36, "eased"),
    Case("uniform stressed", UNIFORM, 1027.86, 19.96, 350.44, "stressed"),
)

# A range [a, b] is searched as its middle and its half width / middle. Chapter 5's value, and how far (as a
# natural logarithm, its reach) a parameter may leave it before that counts like one standard error of a mean.
START: Mapping[str, tuple[float, float]] = {
    "request": (97.5, 0.4),
    "request_width": (0.69, 0.25),
    "streaming_request": (85.0, 0.4),
    "streaming_request_width": (0.65, 0.25),
    "standard": (87.5, 0.4),
    "standard_width": (0.6, 0.25),
    "streaming_standard": (42.5, 0.4),
    "streaming_standard_width": (0.53, 0.25),
    "executions": (22.0, 0.4),
    "executions_width": (0.55, 0.25),
    "period_factor": (1.75, 0.2),
    "peak_probability": (0.2, 0.5),
    "peak_excess": (0.6, 0.5),
    "lowest_slack": (0.10, 0.5),
    "slack_range": (0.32, 0.4),
    "eased": (0.85, 0.3),
    "stressed": (1.25, 0.3),
}


def around(middle: float, width: float) -> list[float]:
    """The range [a, b] with this middle and half width / middle, which stays below 1."""
    width = min(width, 0.95)
    return [middle * (1.0 - width), middle * (1.0 + width)]


def whole(bounds: Sequence[float]) -> list[int]:
    """Bounds as whole numbers of at least 1."""
    return [max(1, round(bound)) for bound in bounds]


def jobs(parameters: Mapping[str, float], case: Case) -> WorkloadConfig:
    """The workload that the parameters describe."""
    p = parameters
    scale = p[case.scaled_by] if case.scaled_by is not None else 1.0
    return WorkloadConfig(
        arrivals=case.arrivals,
        request=whole(around(p["request"], p["request_width"])),
        streaming_request=whole(around(p["streaming_request"] * scale, p["streaming_request_width"])),
        request_spread=[1.0, 1.0],  # Table 4.1 has one request distribution for all clusters
        standard=around(p["standard"], p["standard_width"]),
        streaming_standard=around(p["streaming_standard"], p["streaming_standard_width"]),
        executions=whole(around(p["executions"], p["executions_width"])),
        period_factor=around(p["period_factor"], 1.0 / 7.0),
        peak_probability=min(p["peak_probability"], 1.0),
        peak_factor=[1.0 + p["peak_excess"] / 3.0, 1.0 + p["peak_excess"] * 5.0 / 3.0],
        expected_hetero=[100, 100],
        slack=[p["lowest_slack"], p["lowest_slack"] + p["slack_range"]],
        overhead=0.0,
    )


def play(config: SliceWorldConfig, rule: str, suite: Suite) -> NDArray[np.float64]:
    """(episodes, 2) TMDL and AJDR of a rule, all episodes at the same time."""
    results = run_suite(SliceWorld(config, suite.episodes), make_rule(rule), suite)
    return np.array([[result.metrics["tmdl"], result.metrics["ajdr"]] for result in results])


@dataclass(frozen=True)
class Measured:
    """Means in a case, next to the published ones (`Case.published`).

    Attributes:
        means: (2 or 3,).
        errors: standard error of log(means / published): the published mean of 50 episodes has one too.
        off: that logarithm in such errors; of the best rule's misses only what exceeds the printed ones.
    """

    means: NDArray[np.float64]
    errors: NDArray[np.float64]
    off: NDArray[np.float64]


def compare(episodes: NDArray[np.float64], case: Case) -> Measured:
    """`episodes` (n, 2 or 3) next to the published means."""
    means = episodes.mean(axis=0)
    share = episodes.std(axis=0, ddof=1) / means
    errors = share * np.sqrt(1.0 / PUBLISHED_EPISODES + 1.0 / len(episodes))
    off = np.log(means / case.published(len(means) > 2)) / errors
    return Measured(means, errors, excess(off))


def excess(off: NDArray[np.float64]) -> NDArray[np.float64]:
    """(..., 2 or 3) distances: fewer misses of the best rule than printed are none."""
    found = off.copy()
    found[..., 2:] = np.maximum(found[..., 2:], 0.0)
    return found


def measure(parameters: Mapping[str, float], suite: Suite, strict_fifo: bool, joint: bool) -> list[Measured]:
    """SF-E in every case, and jointly the best rule."""
    measured: list[Measured] = []
    for case in CASES:
        config = chapter4()
        config.workload, config.strict_fifo = jobs(parameters, case), strict_fifo
        config.forecast = joint  # SF-E does not look at it
        episodes = play(config, "sf_e", suite)
        if joint:
            episodes = np.column_stack([episodes, play(config, BEST_RULE, suite)[:, 0]])
        measured.append(compare(episodes, case))
    return measured


@dataclass(frozen=True)
class Surface:
    """The logarithms of the means of all cases as a linear function of the logarithms of the parameters.

    Attributes:
        constant: (means,) at the centre.
        slopes: (17, means) by parameter, per unit of its reach.
    """

    constant: NDArray[np.float64]
    slopes: NDArray[np.float64]


def explore(
    centre: NDArray[np.float64],
    width: float,
    points: int,
    suite: Suite,
    strict_fifo: bool,
    joint: bool,
    seed: int,
) -> Surface:
    """Measure at `points` places within `width` reaches of the centre, and fit the surface."""
    names, start, reach = vectors()
    places = width * (2.0 * LatinHypercube(len(names), rng=seed).random(points) - 1.0)
    rows: list[NDArray[np.float64]] = []
    logs: list[NDArray[np.float64]] = []
    for place in places:
        parameters = dict(zip(names, start * np.exp((centre + place) * reach), strict=True))
        try:
            measured = measure(parameters, suite, strict_fifo, joint)
        except WorldError:  # a request that fits no cluster: nothing is known there
            continue
        rows.append(np.concatenate([[1.0], place]))
        logs.append(np.log(np.concatenate([case.means for case in measured])))
    found, *_ = np.linalg.lstsq(np.array(rows), np.array(logs), rcond=None)
    return Surface(found[0], found[1:])


def vectors() -> tuple[list[str], NDArray[np.float64], NDArray[np.float64]]:
    """Names, first values and reaches of the parameters."""
    names = list(START)
    return names, np.array([START[n][0] for n in names]), np.array([START[n][1] for n in names])


def fit(
    suite: Suite, strict_fifo: bool, joint: bool, points: int, widths: Sequence[float], seed: int
) -> dict[str, float]:
    """The parameters that come nearest to the published means and stay near those of chapter 5."""
    names, start, reach = vectors()
    centre = np.zeros(len(names))
    published = np.log(np.concatenate([case.published(joint) for case in CASES]))
    for number, width in enumerate(widths):
        surface = explore(centre, width, points, suite, strict_fifo, joint, seed + number)
        at_centre = dict(zip(names, start * np.exp(centre * reach), strict=True))
        errors = np.concatenate([case.errors for case in measure(at_centre, suite, strict_fifo, joint)])

        def residuals(
            place: NDArray[np.float64],
            surface: Surface = surface,
            errors: NDArray[np.float64] = errors,
            centre: NDArray[np.float64] = centre,
        ) -> NDArray[np.float64]:
            off = (surface.constant + place @ surface.slopes - published) / errors
            return np.concatenate([excess(off.reshape(len(CASES), -1)).ravel(), centre + place])

        found = least_squares(residuals, np.zeros(len(names)), bounds=(-1.5 * width, 1.5 * width))
        centre = centre + found.x
        print(
            f"round {number + 1}: sum of squares {2 * found.cost:.1f} on the surface, "
            f"{float((centre**2).sum()):.1f} of it for leaving chapter 5",
            flush=True,
        )
    return dict(zip(names, (start * np.exp(centre * reach)).tolist(), strict=True))


def check(episodes: int) -> None:
    """Print TMDL and AJDR of every rule in the worlds of `chapter4`, on episodes of other seeds."""
    suite = Suite("check", "validation", CHECK_SEED, episodes)
    for case in CASES:
        pattern, load = case.arrivals.pattern, case.scaled_by or "normal"
        print(f"{case.name}: published for SF-E {case.tmdl} / {case.ajdr}")
        for rule in rules_of("chapter4", "sf_e"):
            played = play(chapter4(pattern, load), rule, suite)
            means, errors = played.mean(axis=0), played.std(axis=0, ddof=1) / np.sqrt(episodes)
            print(
                f"    {rule:14} TMDL {means[0]:7.1f} ± {errors[0]:4.1f}"
                f"   AJDR {means[1]:6.2f} ± {errors[1]:.2f}"
                f"   Eval_app of the means {1.0 / (0.02 * means[0] + means[1]):.4f}",
                flush=True,
            )


def main(arguments: Sequence[str] | None = None) -> int:
    """Fit, and print the parameters and what they come to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--episodes", type=int, default=48, help="episodes of each case at each place")
    parser.add_argument("--points", type=int, default=60, help="places measured in a round")
    parser.add_argument(
        "--widths", type=float, nargs="+", default=[0.6, 0.6, 0.5, 0.4, 0.3], help="of the rounds, in reaches"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the places, not of the episodes")
    parser.add_argument(
        "--strict-fifo", action="store_true", help="local queues in which nothing overtakes their head"
    )
    parser.add_argument("--joint", action="store_true", help=f"RL's printed TMDL is reached by {BEST_RULE}")
    parser.add_argument("--check", action="store_true", help="measure every rule instead of fitting")
    chosen = parser.parse_args(arguments)
    if chosen.check:
        check(CHECK_EPISODES)
        return 0
    suite = Suite("calibration", "train", SEED, chosen.episodes)
    fifo, joint = chosen.strict_fifo, chosen.joint
    parameters = fit(suite, fifo, joint, chosen.points, chosen.widths, chosen.seed)
    measured = measure(parameters, Suite("calibration", "train", SEED, CHECK_EPISODES), fifo, joint)
    n_means = sum(len(case.means) for case in measured)
    print(f"squared errors of the {n_means} means: {sum(float((m.off**2).sum()) for m in measured):.1f}")
    for case, result in zip(CASES, measured, strict=True):
        print(
            f"{case.name:18} TMDL {result.means[0]:7.1f} (published {case.tmdl}, {result.off[0]:+.1f} errors)"
            f"  AJDR {result.means[1]:6.2f} (published {case.ajdr}, {result.off[1]:+.1f} errors)"
        )
        if joint:
            print(
                f"{'':18} {BEST_RULE}: TMDL {result.means[2]:7.1f} (RL, published: {case.trained_tmdl}, "
                f"{result.off[2]:+.1f} errors above)"
            )
    for name, value in parameters.items():
        print(f"    {name} = {value:.4g}")
    print(jobs(parameters, CASES[0]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
