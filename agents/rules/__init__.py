"""Rule-based policies: one small module per rule of the literature, one registry, one compiled dispatch."""

from __future__ import annotations

from agents.rules.parameters import RuleParameters
from agents.rules.policy import RulePolicy
from agents.rules.registry import RULES, RuleSpec, make_rule

__all__ = ["RULES", "RuleParameters", "RulePolicy", "RuleSpec", "make_rule"]
