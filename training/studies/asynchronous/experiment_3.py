"""Experiment III of Liu 2022, chapter 7: the best rate by M_L and C (Tables 7.2 and 7.3, Figure 7.4)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from spotweave.training.canvas import panels, save
from spotweave.training.federated.asynchronous.outcomes import draw_staleness
from spotweave.training.federated.asynchronous.scenario import read_scenario
from spotweave.training.federated.asynchronous.virtual_time import Training, milestone_slices
from spotweave.training.studies.asynchronous.comparisons import EXAMPLES, PRINTED, Runs, with_method
from spotweave.training.studies.cells import table

RATES = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3)
VALIDATION_SEED = 100  # rates are chosen with it; the times that are reported are those of other seeds

RATES_PRINTED: dict[tuple[int, int], tuple[float, str]] = {
    (needed, multiple): (rate, time) for needed, multiple, rate, time in PRINTED["table_7_2"]
}
"""Rate and time of the milestone by (M_L, C)."""


def make(runs: Runs, seeds: int, picture: Path) -> dict[str, Any]:
    """Choose the rate of each cell, measure its time, draw the staleness; a document that JSON can hold."""
    scenario = read_scenario(EXAMPLES / "experiment_3.yaml")
    (milestone,) = scenario.milestones
    cells = []
    drawn: dict[str, list[Training]] = {}
    for needed, multiple in RATES_PRINTED:
        times = {}
        for rate in RATES:
            method = with_method(scenario, rate=rate, round_updates=needed, at_once=multiple * needed)
            found = runs.train(scenario, method, VALIDATION_SEED, until=milestone)
            times[rate] = milestone_slices(found, milestone)
        reached = {rate: time for rate, time in times.items() if time is not None}
        best = min(reached, key=lambda rate: reached[rate], default=None)
        slices, staleness = [], []
        if best is not None:
            method = with_method(scenario, rate=best, round_updates=needed, at_once=multiple * needed)
            trained = [runs.train(scenario, method, seed, until=milestone) for seed in range(seeds)]
            slices = [milestone_slices(training, milestone) for training in trained]
            staleness = [float(training.column("staleness").mean()) for training in trained]
            drawn[f"{needed}-{multiple}"] = trained
        cells.append(
            {
                "round_updates": needed,
                "multiple": multiple,
                "validation_slices": {f"{rate:g}": time for rate, time in times.items()},
                "rate": best,
                "slices": slices,
                "staleness": staleness,
            }
        )
        print(f"trained: experiment III, M_L = {needed}, C = {multiple}", flush=True)
    figure, axes = panels(1, 1)
    axes[0][0].set_xlabel("M_L - C")
    draw_staleness(axes[0][0], drawn)
    save(figure, picture)
    return {"seeds": seeds, "milestone": milestone, "picture": picture.name, "cells": cells}


def body(document: Mapping[str, Any]) -> str:
    """Both tables, the staleness and the picture, from such a document alone."""
    cells = {(cell["round_updates"], cell["multiple"]): cell for cell in document["cells"]}
    sizes = sorted({needed for needed, _ in cells})
    multiples = sorted({multiple for _, multiple in cells})
    head = ["", *(text for needed in sizes for text in (f"M_L = {needed}", "*printed*"))]
    lines = []
    for multiple in multiples:
        line = [[f"C = {multiple}"] for _ in range(3)]
        for needed in sizes:
            cell = cells.get((needed, multiple))
            if cell is None:
                line[0] += ["-", "-"]
                line[1] += ["-", "-"]
                line[2] += ["-"]
                continue
            rate, printed = RATES_PRINTED[needed, multiple]
            line[0] += ["none" if cell["rate"] is None else f"{cell['rate']:g}", f"*{rate:g}*"]
            reached = [time for time in cell["slices"] if time is not None]
            line[1] += [f"{fmean(reached):.3g}" if reached else "never", f"*{printed}*"]
            line[2] += [f"{fmean(cell['staleness']):.1f}" if cell["staleness"] else "-"]
        lines.append(line)
    rates, times, staleness = zip(*lines, strict=True)
    return "\n\n".join(
        [
            "Best learning rate (Table 7.2):",
            table(head, rates),
            f"Slices until an accuracy of {document['milestone']:g} with it (Table 7.3, which has 0.98):",
            table(head, times),
            "Mean staleness in versions (Figure 7.4):",
            table(["", *(f"M_L = {needed}" for needed in sizes)], staleness),
            f"![Staleness by M_L and C](liu2022-async/{document['picture']})",
        ]
    )
