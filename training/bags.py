"""Bags of tasks (Teylo 2021): `spotweave plan bag`, `spotweave simulate bag`, and their pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from spotweave.agents.bags.planners import plan_bag
from spotweave.agents.bags.schedulers import POLICIES, SCHEDULERS, OnDemand, on_demand_plan, scheduler_named
from spotweave.agents.named import RULE_NAMES, named_rule
from spotweave.agents.policy import Policy
from spotweave.agents.stored import policy_file
from spotweave.envs.documents.bags import plan_document, read_environment, read_job, read_map
from spotweave.envs.simulation.bags.cases import Case, Scenario, drawn, scenario_named
from spotweave.envs.simulation.bags.execution import Execution
from spotweave.envs.simulation.bags.fleet import Outcome
from spotweave.envs.simulation.bags.model import SECONDS_PER_HOUR, BagError, Environment, Market, Vm
from spotweave.envs.simulation.bags.options import compute_d_spot
from spotweave.envs.simulation.bags.plan import Plan
from spotweave.envs.simulation.bags.rented import Span, VmState
from spotweave.envs.simulation.bags.world import BagWorld
from spotweave.envs.simulation.world import EpisodeKey
from spotweave.training.canvas import legend, save, single
from spotweave.training.files import write_json

COLUMNS: dict[str, tuple[Callable[[Outcome], float], str]] = {
    "USD": (lambda outcome: outcome.cost_usd, ".4f"),
    "makespan s": (lambda outcome: outcome.makespan_s, ".0f"),
    "hibernations": (lambda outcome: outcome.counts.hibernations, ".2f"),
    "resumes": (lambda outcome: outcome.counts.resumes, ".2f"),
    "migrations": (lambda outcome: outcome.counts.migrations, ".2f"),
    "steals": (lambda outcome: outcome.counts.steals, ".2f"),
    "on-demand VMs": (lambda outcome: outcome.counts.on_demand, ".2f"),
}
OUTCOME_HEADINGS = ("scheduler", "missed deadlines", *COLUMNS)


def execute(
    plan: Plan,
    environment: Environment,
    scenario: Scenario,
    scheduler: str,
    seeds: int,
    launch_s: float = 0.0,
    first_seed: int = 0,
) -> list[Outcome]:
    """Executions with the seeds from `first_seed` on; "on-demand" carries out the map with on-demand VMs.

    Policies know the scenario's rates; `launch_s` passes until the plan's VMs are ready.

    Raises:
        BagError: for an unknown scheduler or no seeds.
    """
    if seeds < 1:
        raise BagError(f"seeds is {seeds}, expected at least 1")
    if scheduler in POLICIES:
        source = OnePlan(plan, environment, scenario, launch_s, first_seed)
        return play(policy_named(scheduler, source), source, seeds)
    told = scheduler_named(scheduler)
    carried_out = on_demand_plan(plan) if isinstance(told, OnDemand) else plan
    return [
        Execution(carried_out, environment, drawn(scenario, seed), told, launch_s).run()
        for seed in range(first_seed, first_seed + seeds)
    ]


def simulate(
    map_file: Path,
    job: Path | None,
    environment: Path | None,
    scenario: str,
    scheduler: str | None,
    seeds: int,
    picture: Path | None,
) -> list[tuple[str, ...]]:
    """Execute a map by one scheduler, or by all; the rows of OUTCOME_HEADINGS.

    Job and environment lie beside the map unless told otherwise. Means have their range over the seeds in
    brackets; the picture is of the first scheduler's execution with seed 0. Raises BagError and WriteError.
    """
    chosen = scenario_named(scenario)
    names = [*SCHEDULERS, *POLICIES] if scheduler is None else [scheduler]
    for name in names:
        if name not in POLICIES:
            scheduler_named(name)
    rentable = read_environment(environment or map_file.parent / "env.json")
    plan = read_map(map_file, read_job(job or map_file.parent / "job.json", rentable), rentable)
    outcomes = {name: execute(plan, rentable, chosen, name, seeds) for name in names}
    if picture is not None:
        outcome = outcomes[names[0]][0]
        title = f"{map_file.stem}, {scenario}, seed 0, {outcome.scheduler}"
        save(execution_figure(outcome, title), picture)
    return [
        (
            name,
            f"{sum(outcome.missed for outcome in mine)} of {len(mine)}",
            *(_spread([value(outcome) for outcome in mine], form) for value, form in COLUMNS.values()),
        )
        for name, mine in outcomes.items()
    ]


def _spread(values: Sequence[float], form: str) -> str:
    mean, low, high = fmean(values), min(values), max(values)
    return f"{mean:{form}}" + (f" ({low:{form}} to {high:{form}})" if low < high else "")


PLAN_HEADINGS = ("VM", "mode", "tasks", "rented s", "USD per hour", "USD")


def plan(
    job: Path, environment: Path, planner: str, deadline_s: float, seed: int, out: Path, picture: Path | None
) -> tuple[list[tuple[str, ...]], str]:
    """Plan, write the map and, if asked for, its picture; the rows of PLAN_HEADINGS, and the line below them.

    Raises BagError: one line for a mistake, or a deadline that is impossible; WriteError.
    """
    rentable = read_environment(environment)
    found = plan_bag(planner, read_job(job, rentable), rentable, deadline_s, seed)
    if picture is not None:
        save(plan_figure(found, f"{found.bag.name}, planned by {planner}"), picture)
    write_json(out, plan_document(found, planner))
    rows: list[tuple[str, ...]] = [
        (
            planned.vm.name,
            planned.mode,
            str(len(planned.tasks)),
            f"{found.rented_s(planned):.1f}",
            f"{planned.vm.usd_hour:.4f}",
            f"{found.rented_s(planned) * planned.vm.usd_hour / SECONDS_PER_HOUR:.4f}",
        )
        for planned in found.vms
    ]
    return rows, (
        f"{len(found.bag.tasks)} tasks on {len(found.vms)} VMs: {found.cost_usd:.4f} USD, makespan "
        f"{found.makespan_s:.1f} s, slack {found.slack_s:.1f} s to the deadline {found.deadline_s:g} s "
        f"(D_spot {found.d_spot_s:.1f} s)"
    )


RELEASED = "bags"  # the released policy


@dataclass(frozen=True)
class OnePlan:
    """One plan in the worlds of consecutive seeds, one for each index of an episode. A `CaseSource`.

    A plan without VMs leaves the start to the policy.
    """

    plan: Plan
    environment: Environment
    scenario: Scenario
    launch_s: float
    first_seed: int = 0

    def case(self, key: EpisodeKey) -> Case:
        """The case of an episode."""
        d_spot_s = compute_d_spot(self.plan.bag.tasks, self.environment, self.plan.deadline_s)
        changes = drawn(self.scenario, self.first_seed + key.index)
        return Case(self.plan, self.environment, self.scenario, changes, d_spot_s, self.launch_s)


def play(policy: Policy, source: OnePlan, seeds: int) -> list[Outcome]:
    """Executions with so many seeds, as `execute` gives them for a scheduler."""
    world = BagWorld(source, seeds)
    world.reset([EpisodeKey(0, "test", seed) for seed in range(seeds)])
    for lane in range(seeds):
        policy.begin(lane, lane)
    actions = np.zeros(seeds, np.int64)
    # Where nothing hibernates, a plan may end without a question.
    active = np.asarray(world.observation["action_mask"].any(1), np.bool_)
    while active.any():
        lanes = np.flatnonzero(active)
        actions[lanes] = policy.act_lanes(world.observation, lanes)
        _, done = world.step(actions, active)
        active &= ~done
    return [replace(world.outcome(lane), scheduler=policy.name) for lane in range(seeds)]


def policy_named(name: str, source: OnePlan) -> Policy:
    """One of `agents.bags.schedulers.POLICIES`. Raises CheckpointError if its file is damaged."""
    if name in RULE_NAMES:
        return named_rule(name)
    from spotweave.training.checkpoint import load_policy

    return load_policy(policy_file(RELEASED), BagWorld(source, 1).spec)


# Okabe and Ito (2008): colour-blind readers can tell these apart.
KINDS = {
    "spot": ("#56B4E9", "task on spot"),
    "on-demand": ("#E69F00", "task on demand"),
    "burstable, baseline mode": ("#009E73", "task on a burstable VM"),
}
STATES = {VmState.STARTING: "#BBBBBB", VmState.IDLE: "#EEEEEE"}
HIBERNATED, HATCH = "#D55E00", "////"
BAR_HEIGHT = 0.8
ROW_INCHES = 0.17
GAP = 0.6  # rows between two VMs
NARROWEST = 0.022  # share of the width that a bar needs to hold the task's name
FAR = 2.5  # limits further than so many makespans are told in words, as the bars would be too thin otherwise


def plan_figure(plan: Plan, title: str) -> Figure:
    """The tasks of each core over time, and the limits D_spot and D."""
    tops, top = _tops([planned.vm for planned in plan.vms])
    figure, axis = single(10, 1.6 + ROW_INCHES * top)
    styles: tuple[Literal["--", "-"], ...] = ("--", "-")
    limits = {
        f"D_spot {plan.d_spot_s:.0f} s": plan.d_spot_s,
        f"deadline {plan.deadline_s:.0f} s": plan.deadline_s,
    }
    shown = {text: at for text, at in limits.items() if at <= FAR * plan.makespan_s}
    width_s = 1.02 * max(plan.makespan_s, *shown.values(), 1.0)
    for planned, row in zip(plan.vms, tops, strict=True):
        for placed in planned.tasks:
            times = placed.start_s, placed.end_s
            _draw_task(axis, planned.vm, row + placed.core, times, placed.task.name, width_s)
    for (text, at), style in zip(limits.items(), styles, strict=True):
        if text in shown:
            axis.axvline(at, color="black", linewidth=1, linestyle=style)
    _frame(axis, [planned.vm for planned in plan.vms], tops, top, width_s)
    axis.set_xlabel("seconds after the start; one row per core, the number is the task")
    beyond = [text for text in limits if text not in shown]
    axis.set_title(
        f"{title}: {plan.cost_usd:.4f} USD, makespan {plan.makespan_s:.0f} s"
        + (f" ({', '.join(beyond)}: further right)" if beyond else ""),
        fontsize=10,
    )
    kinds = {_kind(planned.vm) for planned in plan.vms}
    marks: list[Patch | Line2D] = [
        Patch(color=colour, label=kind) for kind, (colour, _) in KINDS.items() if kind in kinds
    ]
    marks += [
        Line2D([], [], color="black", linewidth=1, linestyle=style, label=text)
        for text, style in zip(limits, styles, strict=True)
        if text in shown
    ]
    legend(figure, len(marks), handles=marks)
    return figure


def execution_figure(outcome: Outcome, title: str) -> Figure:
    """What each VM did and which tasks its cores ran; hibernated spans are hatched."""
    tops, top = _tops(outcome.vms)
    figure, axis = single(11, 1.8 + ROW_INCHES * top)
    end_s = max((spans[-1].end_s for spans in outcome.states if spans), default=0.0)
    width_s = 1.02 * max(end_s, outcome.deadline_s)
    for vm, spans, row in zip(outcome.vms, outcome.states, tops, strict=True):
        _draw_states(axis, vm, spans, row)
    for span in outcome.tasks:
        times = span.start_s, span.end_s
        _draw_task(axis, outcome.vms[span.vm], tops[span.vm] + span.core, times, str(span.task), width_s)
    axis.axvline(outcome.deadline_s, color="black", linewidth=1)
    _frame(axis, outcome.vms, tops, top, width_s)
    axis.set_xlabel("seconds after the start; one row per core, the number is the task's place in the bag")
    axis.set_title(
        f"{title}: {outcome.cost_usd:.4f} USD, makespan {outcome.makespan_s:.0f} s, "
        f"{outcome.counts.migrations} migrations, {outcome.counts.steals} steals",
        fontsize=10,
    )
    legend(figure, 7, handles=_marks(outcome))
    return figure


def _tops(vms: Sequence[Vm]) -> tuple[list[float], float]:
    """The first row of each VM, and the row after all."""
    tops, top = [], 0.0
    for vm in vms:
        tops.append(top)
        top += vm.vm_type.vcpus + GAP
    return tops, top


def _frame(axis: Axes, vms: Sequence[Vm], tops: Sequence[float], top: float, width_s: float) -> None:
    middles = [row + (vm.vm_type.vcpus - 1) / 2 for row, vm in zip(tops, vms, strict=True)]
    axis.set_yticks(middles, [vm.name for vm in vms], fontsize=8)
    axis.set_ylim(top - GAP - 0.4, -0.6)
    axis.set_xlim(0, width_s)
    axis.spines[["top", "right"]].set_visible(False)


def _kind(vm: Vm) -> str:
    if vm.vm_type.burstable:
        return "burstable, baseline mode"
    return "spot" if vm.market == Market.SPOT else "on-demand"


def _draw_task(axis: Axes, vm: Vm, row: float, times: tuple[float, float], name: str, width_s: float) -> None:
    start_s, end_s = times
    duration_s = end_s - start_s
    axis.barh(
        row,
        duration_s,
        left=start_s,
        height=BAR_HEIGHT,
        color=KINDS[_kind(vm)][0],
        edgecolor="white",
        linewidth=0.6,
    )
    if duration_s >= NARROWEST * width_s:
        axis.text((start_s + end_s) / 2, row, name, ha="center", va="center", fontsize=6, clip_on=True)


def _draw_states(axis: Axes, vm: Vm, spans: tuple[Span, ...], top: float) -> None:
    middle, height = top + (vm.vm_type.vcpus - 1) / 2, vm.vm_type.vcpus - 1 + BAR_HEIGHT
    for state, start_s, end_s in spans:
        away = state == VmState.HIBERNATED
        axis.barh(
            middle,
            end_s - start_s,
            height,
            start_s,
            color="white" if away else STATES.get(state, STATES[VmState.IDLE]),
            edgecolor=HIBERNATED if away else "none",
            hatch=HATCH if away else None,
            linewidth=0.6,
        )


def _marks(outcome: Outcome) -> list[Patch | Line2D]:
    kinds = {_kind(outcome.vms[span.vm]) for span in outcome.tasks}
    seen = {span.state for spans in outcome.states for span in spans}
    marks: list[Patch | Line2D] = [
        Patch(color=colour, label=task) for kind, (colour, task) in KINDS.items() if kind in kinds
    ]
    marks += [
        Patch(color=colour, label=f"{state}, billed") for state, colour in STATES.items() if state in seen
    ]
    if VmState.HIBERNATED in seen:
        marks.append(Patch(facecolor="white", edgecolor=HIBERNATED, hatch=HATCH, label="hibernated"))
    marks.append(Line2D([], [], color="black", linewidth=1, label=f"deadline {outcome.deadline_s:.0f} s"))
    return marks
