"""Run the benchmarks: python -m benchmarks [--all] [--only NAME ...] [--smallest] [--out FILE]."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import (
    aws_reconcile,
    brokers,
    decisions,
    initial_mapping,
    loop,
    memory,
    month,
    scaling,
    simulation,
)
from benchmarks import training as learning
from benchmarks.measurement import Benchmark, Measurement, describe
from spotweave.training.config import provenance
from spotweave.training.files import prepare_directory, write_json

LATEST = Path(__file__).resolve().parent / "latest.json"

BENCHMARKS = (
    Benchmark(
        "multicluster",
        "simulation of MultiCluster-v0",
        partial(simulation.measure_steps, "spotweave/MultiCluster-v0", "maf", 15_000, 80_000),
    ),
    Benchmark(
        "multicloud",
        "simulation of MultiCloud-v5",
        partial(simulation.measure_steps, "spotweave/MultiCloud-v5", "spot_fallback", 10_000, 100_000),
    ),
    Benchmark("episodes", "whole episodes of MultiCloud-v5", simulation.measure_episodes),
    Benchmark("federated_rounds", "simulation of federated rounds", simulation.measure_rounds),
    Benchmark("bag_executions", "executions of a bag of tasks", simulation.measure_bags),
    Benchmark("workflow_plans", "planning of a large workflow", simulation.measure_workflows),
    Benchmark("training", "training throughput", learning.measure_throughput),
    Benchmark("scaling", "training on more workers", scaling.measure, long=True),
    Benchmark("inference", "decision latency", learning.measure_decisions),
    Benchmark("decisions", "decisions of the policy server", decisions.measure),
    Benchmark("brokers", "brokers between federated clients and their server", brokers.measure),
    Benchmark("aws_reconcile", "AWS provider at 1,000 instances", aws_reconcile.measure),
    Benchmark("loop", "pass of the live loop, 10,000 jobs and 1,000 instances", loop.measure),
    Benchmark("month", "a month of the live loop, 5,000 jobs", month.measure, long=True),
    Benchmark("memory", "memory of a training run", memory.measure),
    Benchmark("initial_mapping", "initial mapping of federated learning", initial_mapping.measure),
    Benchmark("paper_schedule", "the paper's whole training schedule", memory.measure_schedule, long=True),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for; print the table; write the file. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    names = [benchmark.name for benchmark in BENCHMARKS]
    parser.add_argument("--only", action="append", choices=names, help="run only this one (may be repeated)")
    parser.add_argument("--all", action="store_true", help="also those that take minutes")
    parser.add_argument(
        "--smallest",
        action="store_true",
        help="only see that they run: seconds each, and no figure means anything",
    )
    parser.add_argument("--out", type=Path, help="JSON file to write (default: benchmarks/latest.json)")
    options = parser.parse_args(arguments)
    chosen = [
        benchmark
        for benchmark in BENCHMARKS
        if (benchmark.name in options.only if options.only else options.all or not benchmark.long)
    ]
    # Numbers of several runs must not be mixed in one file, so a part is written only where it is told to.
    target = options.out or (None if options.only or options.smallest else LATEST)
    if target is not None:
        prepare_directory(target.parent)
    measured: dict[str, list[Measurement]] = {}
    for benchmark in chosen:
        print(f"{benchmark.title} ...", file=sys.stderr, flush=True)
        measured[benchmark.name] = list(benchmark.measure(smallest=options.smallest))
    print_table([row for rows in measured.values() for row in rows])
    if target is not None:
        write_json(target, report(measured))
        print(f"written: {target}")
    return 0


def report(measured: dict[str, list[Measurement]]) -> dict[str, object]:
    """The content of the JSON file."""
    return {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": describe(),
        **provenance(),
        "benchmarks": {
            name: [{**dataclasses.asdict(row), "ratio": row.ratio} for row in rows]
            for name, rows in measured.items()
        },
    }


def print_table(rows: Sequence[Measurement]) -> None:
    """Every measurement next to its bar; a ratio below 1 misses it."""
    table = Table(title="Benchmarks (a ratio of 1 or more meets the bar)", title_justify="left")
    table.add_column("what")
    for heading in ("measured", "bar", "ratio"):
        table.add_column(heading, justify="right")
    for row in rows:
        bar = "" if row.bar is None else f"{'≥' if row.higher_is_better else '≤'} {_readable(row.bar)}"
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        style = "bold red" if row.ratio is not None and row.ratio < 1 else ""
        table.add_row(row.name, f"{_readable(row.value)} {row.unit}", bar, ratio, style=style)
    Console().print(table)


def _readable(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ValueError as error:
        sys.exit(f"error: {error}")
