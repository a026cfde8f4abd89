"""The planners by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agents.workflows.annealing import plan_by_annealing
from agents.workflows.exact import plan_exactly
from agents.workflows.greedy import plan_fairly, plan_greedily
from agents.workflows.lists import plan_by_cpop, plan_by_heft
from agents.workflows.solution import Solution
from envs.simulation.workflows.checks import require_runnable, require_sound
from envs.simulation.workflows.errors import WorkflowError
from envs.simulation.workflows.model import Platform, Workflow
from envs.simulation.workflows.plan import Plan, plan_of, require_possible
from envs.simulation.workflows.problem import Problem, problem_of


@dataclass(frozen=True)
class Planner:
    """A planner.

    Attributes:
        title: what it is.
        plan: its solution of a problem with a seed.
    """

    title: str
    plan: Callable[[Problem, int], Solution]


def _unseeded(title: str, plan: Callable[[Problem], Solution]) -> Planner:
    return Planner(title, lambda problem, _: plan(problem))


PLANNERS = {
    "greedy": _unseeded("greedy initial plan (Liu 2022, Algorithm 2)", plan_greedily),
    "annealing": Planner("simulated annealing (Liu 2022, Algorithm 2)", plan_by_annealing),
    "heft": _unseeded("HEFT (Topcuoglu 2002)", plan_by_heft),
    "cpop": _unseeded("CPOP (Topcuoglu 2002)", plan_by_cpop),
    "exact": _unseeded("shortest schedule, by HiGHS; small workflows only", plan_exactly),
    "fair": _unseeded("clusters take turns (baseline of Liu 2022, Table 3.1)", plan_fairly),
}


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
    require_runnable(require_sound(workflow), platform)
    problem = problem_of(workflow, platform)
    solution = PLANNERS[name].plan(problem, seed)
    return require_possible(plan_of(workflow, platform, problem, *solution))
