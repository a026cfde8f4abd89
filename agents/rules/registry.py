"""All rules by name: those of this folder, and those that installed packages add.

The modules of this folder are imported and register their rules. A package of a user's own names a `Rule`
as an entry point of the group `spotweave.rules` (docs/extending.md).
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import import_module

from agents.rules.compiled import Kernel
from agents.rules.parameters import RuleParameters
from agents.rules.policy import RulePolicy
from spotweave.plugins import plugins

GROUP = "spotweave.rules"

MARKET = ("multicloud",)
HETEROGENEOUS = ("multicloud", "multicluster", "anyclusters")

LIU_4 = "Liu 2022, chapter 4, rule-based baselines"
LIU_5 = "Liu 2022, chapter 5, baselines"


@dataclass(frozen=True)
class Rule:
    """A rule and what is known of it.

    Attributes:
        name: what commands call it.
        title: what tables call it.
        choose: the compiled rule (see `agents.rules.kernels`).
        source: where it is described.
        parameters: default parameters.
        worlds: names of the environments in which it is compared by default; None: in every one whose tasks
            are jobs, which is where it can play.
        forecast: whether it needs observations with what `slices.forecast` foresees.
        keeps_idle: False for a rule that knows of federated rounds: it decides about idle instances itself.
    """

    name: str
    title: str
    choose: Kernel
    source: str
    parameters: RuleParameters = field(default_factory=RuleParameters)
    worlds: tuple[str, ...] | None = None
    forecast: bool = False
    keeps_idle: bool = True


_rules: dict[str, Rule] = {}

RULES: Mapping[str, Rule] = _rules
"""Every rule by name, sorted."""


def register(rule: Rule) -> Rule:
    """Make a rule known by its name.

    Raises:
        ValueError: if another one has it.
    """
    if rule.name in _rules:
        raise ValueError(f"two rules are called {rule.name!r}: rename one of them")
    _rules[rule.name] = rule
    return rule


def load_rules() -> None:
    """Import the modules of this folder, which register their rules, and add those of installed packages.

    Raises:
        PluginError: for an entry point that cannot be used.
    """
    package = __name__.rpartition(".")[0]
    for module in pkgutil.iter_modules(import_module(package).__path__, f"{package}."):
        import_module(module.name)
    for rule in plugins(GROUP, Rule, RULES).values():
        register(rule)
    for name in sorted(_rules):
        _rules[name] = _rules.pop(name)


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
    return RulePolicy(name, rule.choose, chosen, rule.keeps_idle)
