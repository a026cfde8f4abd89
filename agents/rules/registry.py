"""All rules by name, with their titles, sources and default parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from agents.rules import dispatch
from agents.rules.deadline_safe import DeadlineSafeParameters
from agents.rules.eft import EftParameters
from agents.rules.expected_cost import ExpectedCostParameters
from agents.rules.parameters import RuleParameters
from agents.rules.policy import RulePolicy
from agents.rules.price_capacity import PriceCapacityParameters
from agents.rules.spot_fallback import SpotFallbackParameters
from agents.rules.tuned import TunedParameters
from agents.rules.uniform_progress import UniformProgressParameters


@dataclass(frozen=True)
class RuleSpec:
    """What is known of a rule.

    Attributes:
        name: what commands call it.
        title: what tables call it.
        rule_id: its number in `agents.rules.dispatch`.
        parameters: default parameters.
        source: where it is described.
        market: whether it reasons about prices and interruptions, i.e. is meant for market worlds.
    """

    name: str
    title: str
    rule_id: int
    parameters: RuleParameters
    source: str
    market: bool = False


_NO_PARAMETERS = RuleParameters()
_LIU4 = "Liu 2022, chapter 4, rule-based baselines"
_LIU5 = "Liu 2022, chapter 5, baselines"

_SPECS = (
    RuleSpec("random", "Random", dispatch.RANDOM, _NO_PARAMETERS, _LIU4),
    RuleSpec("rr", "Round-Robin", dispatch.RR, _NO_PARAMETERS, _LIU5),
    RuleSpec("maf", "MAF", dispatch.MAF, _NO_PARAMETERS, _LIU5),
    RuleSpec("sf_p", "SF-P", dispatch.SF_P, _NO_PARAMETERS, _LIU4),
    RuleSpec("lf_p", "LF-P", dispatch.LF_P, _NO_PARAMETERS, _LIU4),
    RuleSpec("sf_e", "SF-E", dispatch.SF_E, _NO_PARAMETERS, _LIU4),
    RuleSpec("lf_e", "LF-E", dispatch.LF_E, _NO_PARAMETERS, _LIU4),
    RuleSpec("eft", "EFT", dispatch.EFT, EftParameters(), "earliest finish time, list scheduling"),
    RuleSpec(
        "deadline_safe",
        "Deadline-safe",
        dispatch.DEADLINE_SAFE,
        DeadlineSafeParameters(),
        "Spotweave: improper heterogeneity and waiting behind barriers",
    ),
    RuleSpec("tuned", "Tuned rule", dispatch.TUNED, TunedParameters(), "Spotweave: found by search"),
    RuleSpec(
        "ih_filter",
        "IH filter",
        dispatch.IH_FILTER,
        _NO_PARAMETERS,
        "Liu 2022, section 5.3 (improper heterogeneity), then most free executors",
    ),
    RuleSpec("on_demand", "On-demand only", dispatch.ON_DEMAND, _NO_PARAMETERS, "common practice", True),
    RuleSpec(
        "spot_fallback",
        "Greedy spot",
        dispatch.SPOT_FALLBACK,
        SpotFallbackParameters(),
        "Can't Be Late (NSDI'24): greedy with an on-demand fallback",
        True,
    ),
    RuleSpec(
        "uniform_progress",
        "Uniform Progress",
        dispatch.UNIFORM_PROGRESS,
        UniformProgressParameters(),
        "Can't Be Late (NSDI'24): single-zone policy, per job",
        True,
    ),
    RuleSpec(
        "price_capacity",
        "Price-capacity",
        dispatch.PRICE_CAPACITY,
        PriceCapacityParameters(),
        "EC2 allocation strategy price-capacity-optimized",
        True,
    ),
    RuleSpec("cheapest", "Cheapest zone", dispatch.CHEAPEST, _NO_PARAMETERS, "common practice", True),
    RuleSpec(
        "expected_cost",
        "Expected cost",
        dispatch.EXPECTED_COST,
        ExpectedCostParameters(),
        "Spotweave: cost model of Brum 2023, eq. 6.4, with a Poisson hazard",
        True,
    ),
)

RULES: Mapping[str, RuleSpec] = {spec.name: spec for spec in _SPECS}
"""Every rule by name, in the order of tables."""


def make_rule(name: str, parameters: Mapping[str, float] | None = None) -> RulePolicy:
    """The rule `name` as a policy, with some of its parameters replaced.

    Raises:
        ValueError: for an unknown name (all names and the closest one are given), or a wrong parameter.
    """
    if name not in RULES:
        near = get_close_matches(name, RULES, 1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise ValueError(f"unknown rule {name!r}{hint}: expected one of {', '.join(RULES)}")
    spec = RULES[name]
    try:
        chosen = spec.parameters.changed(parameters or {})
    except ValueError as error:
        raise ValueError(f"rule {name}: {error}") from None
    return RulePolicy(name, spec.rule_id, chosen)
