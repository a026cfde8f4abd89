"""The planners by name, and which deadline they could keep where they cannot keep the one given."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from spotweave.agents.bags.exact import plan_exactly
from spotweave.agents.bags.heuristics import plan_greedily, plan_max_min, plan_min_min, plan_primarily
from spotweave.agents.bags.ils import plan_by_search, plan_with_bursts
from spotweave.envs.simulation.bags.model import Bag, BagError, Environment
from spotweave.envs.simulation.bags.options import ImpossibleDeadlineError, compute_d_spot
from spotweave.envs.simulation.bags.plan import Plan, require_possible

_Heuristic = Callable[[Bag, Environment, float, float], Plan]


@dataclass(frozen=True)
class Planner:
    """A planner."""

    title: str  # what it is
    # its plan for a bag, an environment, a deadline in s and a seed
    plan: Callable[[Bag, Environment, float, int], Plan]
    # fails at exactly the deadlines at which `plan` fails, or at more, and is fast
    probe: Callable[[Bag, Environment, float], Plan]


def _within_d_spot(heuristic: _Heuristic) -> Callable[[Bag, Environment, float], Plan]:
    """The heuristic with every task ending by D_spot."""

    def plan(bag: Bag, environment: Environment, deadline_s: float) -> Plan:
        return heuristic(bag, environment, deadline_s, compute_d_spot(bag.tasks, environment, deadline_s))

    return plan


def _unseeded(title: str, plan: Callable[[Bag, Environment, float], Plan]) -> Planner:
    return Planner(title, lambda bag, environment, deadline_s, _: plan(bag, environment, deadline_s), plan)


PLANNERS = {
    "hads": _unseeded("HADS, primary heuristic (Algorithm 3)", plan_primarily),
    "burst-hads": Planner(
        "Burst-HADS, ILS and burstable VMs (Algorithm 9)", plan_with_bursts, plan_primarily
    ),
    "ils": Planner("ILS on spot VMs (Algorithm 9, part 1)", plan_by_search, plan_primarily),
    "exact": Planner(
        "optimum on spot VMs (Eq. 8.1-8.7)",
        lambda bag, environment, deadline_s, _: plan_exactly(bag, environment, deadline_s),
        # What MinMin can do in time, the optimum can.
        _within_d_spot(plan_min_min),
    ),
    "minmin": _unseeded("MinMin on spot VMs", _within_d_spot(plan_min_min)),
    "maxmin": _unseeded("MaxMin on spot VMs", _within_d_spot(plan_max_min)),
    "greedy": _unseeded("Greedy on spot VMs", _within_d_spot(plan_greedily)),
}


def plan_bag(name: str, bag: Bag, environment: Environment, deadline_s: float, seed: int = 0) -> Plan:
    """A planner's plan, checked.

    Args:
        name: one of PLANNERS.
        bag: what runs.
        environment: what may be rented.
        deadline_s: seconds after the start at which all tasks must have ended.
        seed: of random choices.

    Raises:
        ImpossibleDeadlineError: if it finds no plan; the message says which deadline it can keep.
        BagError: for another name, a bad deadline or seed, and an exact model that is too large.
    """
    if name not in PLANNERS:
        raise BagError(f"there is no planner {name!r}: use {', '.join(PLANNERS)}")
    if not 0 < deadline_s < math.inf:
        raise BagError(f"the deadline is {deadline_s}, expected a number of seconds > 0")
    if seed < 0:
        raise BagError(f"the seed is {seed}, expected a whole number >= 0")
    planner = PLANNERS[name]
    try:
        return require_possible(planner.plan(bag, environment, deadline_s, seed), environment)
    except ImpossibleDeadlineError as error:
        possible_s = _possible_deadline_s(planner, bag, environment, deadline_s)
        hope = "no deadline is possible" if possible_s is None else f"{possible_s} s is possible"
        raise ImpossibleDeadlineError(
            f"the deadline {deadline_s:g} s is impossible for {name}: {error}; {hope}"
        ) from error


def _possible_deadline_s(
    planner: Planner, bag: Bag, environment: Environment, deadline_s: float
) -> int | None:
    """A whole number of seconds that the planner can keep, near the least; None if there is none."""

    def possible(seconds: int) -> bool:
        try:
            planner.probe(bag, environment, float(seconds))
        except ImpossibleDeadlineError:
            return False
        return True

    # By then one core of one VM has run all tasks, and those of the worst case after them.
    longest_s = sum(max(task.runtime_s.values()) for task in bag.tasks)
    most_s = math.ceil(
        3 * longest_s * (1 + environment.checkpoint_overhead) + environment.migration_overhead_s
    )
    low, high = math.floor(deadline_s), math.floor(deadline_s) + 1
    while not possible(high):
        if high > most_s:
            return None
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if possible(middle) else (middle, high)
    return high
