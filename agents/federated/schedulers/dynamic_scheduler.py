"""Dynamic Scheduler of Multi-FedLS: where a task goes that lost its VM (Brum 2023, Algorithms 1-3).

Algorithms 1 and 2 compute a round's makespan and cost with one task on another VM; that is what
`Federation.outcome` computes for the changed placement (Eq. 6.4-6.6 and 6.17), so it is used here. The tests
compare it with the listings, loop by loop.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from envs.simulation.federations.model import Federation, Outcome, Placement
from envs.simulation.federations.rounds.application import SERVER


def moved(placement: Placement, task: int, vm_type: int) -> Placement:
    """The placement with one task (a client's number, or SERVER) on another VM type."""
    if task == SERVER:
        return replace(placement, server=vm_type)
    clients = placement.clients
    return replace(placement, clients=(*clients[:task], vm_type, *clients[task + 1 :]))


def recalculated(
    federation: Federation, placement: Placement, task: int, vm_type: int, alpha: float
) -> Outcome:
    """Makespan (Algorithm 1: `round_s`), cost (Algorithm 2: `round_usd`) and value with a task moved.

    Raises:
        FederationError: if the task cannot run there.
    """
    return federation.outcome(moved(placement, task, vm_type), alpha)


def select_instance(
    federation: Federation, placement: Placement, task: int, candidates: Iterable[int], alpha: float
) -> int | None:
    """Algorithm 3 after its first line: the VM type with the smallest value, the first of equals.

    Args:
        federation: times and prices, on the markets that the tasks are rented on.
        placement: where all tasks are; where the faulty one was does not matter.
        task: the faulty task, a client's number or SERVER.
        candidates: I_t, the VM types it may go to; whether the revoked type is one of them is the caller's.
        alpha: weight of cost against makespan.

    Returns:
        The type; None without candidates.
    """
    values = {
        vm_type: recalculated(federation, placement, task, vm_type, alpha).objective for vm_type in candidates
    }
    return min(values, key=values.__getitem__) if values else None
