"""The commands of `spotweave` for workflows: their options. What they do is imported when they run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from spotweave.tables import show
from training.federated.commands import one_line_errors


def mount(app: typer.Typer) -> None:
    """Add the commands to `spotweave`."""
    app.command("plan-workflow")(one_line_errors(plan_workflow))
    app.command("split")(one_line_errors(split))


def plan_workflow(
    file: Annotated[Path, typer.Argument(help="a workflow file, or an instance in WfFormat (WfCommons)")],
    planner: Annotated[str, typer.Option(help="greedy, annealing, heft, cpop, exact or fair")] = "annealing",
    clusters: Annotated[
        Path | None, typer.Option(help="a workflow file whose clusters and network are used instead")
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="where the plan is written")] = Path("plan.json"),
    picture: Annotated[Path | None, typer.Option(help="a PNG of the plan to write as well")] = None,
    seed: Annotated[int, typer.Option(help="of what annealing draws")] = 0,
) -> None:
    """Plan a workflow over several clusters: spotweave plan-workflow gis.yaml --planner annealing."""
    from training.workflows import planning

    found = planning.plan(file, planner, clusters, seed)
    planning.write(found, planner, out, picture)
    show(planning.HEADINGS, planning.rows(found))
    print(planning.summary(found))
    print(f"written: {out}" + (f" and {picture}" if picture else ""))


def split(
    file: Annotated[Path, typer.Argument(help="a workflow file with steps that are declared divisible")],
    clusters: Annotated[
        int | None, typer.Option(help="the most clusters to divide among; else all that have the input")
    ] = None,
    block_mb: Annotated[float, typer.Option(help="size of a block of the file system, MB")] = 128.0,
    most_blocks: Annotated[
        float | None, typer.Option(help="divide what has more; else 10 times the largest cluster's executors")
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="where the new workflow file is written")] = Path(
        "split.json"
    ),
) -> None:
    """Divide steps among clusters, or combine them: spotweave split wordcount.yaml --clusters 3."""
    from training.workflows import planning

    found = planning.split(file, clusters, block_mb, most_blocks, out)
    show(planning.SPLIT_HEADINGS, planning.split_rows(found))
    print(f"written: {out}")
