"""Simulated annealing: SimulatedAnnealing() of Liu 2022, Algorithm 2, lines 35 to 43, and Eq. 3.4."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agents.workflows.greedy import plan_greedily
from agents.workflows.lists import plan_by_cpop, plan_by_heft
from agents.workflows.moves import Graph, anneal, graph_of, worsening_s
from agents.workflows.solution import Solution, finish_s
from envs.simulation.streams import Streams
from envs.simulation.workflows.problem import Problem


@dataclass(frozen=True)
class AnnealingSettings:
    """How long and how hot.

    Attributes:
        iterations: k_max; the print does not say it.
        first_temperature: T at the start (line 37).
        cooling: T at the end as a share of it (line 37).
        first_acceptance: probability at the start of accepting a change that is worse by the mean of those
            tried at the start. It decides alpha, which the print chooses so that it is "very close to 1".
        tried: changes from which that mean is taken.
    """

    iterations: int = 50_000
    first_temperature: float = 100.0
    cooling: float = 0.001
    first_acceptance: float = 0.3
    tried: int = 200


DEFAULTS = AnnealingSettings()


def plan_by_annealing(problem: Problem, seed: int = 0, settings: AnnealingSettings = DEFAULTS) -> Solution:
    """The shortest schedule met on the way.

    Differences from the print: the order in which clusters take their steps changes too, not only where
    steps run; the search begins at the shortest of the greedy, HEFT and CPOP plans instead of the greedy one,
    and less hot, so that it does not first forget it; the shortest schedule met is the result, not the last.
    """
    first = min(
        (plan(problem) for plan in (plan_greedily, plan_by_heft, plan_by_cpop)),
        key=lambda solution: finish_s(problem, solution),
    )
    random = Streams(seed).generator("policy")
    graph = graph_of(problem)
    alpha = _alpha(problem, graph, first, random, settings)
    temperature = settings.first_temperature * settings.cooling ** (
        np.arange(settings.iterations) / settings.iterations
    )
    draws = random.random((settings.iterations, 4))
    return Solution(*anneal(problem, graph, *first, alpha * temperature, draws))


def _alpha(
    problem: Problem,
    graph: Graph,
    first: Solution,
    random: np.random.Generator,
    settings: AnnealingSettings,
) -> float:
    """Alpha of Eq. 3.4, from the mean by which changes of the first schedule make it longer."""
    worse_s: NDArray[np.float64] = worsening_s(problem, graph, *first, random.random((settings.tried, 4)))
    mean_s = float(worse_s[worse_s > 0].mean()) if np.any(worse_s > 0) else finish_s(problem, first)
    return mean_s / (-math.log(settings.first_acceptance) * settings.first_temperature)
