"""Instances: those that are rented, and the executors of owned clusters, which are always there."""

from __future__ import annotations

from dataclasses import dataclass

from envs.simulation.workflows.episodes.market import Quotes

IDLE = -1


@dataclass(eq=False)
class Instance:
    """One executor of a place; two are never equal.

    Attributes:
        place: number of the offer.
        since_s: when it was rented; the launch is billed.
        step: that it launches for or runs; IDLE if none.
        start_s: when that step begins to run.
        end_s: when the step is expected to end.
        done_s: when it ends, which nobody knows before.
    """

    place: int
    since_s: float
    step: int = IDLE
    start_s: float = 0.0
    end_s: float = 0.0
    done_s: float = 0.0


@dataclass(frozen=True)
class Attempt:
    """A step on an instance, ended or interrupted; seconds after the start.

    Attributes:
        step: number.
        place: number.
        start_s: when it began to run, its launch and its files behind it.
        end_s: when it ended or was interrupted.
        whole: whether it ended.
    """

    step: int
    place: int
    start_s: float
    end_s: float
    whole: bool


def bill_usd(instance: Instance, quotes: Quotes, until_s: float, minimum_s: float, gone: bool) -> float:
    """What an instance has cost.

    Args:
        instance: rented.
        quotes: of its offer.
        until_s: now, or when it was given back or interrupted.
        minimum_s: it is billed for so long at least unless the provider took it.
        gone: whether the provider interrupted it.
    """
    end_s = until_s if gone else max(until_s, instance.since_s + minimum_s)
    return quotes.cost_usd(instance.since_s, end_s)
