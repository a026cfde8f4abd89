"""The commands of `spotweave` for bags of tasks: their options. What they do is imported when they run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from spotweave.tables import show
from training.federated.commands import one_line_errors


def mount(app: typer.Typer) -> None:
    """Add the commands to `spotweave`."""
    app.command("plan")(one_line_errors(plan))


def plan(
    job: Annotated[Path, typer.Argument(help="job.json: tasks, their memory and run times")],
    environment: Annotated[Path, typer.Argument(help="env.json: the VM types that may be rented")],
    deadline: Annotated[float, typer.Option(help="seconds by which all tasks must have ended")],
    planner: Annotated[
        str, typer.Option(help="hads, burst-hads, ils, exact, minmin, maxmin or greedy")
    ] = "hads",
    out: Annotated[Path, typer.Option("--out", "-o", help="where the map is written")] = Path("map.json"),
    picture: Annotated[Path | None, typer.Option(help="a PNG of the map to write as well")] = None,
    seed: Annotated[int, typer.Option(help="of what ils and burst-hads draw")] = 0,
) -> None:
    """Plan a bag of tasks on spot VMs: spotweave plan job.json env.json --deadline 2100 -o map.json."""
    from training.bags import planning

    found = planning.plan(job, environment, planner, deadline, seed)
    planning.write(found, planner, out, picture)
    show(planning.HEADINGS, planning.rows(found))
    print(planning.summary(found))
    print(f"written: {out}" + (f" and {picture}" if picture else ""))
