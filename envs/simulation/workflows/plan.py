"""A plan: which cluster runs which step when, which files move, and whether it can be carried out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from spotweave.envs.simulation.series import Floats, Ints
from spotweave.envs.simulation.workflows.model import (
    Platform,
    Workflow,
    WorkflowError,
    files_by_name,
    input_gb,
    occupied,
    run_s,
)
from spotweave.envs.simulation.workflows.problem import Problem, allowed, may_hold, simulate, writers

SECONDS_PER_HOUR = 3600.0
TIME_TOLERANCE_S = 1e-6


@dataclass(frozen=True)
class Placement:
    """A step's tuple (cluster, t_start, t_finish) of the thesis, by name and in seconds after the start."""

    step: str
    cluster: str
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Move:
    """A file that is moved for a step, by name and in seconds after the start."""

    file: str
    step: str
    source: str
    target: str
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Plan:
    """Placements by start, with what they are of."""

    workflow: Workflow
    platform: Platform
    placements: tuple[Placement, ...]

    @property
    def finish_s(self) -> float:
        """When the last step ends."""
        return max(placed.end_s for placed in self.placements)

    @property
    def late_s(self) -> float:
        """Seconds after the deadline; 0 if it is kept, or there is none."""
        deadline_s = self.workflow.deadline_s
        return 0.0 if deadline_s is None else max(0.0, self.finish_s - deadline_s)

    @property
    def cost_usd(self) -> float:
        """USD of the executors while steps occupy them."""
        steps = {step.name: step for step in self.workflow.steps}
        total = 0.0
        for placed in self.placements:
            cluster = self.platform.cluster(placed.cluster)
            executors = occupied(steps[placed.step], cluster)
            total += (placed.end_s - placed.start_s) * executors * cluster.price_usd_hour
        return total / SECONDS_PER_HOUR

    def moves(self) -> tuple[Move, ...]:
        """All movements of files: each as soon as it is written, from the nearest copy."""
        placed_at = {placed.step: placed for placed in self.placements}
        written, files = writers(self.workflow), files_by_name(self.workflow)
        reads = {step.name: step.reads for step in self.workflow.steps}
        found = []
        for placed in self.placements:
            for file in (files[name] for name in reads[placed.step]):
                writer = placed_at[written[file.name].name] if file.name in written else None
                sources, start_s = (file.at, 0.0) if writer is None else ((writer.cluster,), writer.end_s)
                taken = {at: self.platform.transfer_s(file.gb, at, placed.cluster) for at in sources}
                source = min(taken, key=lambda at: taken[at])
                if source != placed.cluster:
                    end_s = start_s + taken[source]
                    found.append(Move(file.name, placed.step, source, placed.cluster, start_s, end_s))
        return tuple(found)


def times_s(problem: Problem, cluster: Ints, order: Ints) -> tuple[Floats, Floats]:
    """[N] when the steps start, and [N] when they end; arguments as `simulate`."""
    n = len(order)
    start_s, end_s = np.zeros(n), np.zeros(n)
    simulate(problem, np.zeros(n), np.inf, cluster, order, work_space(problem), start_s, end_s)
    return start_s, end_s


def plan_of(workflow: Workflow, platform: Platform, problem: Problem, cluster: Ints, order: Ints) -> Plan:
    """The plan that running the steps in this order on these clusters comes to; arguments as `simulate`."""
    start_s, end_s = times_s(problem, cluster, order)
    placements = [
        Placement(step.name, platform.clusters[cluster[i]].name, float(start_s[i]), float(end_s[i]))
        for i, step in enumerate(workflow.steps)
    ]
    return Plan(workflow, platform, tuple(sorted(placements, key=lambda placed: placed.start_s)))


def work_space(problem: Problem) -> Floats:
    """[C, executors of the largest cluster] for `simulate`."""
    return np.zeros((len(problem.capacity), int(problem.capacity.max())))


def violations(plan: Plan) -> list[str]:
    """What makes a plan impossible, one line each; empty if it can be carried out.

    Found from names and times alone, without the arrays that planners use: every step runs once, for as long
    as Eq. 3.2 says, where it may, after its files have arrived; no cluster runs out of executors; no private
    file is where it may not be.
    """
    workflow, platform = plan.workflow, plan.platform
    steps, files = {step.name: step for step in workflow.steps}, files_by_name(workflow)
    names = [placed.step for placed in plan.placements]
    found = [f"step {name} runs {names.count(name)} times" for name in steps if names.count(name) != 1]
    if found:
        return found
    may = allowed(workflow, platform)
    for placed in plan.placements:
        step, cluster = steps[placed.step], platform.cluster(placed.cluster)
        if cluster.name not in may[step.name]:
            found.append(f"step {step.name} runs on {cluster.name}, which may not run it")
            continue
        expected_s = run_s(step, input_gb(step, files), cluster)
        if abs(placed.end_s - placed.start_s - expected_s) > TIME_TOLERANCE_S:
            found.append(
                f"step {step.name} runs {placed.end_s - placed.start_s:g} s, expected {expected_s:g} s"
            )
        # The executors in use grow only where a step starts.
        used = sum(
            occupied(steps[other.step], cluster)
            for other in plan.placements
            if other.cluster == cluster.name
            and other.start_s <= placed.start_s + TIME_TOLERANCE_S < other.end_s
        )
        if used > cluster.executors:
            found.append(f"{used} executors in use on {cluster.name}, it has {cluster.executors}")
    starts_s = {placed.step: placed.start_s for placed in plan.placements}
    for move in plan.moves():
        if move.end_s > starts_s[move.step] + TIME_TOLERANCE_S:
            found.append(f"step {move.step} starts before the file {move.file} is at {move.target}")
        if not may_hold(files[move.file], platform.cluster(move.target), platform):
            found.append(f"the private file {move.file} is moved to {move.target}")
    return found + _early(plan)


def _early(plan: Plan) -> list[str]:
    """Steps that start before one whose files they read has ended."""
    ends_s = {placed.step: placed.end_s for placed in plan.placements}
    starts_s = {placed.step: placed.start_s for placed in plan.placements}
    written = writers(plan.workflow)
    return [
        f"step {step.name} starts before the file {name} is written"
        for step in plan.workflow.steps
        for name in step.reads
        if name in written and ends_s[written[name].name] > starts_s[step.name] + TIME_TOLERANCE_S
    ]


def require_possible(plan: Plan) -> Plan:
    """The plan itself. Raises WorkflowError with the first violation if it cannot be carried out."""
    found = violations(plan)
    if found:
        raise WorkflowError(f"the plan cannot be carried out: {found[0]}")
    return plan


def plan_document(plan: Plan, planner: str) -> dict[str, Any]:
    """The plan as JSON can hold it, with its figures and the planner's name."""
    return {
        "workflow": plan.workflow.name,
        "planner": planner,
        "deadline_s": plan.workflow.deadline_s,
        "finish_s": plan.finish_s,
        "cost_usd": plan.cost_usd,
        "steps": [vars(placed) for placed in plan.placements],
        "moves": [vars(move) for move in plan.moves()],
    }
