"""Simulated annealing: SimulatedAnnealing() of Liu 2022, Algorithm 2, lines 35 to 43, and Eq. 3.4."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from agents.workflows.greedy import plan_greedily
from agents.workflows.lists import least_tail_s, plan_by_cpop, plan_by_heft, plans_on_fewer
from agents.workflows.moves import DRAWS, graph_of
from agents.workflows.search import anneal
from agents.workflows.solution import Solution, finish_s
from envs.simulation.streams import Streams
from envs.simulation.workflows.problem import Problem


@dataclass(frozen=True)
class AnnealingSettings:
    """How long and how hot.

    Attributes:
        iterations: k_max, which the print does not say, of all lanes together.
        runs: of a step in simulation, at most in all: fewer iterations for large workflows.
        first_share: alpha * T at the start, as a share of the finish of the first schedule. The print chooses
            alpha so that the probability of accepting what is worse begins "very close to 1".
        cooling: T at the end as a share of T at the start (line 37).
    """

    iterations: int = 200_000
    runs: int = 20_000_000
    first_share: float = 0.03
    cooling: float = 0.001


DEFAULTS = AnnealingSettings()
FEWER_STEPS = 300
"""With more, HEFT's insertion on few clusters takes longer than the annealing: there is no second lane."""


def plan_by_annealing(problem: Problem, seed: int = 0, settings: AnnealingSettings = DEFAULTS) -> Solution:
    """The shortest schedule met on the way.

    Differences from the print: the order in which clusters take their steps changes too, not only where
    steps run; half of the changes are of steps on the critical path, and some put neighbours on another
    cluster together; the search begins at the shortest of the greedy, HEFT and CPOP plans instead of the
    greedy one, and where HEFT's plan for fewer clusters is shorter, a second lane begins there; it begins
    less hot, so that it does not first forget them; the shortest schedule met is the result, not the last.
    """
    lanes = [_shortest(problem, (plan(problem) for plan in (plan_greedily, plan_by_heft, plan_by_cpop)))]
    if len(problem.topological) <= FEWER_STEPS:
        fewer = _shortest(problem, (*lanes, *plans_on_fewer(problem)))
        if fewer is not lanes[0]:
            lanes.append(fewer)
    random = Streams(seed).generator("policy")
    graph, tail_s = graph_of(problem), least_tail_s(problem)
    iterations = max(1, min(settings.iterations, settings.runs // len(tail_s)) // len(lanes))
    share = settings.first_share * settings.cooling ** (np.arange(iterations) / iterations)
    found = [
        Solution(
            *anneal(
                problem,
                graph,
                tail_s,
                *lane,
                finish_s(problem, lane) * share,
                random.random((iterations, DRAWS + 1)),
            )
        )
        for lane in lanes
    ]
    return _shortest(problem, found)


def _shortest(problem: Problem, solutions: Iterable[Solution]) -> Solution:
    return min(solutions, key=lambda solution: finish_s(problem, solution))
