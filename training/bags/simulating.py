"""`spotweave simulate bag`: executions of a primary scheduling map on VMs that hibernate, as a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean

from agents.bags.schedulers import POLICIES, SCHEDULERS, OnDemand, on_demand_plan, scheduler_named
from envs.documents.bags import read_environment, read_job, read_map
from envs.simulation.bags.execution import Execution
from envs.simulation.bags.model import BagError, Environment
from envs.simulation.bags.outcome import Outcome
from envs.simulation.bags.plan import Plan
from envs.simulation.bags.scenarios import Scenario, drawn, scenario_named
from training.bags.pictures import execution_figure
from training.studies.figures.canvas import save

COLUMNS: dict[str, tuple[Callable[[Outcome], float], str]] = {
    "USD": (lambda outcome: outcome.cost_usd, ".4f"),
    "makespan s": (lambda outcome: outcome.makespan_s, ".0f"),
    "hibernations": (lambda outcome: outcome.counts.hibernations, ".2f"),
    "resumes": (lambda outcome: outcome.counts.resumes, ".2f"),
    "migrations": (lambda outcome: outcome.counts.migrations, ".2f"),
    "steals": (lambda outcome: outcome.counts.steals, ".2f"),
    "on-demand VMs": (lambda outcome: outcome.counts.on_demand, ".2f"),
}
HEADINGS = ("scheduler", "missed deadlines", *COLUMNS)

Outcomes = dict[str, list[Outcome]]


def read(map_file: Path, job: Path | None, environment: Path | None) -> tuple[Plan, Environment]:
    """A map with its job and environment, which lie beside it unless told otherwise.

    Raises:
        BagError: one line that names the file, the field, its value and what is expected.
    """
    rentable = read_environment(environment or map_file.parent / "env.json")
    return read_map(map_file, read_job(job or map_file.parent / "job.json", rentable), rentable), rentable


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
        from training.bags.playing import OnePlan, play, policy_named  # torch takes seconds to load

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
) -> Outcomes:
    """Executions by scheduler: of one, or of all. Raises BagError."""
    chosen = scenario_named(scenario)
    names = [*SCHEDULERS, *POLICIES] if scheduler is None else [scheduler]
    for name in names:
        if name not in POLICIES:
            scheduler_named(name)
    plan, rentable = read(map_file, job, environment)
    return {name: execute(plan, rentable, chosen, name, seeds) for name in names}


def rows(outcomes: Outcomes) -> list[tuple[str, ...]]:
    """One line per scheduler: means, and in brackets the range over the seeds."""
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


def write_first(outcomes: Outcomes, scenario: str, bag: str, path: Path) -> None:
    """A picture of the first scheduler's execution with seed 0. Raises WriteError."""
    outcome = next(iter(outcomes.values()))[0]
    save(execution_figure(outcome, f"{bag}, {scenario}, seed 0, {outcome.scheduler}"), path)
