"""What Tables 9.5 and 9.6 of Teylo 2021 start from, and what they print."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from agents.bags.heuristics import plan_primarily
from agents.bags.ils import plan_by_search, plan_with_bursts
from envs.simulation.bags.cases import published_job
from envs.simulation.bags.model import TABLE_9_1, Environment
from envs.simulation.bags.plan import Plan

ENVIRONMENT = Environment(TABLE_9_1)
DEADLINE_S = 2700.0
SEEDS = 30


class Calm(NamedTuple):
    """A cell of Table 9.5: without hibernation."""

    usd: float
    makespan_s: float


class Pair(NamedTuple):
    """A row of Table 9.6: one scenario."""

    burst: Calm
    hads: Calm


@dataclass(frozen=True)
class Job:
    """A job of both tables; `scenarios` are s_1 to s_5."""

    burst: Calm
    hads: Calm
    on_demand: Calm
    scenarios: tuple[Pair, ...]


def _pairs(*rows: tuple[float, float, float, float]) -> tuple[Pair, ...]:
    return tuple(Pair(Calm(usd, s), Calm(hads_usd, hads_s)) for usd, s, hads_usd, hads_s in rows)


JOBS = {
    "J60": Job(
        Calm(0.112, 1274),
        Calm(0.067, 2290),
        Calm(0.271, 1112),
        _pairs(
            (0.119, 1274, 0.091, 2620),
            (0.204, 1277, 0.257, 2549),
            (0.127, 1752, 0.101, 2539),
            (0.142, 1857, 0.119, 2634),
            (0.150, 1445, 0.169, 2359),
        ),
    ),
    "J80": Job(
        Calm(0.151, 1329),
        Calm(0.104, 2295),
        Calm(0.312, 1190),
        _pairs(
            (0.167, 1419, 0.150, 2581),
            (0.210, 2267, 0.298, 2591),
            (0.164, 1367, 0.147, 2602),
            (0.244, 2488, 0.212, 2607),
            (0.195, 1589, 0.246, 2529),
        ),
    ),
    "J100": Job(
        Calm(0.176, 1660),
        Calm(0.112, 2332),
        Calm(0.371, 1462),
        _pairs(
            (0.191, 1798, 0.157, 2332),
            (0.212, 1900, 0.353, 2518),
            (0.201, 1925, 0.166, 2636),
            (0.286, 2453, 0.278, 2591),
            (0.166, 1547, 0.189, 2543),
        ),
    ),
    "ED200": Job(
        Calm(0.357, 2275),
        Calm(0.267, 2580),
        Calm(0.698, 1887),
        _pairs(
            (0.388, 2327, 0.314, 2680),
            (0.482, 2448, 0.512, 2676),
            (0.427, 2345, 0.387, 2672),
            (0.411, 2560, 0.389, 2690),
            (0.367, 2342, 0.467, 2674),
        ),
    ),
}


class Plans(NamedTuple):
    """The primary scheduling maps of a job."""

    burst: Plan
    hads: Plan
    search: Plan


def plans_of(name: str) -> Plans:
    """Those of Burst-HADS, of HADS, and of the search alone, which on-demand VMs then carry out."""
    bag = published_job(name, TABLE_9_1)
    return Plans(
        plan_with_bursts(bag, ENVIRONMENT, DEADLINE_S),
        plan_primarily(bag, ENVIRONMENT, DEADLINE_S),
        plan_by_search(bag, ENVIRONMENT, DEADLINE_S),
    )
