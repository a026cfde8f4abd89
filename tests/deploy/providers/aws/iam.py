"""IAM's evaluation of one identity policy, as much as our policies use. moto does not look at conditions.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_evaluation-logic.html
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any

_OPERATORS: Mapping[str, Callable[[str, str], bool]] = {
    "StringEquals": lambda given, wanted: given == wanted,
    "StringLike": fnmatchcase,
    "Bool": lambda given, wanted: given.lower() == wanted.lower(),
    "NumericLessThanEquals": lambda given, wanted: float(given) <= float(wanted),
}


def allowed(policy: Mapping[str, Any], action: str, resource: str, context: Mapping[str, str]) -> bool:
    """Whether a request on one resource is allowed; a launch is one for each resource that it touches."""
    effects = {
        part["Effect"]
        for part in policy["Statement"]
        if any(fnmatchcase(action.lower(), one.lower()) for one in part["Action"])
        and any(fnmatchcase(resource, one) for one in part["Resource"])
        and _holds(part.get("Condition", {}), context)
    }
    return effects == {"Allow"}


def _holds(condition: Mapping[str, Mapping[str, Any]], context: Mapping[str, str]) -> bool:
    """All operators and keys must hold; of a key's values one. A key that a request lacks never holds."""
    return all(
        key in context and any(_OPERATORS[name](context[key], one) for one in _listed(wanted))
        for name, keys in condition.items()
        for key, wanted in keys.items()
    )


def _listed(value: Any) -> list[str]:
    return value if isinstance(value, list) else [value]
