"""Rule-based policies: the rules of the literature, which register themselves."""

from __future__ import annotations

from spotweave.agents.rules.registry import RULES, Rule, RuleParameters, load_plugins, make_rule, register

__all__ = ["RULES", "Rule", "RuleParameters", "make_rule", "register"]

load_plugins()
