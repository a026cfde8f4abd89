"""`spotweave plan bag`: the primary scheduling map of a bag, as a file, a table and a picture."""

from __future__ import annotations

from pathlib import Path

from agents.bags.planners import plan_bag
from envs.documents.bags import plan_document, read_environment, read_job
from envs.simulation.bags.model import SECONDS_PER_HOUR
from envs.simulation.bags.plan import Plan
from training.bags.pictures import plan_figure
from training.files import write_json
from training.studies.figures.canvas import save

HEADINGS = ("VM", "mode", "tasks", "rented s", "USD per hour", "USD")


def plan(job: Path, environment: Path, planner: str, deadline_s: float, seed: int) -> Plan:
    """Read both files and plan. Raises BagError: one line for a mistake, or a deadline that is impossible."""
    rentable = read_environment(environment)
    return plan_bag(planner, read_job(job, rentable), rentable, deadline_s, seed)


def write(found: Plan, planner: str, out: Path, picture: Path | None) -> None:
    """Write the map and, if asked for, its picture, each atomically. Raises WriteError."""
    if picture is not None:
        save(plan_figure(found, f"{found.bag.name}, planned by {planner}"), picture)
    write_json(out, plan_document(found, planner))


def rows(found: Plan) -> list[tuple[str, ...]]:
    """One line per VM."""
    return [
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


def summary(found: Plan) -> str:
    """Cost, makespan and slack."""
    return (
        f"{len(found.bag.tasks)} tasks on {len(found.vms)} VMs: {found.cost_usd:.4f} USD, makespan "
        f"{found.makespan_s:.1f} s, slack {found.slack_s:.1f} s to the deadline {found.deadline_s:g} s "
        f"(D_spot {found.d_spot_s:.1f} s)"
    )
