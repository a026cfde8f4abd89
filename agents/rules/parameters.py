"""Parameters of a rule: a frozen dataclass of floats that compiled rules see as one vector."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import TYPE_CHECKING, Self

import numpy as np

if TYPE_CHECKING:
    from envs.simulation.series import Floats


@dataclass(frozen=True)
class RuleParameters:
    """Base of every rule's parameters, and the parameters of a rule that has none.

    Subclasses add float fields only; `vector()` lists them in the order of their definition, which is the
    order in which the rule's kernel reads them.
    """

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Names of the parameters, in the order of `vector()`."""
        return tuple(field.name for field in fields(cls))

    def vector(self) -> Floats:
        """(P,) float64 values in the order of `names()`."""
        return np.array([getattr(self, name) for name in self.names()], np.float64)

    def changed(self, values: Mapping[str, float]) -> Self:
        """A copy with some parameters replaced.

        Raises:
            ValueError: for a name that is not a parameter, or a value that is not a finite number.
        """
        known = self.names()
        for name, value in values.items():
            if name not in known:
                near = get_close_matches(name, known, 1)
                hint = f" (did you mean {near[0]!r}?)" if near else ""
                expected = ", ".join(known) if known else "none: this rule has no parameters"
                raise ValueError(f"unknown rule parameter {name!r}{hint}: expected {expected}")
            if isinstance(value, bool) or not isinstance(value, int | float) or not np.isfinite(value):
                raise ValueError(f"rule parameter {name}={value!r} must be a finite number")
        current = {name: getattr(self, name) for name in known}
        return type(self)(**{**current, **{name: float(value) for name, value in values.items()}})
