"""Tables 7.4 and 7.5 of Teylo 2021: HADS on spot VMs against on-demand VMs, without and with hibernation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any, NamedTuple

from spotweave.agents.bags.heuristics import Draft
from spotweave.envs.simulation.bags.cases import SCENARIOS, Scenario, published_job
from spotweave.envs.simulation.bags.fleet import Outcome
from spotweave.envs.simulation.bags.model import TABLE_7_1, Environment, Market, Vm
from spotweave.envs.simulation.bags.options import compute_d_spot
from spotweave.envs.simulation.bags.plan import Plan
from spotweave.training.bags import execute
from spotweave.training.evaluation.statistics import estimate
from spotweave.training.studies.bags import PRINTED
from spotweave.training.studies.cells import Columns, columns_table, interval_cell

ENVIRONMENT = Environment(TABLE_7_1)
DEADLINE_S = 2100.0
SEEDS = 30
SLOWEST_S, FASTEST_S = 64.0, 0.5
HALVINGS = 5  # bisections of the logarithm of trial_s between these: 5 leave 16 %
MATCHING_SEEDS = 10
CLOSE = 8.0  # points of saving that count as close to the print


class Published(NamedTuple):
    """A row of Table 7.5: one scenario. `saving` is the per cent less than on demand."""

    hibernations: float
    on_demand: float
    makespan: str
    usd: float
    saving: float


class Job(NamedTuple):
    """A job of both tables."""

    vms: Sequence[int]  # c3.large, c4.large, c3.xlarge, c4.xlarge: how many of each (Table 7.4)
    makespan: str  # without hibernation, minutes and seconds
    spot_usd: float  # without hibernation
    on_demand_usd: float  # of the same VMs on demand
    scenarios: Sequence[Published]  # sc_1 to sc_7


JOBS = {
    name: Job(**job, scenarios=[Published(*row) for row in PRINTED["table_7_5"][name]])
    for name, job in PRINTED["table_7_4"].items()
}

COLUMNS_7_4: Columns = (
    ("job", "{name}"),
    ("makespan", "*{print.makespan}*"),
    ("ours", "{makespan}"),
    ("spot USD", "*{print.spot_usd:.2f}*"),
    ("ours", "{ours[spot_usd]:.3f}"),
    ("on demand USD", "*{print.on_demand_usd:.2f}*"),
    ("ours", "{ours[on_demand_usd]:.3f}"),
    ("saving", "*{saved_in_print:.1f} %*"),
    ("ours", "{saved:.1f} %"),
)
COLUMNS_7_5: Columns = (
    ("hibernated", "*{print.hibernations:.2f}*"),
    ("ours", "{printed[hibernations]:.2f}"),
    ("on-demand VMs", "*{print.on_demand:.2f}*"),
    ("ours", "{printed[on_demand]:.2f}"),
    ("makespan", "*{print.makespan}*"),
    ("ours", "{makespan}"),
    ("saving", "*{print.saving:.1f} %*"),
    ("ours", "{saving}"),
    ("missed", "{missed}"),
    ("trial every", "{matched[trial_s]:.1f} s"),
    ("saving then", "{matched_saving}"),
)


def starting_plan(name: str) -> Plan:
    """A job on the spot VMs that Table 7.4 prints, each task where it ends soonest.

    All types run a task as long as Table 7.2 says, which names no type: only so do the printed VMs need about
    the printed makespan.
    """
    bag = published_job(name, TABLE_7_1)
    tasks = [
        replace(task, runtime_s=dict.fromkeys(task.runtime_s, task.runtime_s["c3.large"]))
        for task in bag.tasks
    ]
    bag = replace(bag, tasks=tuple(tasks))
    draft = Draft(bag, ENVIRONMENT, DEADLINE_S, compute_d_spot(bag.tasks, ENVIRONMENT, DEADLINE_S))
    by_name = {vm_type.name: vm_type for vm_type in TABLE_7_1}
    order = ("c3.large", "c4.large", "c3.xlarge", "c4.xlarge")
    vms = [
        Vm(by_name[vm_type], Market.SPOT, number)
        for vm_type, count in zip(order, JOBS[name].vms, strict=True)
        for number in range(1, count + 1)
    ]
    for task in bag.tasks:
        slots = [(slot, vm) for vm in vms if (slot := draft.slot(task, vm)) is not None]
        slot, vm = min(slots, key=lambda found: found[0].end_s)
        draft.schedule(task, vm, slot)
    return draft.plan()


def make_table_7_4() -> dict[str, Any]:
    """Both executions of each job, with the time until the VMs are ready."""
    rows = {}
    for name in JOBS:
        plan = starting_plan(name)
        [spot] = _play(plan, SCENARIOS["none"], 1)
        [on_demand] = _play(plan, SCENARIOS["none"], 1, "on-demand")
        rows[name] = {
            "makespan_s": spot.makespan_s,
            "spot_usd": spot.cost_usd,
            "on_demand_usd": on_demand.cost_usd,
        }
    return {"jobs": rows}


def table_7_4_body(document: Mapping[str, Any]) -> str:
    """The table: in each cell what is printed, then ours."""
    rows = [
        {
            "name": name,
            "print": JOBS[name],
            "ours": ours,
            "makespan": _clock(ours["makespan_s"]),
            "saved_in_print": 100 * (1 - JOBS[name].spot_usd / JOBS[name].on_demand_usd),
            "saved": 100 * (1 - ours["spot_usd"] / ours["on_demand_usd"]),
        }
        for name, ours in document["jobs"].items()
    ]
    return columns_table(COLUMNS_7_4, rows)


def make_table_7_5() -> dict[str, Any]:
    """All jobs and scenarios: with the rates as printed, and with as many hibernations as printed."""
    jobs = {}
    for name, job in JOBS.items():
        plan = starting_plan(name)
        [on_demand] = _play(plan, SCENARIOS["none"], 1, "on-demand")
        cells = {}
        for number, published in enumerate(job.scenarios, 1):
            scenario = SCENARIOS[f"sc_{number}"]
            matched = matched_scenario(plan, scenario, published)
            cells[scenario.name] = {
                "printed": _cell(_play(plan, scenario, SEEDS), on_demand),
                "matched": {"trial_s": matched.trial_s, **_cell(_play(plan, matched, SEEDS), on_demand)},
            }
        jobs[name] = cells
    return {"seeds": SEEDS, "jobs": jobs}


def _play(plan: Plan, scenario: Scenario, seeds: int, scheduler: str = "hads") -> list[Outcome]:
    return execute(plan, ENVIRONMENT, scenario, scheduler, seeds, ENVIRONMENT.migration_overhead_s)


def matched_scenario(plan: Plan, scenario: Scenario, published: Published) -> Scenario:
    """The scenario with the trial_s at which as many VMs hibernate as in the print; costs play no part."""
    low, high = math.log(FASTEST_S), math.log(SLOWEST_S)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        outcomes = _play(plan, replace(scenario, trial_s=math.exp(middle)), MATCHING_SEEDS)
        if fmean(outcome.counts.hibernations for outcome in outcomes) > published.hibernations:
            low = middle
        else:
            high = middle
    return replace(scenario, trial_s=round(math.exp((low + high) / 2), 2))


def _cell(outcomes: Sequence[Outcome], on_demand: Outcome) -> dict[str, Any]:
    return {
        "saving": estimate([100 * (1 - outcome.cost_usd / on_demand.cost_usd) for outcome in outcomes]),
        "makespan_s": fmean(outcome.makespan_s for outcome in outcomes),
        "hibernations": fmean(outcome.counts.hibernations for outcome in outcomes),
        "on_demand": fmean(outcome.counts.on_demand for outcome in outcomes),
        "missed": sum(outcome.missed for outcome in outcomes),
    }


def table_7_5_body(document: Mapping[str, Any]) -> str:
    """One table per job, and how many rows are close to the print."""
    tables = []
    close = bracketed = total = 0
    for name, cells in document["jobs"].items():
        rows = []
        for (scenario, cell), published in zip(cells.items(), JOBS[name].scenarios, strict=True):
            printed, matched = cell["printed"], cell["matched"]
            savings = [printed["saving"]["mean"], matched["saving"]["mean"]]
            total += 1
            close += abs(savings[0] - published.saving) <= CLOSE
            bracketed += min(savings) - CLOSE <= published.saving <= max(savings) + CLOSE
            rows.append(
                {
                    **cell,
                    "scenario": scenario,
                    "print": published,
                    "makespan": _clock(printed["makespan_s"]),
                    "saving": interval_cell(printed["saving"], ".1f"),
                    "missed": printed["missed"] + matched["missed"],
                    "matched_saving": interval_cell(matched["saving"], ".1f"),
                }
            )
        tables.append(columns_table([(f"{name}: scenario", "{scenario}"), *COLUMNS_7_5], rows))
    said = (
        f"The saving is within {CLOSE:g} points of the print in {close} of {total} rows with the rates as "
        f"printed, and within {CLOSE:g} points of what lies between both of ours in {bracketed}."
    )
    return "\n\n".join([*tables, said])


def _clock(seconds: float) -> str:
    return f"{round(seconds) // 60}:{round(seconds) % 60:02d}"
