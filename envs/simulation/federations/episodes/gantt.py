"""An application as a timeline for pictures: who had an instance where, and at what price."""

from __future__ import annotations

import numpy as np

from envs.simulation.federations.rounds.world import RoundsWorld
from envs.simulation.series import StepSeries
from envs.simulation.snapshot import Category
from envs.simulation.timeline import Segment, Timeline


def timeline_of(world: RoundsWorld, offer_names: tuple[str, ...]) -> Timeline:
    """What happened so far. Jobs are the clients, then the server; clusters are the offers."""
    members = [*world.clients] if world.server is None else [*world.clients, world.server]
    segments, interruptions = [], []
    for job, member in enumerate(members):
        held = [(bill.offer, bill.start_s, bill.end_s) for bill in member.bills]
        if member.running and member.offer is not None and member.launched_s is not None:
            held.append((member.offer, member.launched_s, world.now_s))
        segments += [
            Segment(job, offer, float(start_s), float(end_s), 1, int(Category.FEDERATED), False)
            for offer, start_s, end_s in held
            if end_s > start_s
        ]
        interruptions += [(float(bill.end_s), bill.offer) for bill in member.bills if bill.by_provider]
    end = max(1, world.now_s)
    offers = range(len(offer_names))
    room = StepSeries(np.zeros(1, np.int64), np.full(1, float(len(members))))
    return Timeline(
        cluster_names=offer_names,
        time_unit="s",
        end=float(end),
        segments=tuple(sorted(segments, key=lambda segment: segment.start)),
        capacity=(room,) * len(offer_names),
        used=tuple(_used([item for item in segments if item.cluster == offer]) for offer in offers),
        price_usd_hour=tuple(_price(world, offer, end) for offer in offers),
        misses=(),
        interruptions=tuple(sorted(interruptions)),
    )


def _used(segments: list[Segment]) -> StepSeries:
    """Instances held over time."""
    changes: dict[int, int] = {0: 0}
    for segment in segments:
        changes[int(segment.start)] = changes.get(int(segment.start), 0) + 1
        changes[int(segment.end)] = changes.get(int(segment.end), 0) - 1
    times = sorted(changes)
    return StepSeries(np.array(times, np.int64), np.cumsum([changes[time] for time in times]).astype(float))


def _price(world: RoundsWorld, offer: int, end_s: int) -> StepSeries:
    """The price, looked at 200 times; 0 where the application has no such offer."""
    if offer >= len(world.offers):
        return StepSeries(np.zeros(1, np.int64), np.zeros(1))
    times = np.unique(np.linspace(0, end_s, 200).astype(np.int64))
    return StepSeries(times, np.array([world.offers[offer].tariff.usd_hour(int(time)) for time in times]))
