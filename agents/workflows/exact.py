"""The shortest schedule of a small workflow: a mixed-integer model, solved by HiGHS.

Executors are handed over from step to step as in the flow model of Artigues, Michelon and Reusser (2003): a
step receives as many as it occupies, from the cluster or from steps that have ended.
"""

from __future__ import annotations

import itertools

import numpy as np

from spotweave.agents.linear_program import LinearProgram, UnsolvedError
from spotweave.agents.workflows.annealing import plan_by_annealing
from spotweave.agents.workflows.solution import Solution, by_start, finish_s
from spotweave.envs.simulation.series import Bools, Floats
from spotweave.envs.simulation.workflows.model import WorkflowError
from spotweave.envs.simulation.workflows.problem import Problem

MAX_STEPS = 12
MAX_CLUSTERS = 4
RELATIVE_GAP = 1e-6


def plan_exactly(problem: Problem, time_limit_s: float = 600.0) -> Solution:
    """A schedule that no other ends before.

    Args:
        problem: the workflow and its clusters.
        time_limit_s: give up after so long.

    Raises:
        WorkflowError: if the model is too large, or not solved in time.
    """
    n, clusters = problem.run_s.shape
    if n > MAX_STEPS or clusters > MAX_CLUSTERS:
        raise WorkflowError(
            f"{n} steps on {clusters} clusters are too many for the exact planner, expected at most "
            f"{MAX_STEPS} on {MAX_CLUSTERS}: use annealing"
        )
    known = plan_by_annealing(problem)
    found = _Model(problem, finish_s(problem, known) * (1 + RELATIVE_GAP)).solve(time_limit_s)
    # The solver's tolerances may leave a schedule longer than one that is known to be possible.
    return min(found, known, key=lambda solution: finish_s(problem, solution))


def ancestors(problem: Problem) -> Bools:
    """[N, N] whether the row's step must have ended before the column's starts."""
    n = len(problem.topological)
    before = np.zeros((n, n), bool)
    for step in problem.topological:
        for writer in problem.source[problem.first[step] : problem.first[step + 1]]:
            before[:, step] |= before[:, writer]
            before[writer, step] = True
    return before


class _Model:
    """Columns: x where a step runs, z which of two steps ends before the other starts, starts, the finish.

    Then, for each pair of steps joined by files, y where both run; and f, executors handed over.
    """

    def __init__(self, problem: Problem, horizon_s: float) -> None:
        self._problem = problem
        self._program = LinearProgram()
        self._row = self._program.add_row
        n, clusters = problem.run_s.shape
        may = problem.executors > 0
        self._x = {(i, c): self._column(0, 1, whole=True) for i, c in np.ndindex(n, clusters) if may[i, c]}
        before = ancestors(problem)
        self._z = {
            (i, j): self._column(float(before[i, j]), float(not before[j, i]), whole=True)
            for i, j in itertools.permutations(range(n), 2)
        }
        self._start = [self._column(0, horizon_s) for _ in range(n)]
        self._finish = self._column(0, horizon_s, cost=1.0)
        self._place(horizon_s)
        self._move()
        self._hand_over()

    def solve(self, time_limit_s: float) -> Solution:
        """The schedule. Raises WorkflowError where it is not found in time."""
        try:
            values = self._program.solve(time_limit_s, RELATIVE_GAP)
        except UnsolvedError as error:
            raise WorkflowError(f"{error}: use fewer steps, or annealing") from None
        if values is None:
            raise WorkflowError("HiGHS failed on the exact model: it finds no schedule, but one is known")
        cluster = np.zeros(len(self._start), np.int64)
        for (i, c), column in self._x.items():
            if values[column] > 0.5:
                cluster[i] = c
        return by_start(self._problem, cluster, values[self._start])

    def _column(self, low: float, high: float, *, cost: float = 0.0, whole: bool = False) -> int:
        return int(self._program.add_columns(1, low=low, high=high, cost=cost, whole=whole)[0])

    def _of(self, i: int, value: Floats) -> dict[int, float]:
        """The entries of a sum over the clusters of value[c] * x[i, c]."""
        return {column: float(value[c]) for (k, c), column in self._x.items() if k == i}

    def _place(self, horizon_s: float) -> None:
        """Each step runs once, after its input, and all have ended by the finish."""
        problem = self._problem
        n, clusters = problem.run_s.shape
        for i in range(n):
            self._row(self._of(i, np.ones(clusters)), 1.0, 1.0)
            self._row({self._start[i]: 1.0, **self._of(i, -problem.input_s[i])}, low=0.0)
            self._row({self._finish: 1.0, self._start[i]: -1.0, **self._of(i, -problem.run_s[i])}, low=0.0)
        for (i, j), column in self._z.items():
            # No step ends after the horizon, so that z = 0 says nothing.
            ordered = {self._start[j]: 1.0, self._start[i]: -1.0, **self._of(i, -problem.run_s[i])}
            self._row({**ordered, column: -horizon_s}, low=-horizon_s)
            if i < j:
                self._row({column: 1.0, self._z[j, i]: 1.0}, high=1.0)

    def _move(self) -> None:
        """Eq. 3.3: a step starts after the files of those that it waits for have been moved."""
        problem = self._problem
        for j in range(len(self._start)):
            for pair in range(problem.first[j], problem.first[j + 1]):
                i = int(problem.source[pair])
                moving_s = problem.latency_s + problem.gb[pair] * problem.s_gb
                here, there = ([c for k, c in self._x if k == step] for step in (i, j))
                y = {(a, b): self._column(0, 1) for a in here for b in there}
                for a in here:
                    self._row({self._x[i, a]: -1.0, **{y[a, b]: 1.0 for b in there}}, 0.0, 0.0)
                for b in there:
                    self._row({self._x[j, b]: -1.0, **{y[a, b]: 1.0 for a in here}}, 0.0, 0.0)
                row = {self._start[j]: 1.0, self._start[i]: -1.0, **self._of(i, -problem.run_s[i])}
                self._row({**row, **{column: -moving_s[ab] for ab, column in y.items()}}, low=0.0)

    def _hand_over(self) -> None:
        """Each step receives its executors, and hands on no more."""
        problem = self._problem
        for c, capacity in enumerate(problem.capacity):
            here = [i for i, there in self._x if there == c]
            needs = {i: float(problem.executors[i, c]) for i in here}
            fresh = {i: self._column(0, needs[i]) for i in here}
            passed = {
                (i, j): self._column(0, min(needs[i], needs[j])) for i, j in itertools.permutations(here, 2)
            }
            for (i, j), column in passed.items():
                self._row({column: 1.0, self._z[i, j]: -min(needs[i], needs[j])}, high=0.0)
            for j in here:
                others = [i for i in here if i != j]
                received = {fresh[j]: 1.0, **{passed[i, j]: 1.0 for i in others}}
                self._row({**received, self._x[j, c]: -needs[j]}, 0.0, 0.0)
                given = {passed[j, i]: 1.0 for i in others}
                self._row({**given, self._x[j, c]: -needs[j]}, high=0.0)
            self._row(dict.fromkeys(fresh.values(), 1.0), high=float(capacity))
            # Work fits between the start and the finish, which the relaxed model would not know.
            work = {self._x[i, c]: -needs[i] * float(problem.run_s[i, c]) for i in here}
            self._row({**work, self._finish: float(capacity)}, low=0.0)
