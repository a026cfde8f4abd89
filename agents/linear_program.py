"""Linear programs with whole and fractional columns, solved by HiGHS."""

from __future__ import annotations

from collections.abc import Mapping

import highspy
import numpy as np
from numpy.typing import ArrayLike

from spotweave.envs.simulation.series import Floats, Ints


class UnsolvedError(Exception):
    """HiGHS ran out of time or failed; the message is one line."""


class LinearProgram:
    """Minimise the sum of the columns' costs under bounds of columns and rows.

    Bounds, costs and coefficients are one number or one for each column, row or entry.
    """

    def __init__(self) -> None:
        self.width = self.height = 0
        self._columns: list[tuple[Floats, ...]] = []
        self._whole: list[highspy.HighsVarType] = []
        self._rows: list[tuple[Floats, ...]] = []
        self._entries: list[tuple[Ints, Ints, Floats]] = []

    def add_columns(
        self,
        n: int,
        low: ArrayLike = 0.0,
        high: ArrayLike = 1.0,
        *,
        cost: ArrayLike = 0.0,
        whole: bool = False,
    ) -> Ints:
        """Add n columns; their numbers."""
        self._columns.append(tuple(_each(value, n) for value in (cost, low, high)))
        kind = highspy.HighsVarType.kInteger if whole else highspy.HighsVarType.kContinuous
        self._whole += [kind] * n
        self.width += n
        return np.arange(self.width - n, self.width)

    def add_rows(
        self,
        n: int,
        rows: Ints,
        columns: Ints,
        values: ArrayLike,
        *,
        low: ArrayLike = -np.inf,
        high: ArrayLike = np.inf,
    ) -> None:
        """Add n rows: low <= row <= high.

        Args:
            n: how many.
            rows: the row of each entry, from 0 to n - 1.
            columns: the column of each entry.
            values: the coefficient of each entry.
            low: what a row is at least.
            high: what a row is at most.
        """
        self._entries.append((rows + self.height, columns, _each(values, len(rows))))
        self._rows.append((_each(low, n), _each(high, n)))
        self.height += n

    def add_row(self, entries: Mapping[int, float], low: float = -np.inf, high: float = np.inf) -> None:
        """Add one row, given the coefficients of its columns."""
        columns = np.fromiter(entries, np.int64, len(entries))
        values = np.fromiter(entries.values(), float, len(entries))
        self.add_rows(1, np.zeros_like(columns), columns, values, low=low, high=high)

    def model(self) -> highspy.HighsLp:
        """The program as HiGHS takes it."""
        model = highspy.HighsLp()
        model.num_col_, model.num_row_ = self.width, self.height
        model.col_cost_, model.col_lower_, model.col_upper_ = map(
            np.concatenate, zip(*self._columns, strict=True)
        )
        model.row_lower_, model.row_upper_ = map(np.concatenate, zip(*self._rows, strict=True))
        row, column, value = map(np.concatenate, zip(*self._entries, strict=True))
        order = np.lexsort((row, column))
        model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        model.a_matrix_.start_ = np.concatenate([[0], np.cumsum(np.bincount(column, minlength=self.width))])
        model.a_matrix_.index_ = row[order]
        model.a_matrix_.value_ = value[order]
        model.integrality_ = self._whole
        return model

    def solve(self, time_limit_s: float = np.inf, relative_gap: float = 0.0) -> Floats | None:
        """The columns' values at the optimum; None if no values are possible.

        Raises:
            UnsolvedError: if the optimum is not found in time.
        """
        solver = solver_of(self.model(), time_limit=time_limit_s, mip_rel_gap=relative_gap)
        solver.run()
        status = solver.getModelStatus()
        if status == highspy.HighsModelStatus.kInfeasible:
            return None
        if status == highspy.HighsModelStatus.kTimeLimit:
            raise UnsolvedError(f"the exact model was not solved in {time_limit_s:g} s")
        if status != highspy.HighsModelStatus.kOptimal:
            raise UnsolvedError(f"HiGHS failed on the exact model: {solver.modelStatusToString(status)}")
        return np.array(solver.getSolution().col_value)


class _Silent(highspy.Highs):
    """HiGHS without the banner, which `Highs` prints before an option can be set."""

    def __init__(self) -> None:
        super(highspy.Highs, self).__init__()
        self.setOptionValue("output_flag", False)


def solver_of(model: highspy.HighsLp, **options: float) -> highspy.Highs:
    """HiGHS with a model, on one thread."""
    solver = _Silent()
    for name, value in {"threads": 1, **options}.items():
        solver.setOptionValue(name, value)
    solver.passModel(model)
    return solver


def _each(value: ArrayLike, n: int) -> Floats:
    return np.broadcast_to(np.asarray(value, float), (n,))
