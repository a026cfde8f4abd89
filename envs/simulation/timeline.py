"""What happened in one episode, for pictures and reports: who ran where and when, capacity, price, misses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from envs.simulation.series import StepSeries


class Segment(NamedTuple):
    """One execution (batch, attempt) of one job on one cluster, while it held executors.

    Times are in the world's unit. An execution that still runs ends at the moment of the picture.
    """

    job: int
    cluster: int
    start: float
    end: float
    executors: int
    category: int  # envs.simulation.snapshot.Category
    missed: bool  # whether this execution missed its deadline


class Event(NamedTuple):
    """Something that happened on a cluster at a time (unpacks as `time, cluster`)."""

    time: float
    cluster: int


@dataclass(frozen=True)
class Timeline:
    """One episode of a world, finished or not.

    Attributes:
        cluster_names: C names.
        time_unit: "slice" or "s", the unit of every time here.
        segments: executions, in any order.
        capacity: C series of executors in effect.
        price: C entries, USD per executor-hour (None where the cluster costs nothing); None if nothing costs.
        misses: when and where a deadline was missed.
        interruptions: when and where a provider took capacity back.
        cost_usd: money spent so far in the episode; None in worlds without money.
    """

    cluster_names: tuple[str, ...]
    time_unit: str
    segments: list[Segment]
    capacity: list[StepSeries]
    price: list[StepSeries | None] | None
    misses: list[Event]
    interruptions: list[Event]
    cost_usd: StepSeries | None = None

    def __post_init__(self) -> None:
        n_clusters = len(self.cluster_names)
        for name, series in (("capacity", self.capacity), ("price", self.price)):
            if series is not None and len(series) != n_clusters:
                raise ValueError(f"timeline.{name} has {len(series)} series, expected {n_clusters}")
