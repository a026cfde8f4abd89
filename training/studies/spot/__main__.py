"""`python -m spotweave.training.studies.spot measure` plays the test days, `entries` writes the entries."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from spotweave.envs.simulation.streams import Split
from spotweave.mistakes import one_line_errors
from spotweave.training.progress import still_busy
from spotweave.training.studies.spot.entries import write_entries
from spotweave.training.studies.spot.page import write_page

app = typer.Typer(help="One job on spot zones.", add_completion=False)

Single = Annotated[str, typer.Option(help="checkpoint trained with env.rules=adrs_single")]
Multi = Annotated[str, typer.Option(help="checkpoint trained with env.rules=adrs_multi")]
SINGLE, MULTI = "spot/single", "spot/multi"


@app.command()
def measure(
    single: Single = SINGLE,
    multi: Multi = MULTI,
    out: Annotated[Path, typer.Option(help="directory of the page")] = Path("docs/results"),
    split: Annotated[
        Split, typer.Option(help="whose days are played; choices are made on validation")
    ] = "test",
) -> None:
    """Play the days of a split and write spot.md and spot.png.

    A checkpoint is a policy.pt, a run's directory or a released name.
    """
    with one_line_errors(), still_busy("playing"):
        write_page(single, multi, out, split)


@app.command()
def entries(
    single: Single = SINGLE,
    multi: Multi = MULTI,
    out: Annotated[Path, typer.Option(help="directory of the entries")] = Path("results/adrs"),
) -> None:
    """Write single.py and multi.py, entries of one file for the UCB-ADRS/ADRS-Leaderboard."""
    with one_line_errors():
        write_entries({"single": single, "multi": multi}, out)


if __name__ == "__main__":
    app()
