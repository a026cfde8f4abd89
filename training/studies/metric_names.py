"""How tables and axes call the metrics of Liu 2022; a metric that is not listed keeps its own name."""

from __future__ import annotations

_NAMES = {
    "tmdl": "TMDL",
    "ajer": "AJER",
    "ajdr": "AJDR",
    "s_log": "S_log",
    "s": "S",
    "eval_app": "Eval_app",
    "weighted_cost": "0.02 TMDL + AJDR",
}
_UNITS = {"tmdl": "missed deadlines", "ajer": "% of standard time", "ajdr": "% of standard time"}


def metric_name(metric: str) -> str:
    """The name in the thesis."""
    return _NAMES.get(metric, metric)


def metric_with_unit(metric: str) -> str:
    """The name with its unit, for an axis; scores (S, S_log, Eval_app) have none."""
    unit = _UNITS.get(metric)
    return metric_name(metric) + ("" if unit is None else f", {unit}")
