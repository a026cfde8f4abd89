"""All rules by name: those of this folder, and those that installed packages add.

A module of this folder registers its rules when it is imported, and it is imported when one of them is asked
for: names are known without what numba compiles. A package of a user's own names a `Rule` as an entry point
of the group `spotweave.rules` (docs/extending.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Self

import numpy as np

from spotweave.plugins import plugins

if TYPE_CHECKING:
    from spotweave.agents.rules.policy import RulePolicy
    from spotweave.envs.simulation.compiled import Kernel
    from spotweave.envs.simulation.series import Floats

GROUP = "spotweave.rules"

MARKET = ("multicloud",)
HETEROGENEOUS = ("multicloud", "multicluster", "anyclusters")

MODULES = {
    "cheapest": "practice",
    "committed": "committed",
    "deadline_safe": "scores",
    "eft": "scores",
    "expected_cost": "expected_cost",
    "half_free": "scores",
    "ih_filter": "scores",
    "lf_e": "baselines",
    "lf_p": "baselines",
    "maf": "baselines",
    "on_demand": "practice",
    "price_capacity": "price_capacity",
    "random": "baselines",
    "rr": "baselines",
    "sf_e": "baselines",
    "sf_p": "baselines",
    "spot_fallback": "practice",
    "tuned": "tuned",
    "uniform_progress": "uniform_progress",
}
"""Where in this folder each rule is."""

LIU_4 = "Liu 2022, chapter 4, rule-based baselines"
LIU_5 = "Liu 2022, chapter 5, baselines"


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


@dataclass(frozen=True)
class Rule:
    """A rule, its names, its source and where it can decide."""

    name: str  # what commands call it
    title: str  # what tables call it
    choose: Kernel  # the compiled rule (see `agents.rules.policy`)
    source: str  # where it is described
    parameters: RuleParameters = field(default_factory=RuleParameters)  # default parameters
    # names of the environments in which it is compared by default; None: in every one whose tasks are jobs,
    # which is where it can play
    worlds: tuple[str, ...] | None = None
    forecast: bool = False  # whether it needs observations with what `slices.forecast` foresees
    # False for a rule that knows of federated rounds: it decides about idle instances itself
    keeps_idle: bool = True


_rules: dict[str, Rule] = {}


class _Rules(Mapping[str, Rule]):
    def __getitem__(self, name: str) -> Rule:
        if name in MODULES and name not in _rules:
            import_module(f"spotweave.agents.rules.{MODULES[name]}")
        return _rules[name]

    def __contains__(self, name: object) -> bool:
        return name in MODULES or name in _rules

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*MODULES, *_rules}))

    def __len__(self) -> int:
        return len({*MODULES, *_rules})


RULES: Mapping[str, Rule] = _Rules()  # every rule by name, sorted


def register(rule: Rule) -> Rule:
    """Make a rule known by its name. Raises ValueError if another one has it."""
    if rule.name in _rules:
        raise ValueError(f"two rules are called {rule.name!r}: rename one of them")
    _rules[rule.name] = rule
    return rule


def load_plugins() -> None:
    """Add the rules of installed packages. Raises PluginError for an entry point that cannot be used."""
    for rule in plugins(GROUP, Rule, RULES).values():
        RULES.get(rule.name)  # one of ours would be imported later, and has the name all the same
        register(rule)


def make_rule(name: str, parameters: Mapping[str, float] | None = None) -> RulePolicy:
    """The rule `name` as a policy, with some of its parameters replaced.

    Raises:
        ValueError: for an unknown name (all names and the closest one are given), or a wrong parameter.
    """
    if name not in RULES:
        near = get_close_matches(name, RULES, 1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise ValueError(f"unknown rule {name!r}{hint}: expected one of {', '.join(RULES)}")
    rule = RULES[name]
    try:
        chosen = rule.parameters.changed(parameters or {})
    except ValueError as error:
        raise ValueError(f"rule {name}: {error}") from None
    from spotweave.agents.rules.policy import RulePolicy

    return RulePolicy(name, rule.choose, chosen, rule.keeps_idle)
