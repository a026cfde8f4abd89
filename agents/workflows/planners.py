"""The planners by name."""

from __future__ import annotations

from collections.abc import Callable

from spotweave.agents.workflows.annealing import plan_by_annealing, plan_fairly, plan_greedily
from spotweave.agents.workflows.exact import plan_exactly
from spotweave.agents.workflows.lists import plan_by_cpop, plan_by_heft
from spotweave.agents.workflows.solution import Solution
from spotweave.envs.simulation.workflows.model import Platform, Workflow, WorkflowError
from spotweave.envs.simulation.workflows.plan import Plan, plan_of, require_possible
from spotweave.envs.simulation.workflows.problem import Problem, problem_of, require_runnable, require_sound


def _unseeded(plan: Callable[[Problem], Solution]) -> Callable[[Problem, int], Solution]:
    return lambda problem, _: plan(problem)


PLANNERS: dict[str, Callable[[Problem, int], Solution]] = {
    "greedy": _unseeded(plan_greedily),
    "annealing": plan_by_annealing,
    "heft": _unseeded(plan_by_heft),
    "cpop": _unseeded(plan_by_cpop),
    "exact": _unseeded(plan_exactly),
    "fair": _unseeded(plan_fairly),
}
"""By name: a problem and a seed give a solution."""


def plan_workflow(name: str, workflow: Workflow, platform: Platform, seed: int = 0) -> Plan:
    """A planner's plan, checked.

    Args:
        name: one of PLANNERS.
        workflow: what runs.
        platform: where it may run.
        seed: of random choices.

    Raises:
        WorkflowError: for another name, a bad seed, a workflow that cannot be run, or one that is too large.
    """
    if name not in PLANNERS:
        raise WorkflowError(f"there is no planner {name!r}: use {', '.join(PLANNERS)}")
    if seed < 0:
        raise WorkflowError(f"the seed is {seed}, expected a whole number >= 0")
    return checked_plan(lambda problem: PLANNERS[name](problem, seed), workflow, platform)


def checked_plan(plan: Callable[[Problem], Solution], workflow: Workflow, platform: Platform) -> Plan:
    """The plan that `plan` makes, checked. Raises WorkflowError for a workflow that cannot be run."""
    require_runnable(require_sound(workflow), platform)
    problem = problem_of(workflow, platform)
    return require_possible(plan_of(workflow, platform, problem, *plan(problem)))
