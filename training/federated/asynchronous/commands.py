"""The command of `spotweave` for asynchronous learning: its options. The rest is imported when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from spotweave.tables import show
from training.federated.commands import one_line_errors


def mount(app: typer.Typer) -> None:
    """Add the command to `spotweave`."""
    app.command("simulate-async")(one_line_errors(simulate_async))


def simulate_async(
    scenario: Annotated[Path, typer.Argument(help="a YAML file, e.g. of examples/asynchronous")],
    methods: Annotated[str, typer.Option(help="some of its methods: syn,fed_suda_1; all if left out")] = "",
    seeds: Annotated[int, typer.Option(help="trainings of each method, with seeds 0, 1, ...")] = 5,
    data: Annotated[
        Path | None, typer.Option(help="folder with MNIST or CIFAR-10; else 2,000 digits of the package")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="directory for tables and the picture")] = None,
) -> None:
    """Train asynchronously in virtual time: spotweave simulate-async scenario_b.yaml --seeds 5 --out DIR."""
    from training.federated.asynchronous import simulate_async as simulating

    names = [name.strip() for name in methods.split(",") if name.strip()]
    report = simulating.simulate(scenario, names, seeds, data, out)
    print(report.title)
    show(simulating.HEADINGS, report.rows)
    if out is not None:
        print(f"written: {out}")
