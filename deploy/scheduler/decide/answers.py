"""A policy's answer, looked at before anything follows from it.

A policy is a program of its own, often a learned one: it may raise, name a place that is not there or that
the mask forbids, or decide by values that are not numbers. None of this may start a task where it must not
be, or end a pass. Then the rule decides that such policies are trained with, and "none for now" where even
that gives no valid answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from agents.named import named_rule
from agents.policy import Policy
from envs.simulation.snapshot import Observation

GUIDE = "expected_cost"

Fault = Literal["error", "index", "masked", "values"]
"""It raised; no place has this number; the mask forbids it; its values are not finite."""
_LONGEST = 200


@dataclass(frozen=True)
class Invalid:
    """A policy's answer that was not followed.

    Attributes:
        fault: what is wrong with it.
        answered: the answer in words, one line.
        guide: the rule that decided instead.
    """

    fault: Fault
    answered: str
    guide: str

    @property
    def words(self) -> str:
        """In one line, for people."""
        return f"the policy's answer is not valid ({self.answered}): {self.guide} decided"


class InvalidAnswerError(Exception):
    """An answer that must not be followed.

    Attributes:
        fault: what is wrong with it.
    """

    def __init__(self, fault: Fault, answered: str) -> None:
        super().__init__(answered)
        self.fault = fault


def valid_answer(policy: Policy, observation: Observation) -> int:
    """The flat action that a policy takes.

    Raises:
        InvalidAnswerError: if it raises, or answers what is not among the valid actions.
    """
    try:
        action = policy.act(observation)
    except Exception as error:
        raise raised(error) from error
    mask = observation["action_mask"]
    if not isinstance(action, int | np.integer) or not 0 <= action < len(mask):
        raise InvalidAnswerError("index", f"action {_short(action)}, there are {len(mask)}")
    if not mask[action]:
        raise InvalidAnswerError("masked", f"action {action}, which the mask forbids")
    return int(action)


def guided(observation: Observation) -> int:
    """The flat action of the guide; "none for now" of the first task where it gives no valid one."""
    try:
        return valid_answer(named_rule(GUIDE), observation)
    except InvalidAnswerError:
        return int(observation["clusters"].shape[0])


def require_finite(*tables: NDArray[np.floating[Any]]) -> None:
    """Raise InvalidAnswerError unless all of these are numbers."""
    wrong = sum(int((~np.isfinite(table)).sum()) for table in tables)
    if wrong:
        raise InvalidAnswerError("values", f"{wrong} of its values are not finite")


def raised(error: Exception) -> InvalidAnswerError:
    """What an error of a policy is."""
    return InvalidAnswerError("error", _short(f"{type(error).__name__}: {error}"))


def _short(answer: object) -> str:
    text = " ".join(str(answer).split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
