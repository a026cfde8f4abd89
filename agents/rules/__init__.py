"""Rule-based policies: one small module per rule of the literature, which registers itself."""

from __future__ import annotations

from spotweave.agents.rules.registry import RULES, Rule, RuleParameters, load_plugins, make_rule, register

__all__ = ["RULES", "Rule", "RuleParameters", "make_rule", "register"]

load_plugins()
