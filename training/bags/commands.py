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
    app.command("simulate")(one_line_errors(simulate))


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


def simulate(
    map_file: Annotated[Path, typer.Argument(metavar="MAP", help="map.json, as `spotweave plan` writes it")],
    job: Annotated[Path | None, typer.Option(help="job.json; else the one beside the map")] = None,
    env: Annotated[Path | None, typer.Option(help="env.json; else the one beside the map")] = None,
    scenario: Annotated[str, typer.Option(help="none, sc_1 to sc_7, s_1 to s_5, or c_1 to c_3")] = "sc_4",
    scheduler: Annotated[
        str | None, typer.Option(help="hads, burst-hads, on-demand, bag_cost or mtdqn; all if left out")
    ] = None,
    seeds: Annotated[int, typer.Option(help="executions, with seeds 0, 1, ...")] = 30,
    picture: Annotated[
        Path | None, typer.Option(help="a PNG of the (first) scheduler's execution with seed 0")
    ] = None,
) -> None:
    """Execute a map on spot VMs that hibernate: spotweave simulate map.json --scenario sc_4 --seeds 30."""
    from training.bags import simulating

    outcomes = simulating.simulate(map_file, job, env, scenario, scheduler, seeds)
    if picture is not None:
        simulating.write_first(outcomes, scenario, map_file.stem, picture)
    show(simulating.HEADINGS, simulating.rows(outcomes))
    print(f"{scenario}, {seeds} executions: means, and the range over the seeds in brackets")
    if picture is not None:
        print(f"written: {picture}")
