"""The commands of `spotweave` that plan, simulate and measure; what they do is imported when they run."""

from __future__ import annotations

from json import dumps
from math import inf
from pathlib import Path
from typing import Annotated, Any

import click
import typer
from typer.core import TyperGroup

from spotweave.tables import show


class Busy(TyperGroup):
    """Commands that print a line now and then while they work."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was asked for."""
        from spotweave.training.progress import still_busy

        with still_busy(ctx.command_path):
            return super().invoke(ctx)


PLAN = typer.Typer(
    name="plan",
    cls=Busy,
    no_args_is_help=True,
    help="Plan before anything is rented: bag, fl, workflow, split.",
)
SIMULATE = typer.Typer(
    name="simulate", cls=Busy, no_args_is_help=True, help="Play plans and scenarios: bag, fl, async."
)
MEASURE = typer.Typer(name="measure", no_args_is_help=True, help="Measure this machine: fl.")
GROUPS = (PLAN, SIMULATE, MEASURE)


@SIMULATE.command("fl")
def simulate_fl(
    scenario: Annotated[str, typer.Argument(help="a JSON file, or the name of a bundled scenario")],
    policy: Annotated[
        list[str] | None, typer.Option(help="only this policy (may be repeated); all if left out")
    ] = None,
    seed: Annotated[int, typer.Option(help="of everything random")] = 0,
    out: Annotated[Path | None, typer.Option(help="directory for tables and pictures")] = None,
) -> None:
    """Simulate a federated application: spotweave simulate fl SCENARIO.json [--policy NAME] [--out DIR]."""
    from spotweave.training.federated.simulate_fl import simulate

    report = simulate(scenario, tuple(policy or ()), seed, out)
    print(report.title)
    show(report.headings, report.rows)
    for note in report.notes:
        print(note)


@PLAN.command("fl")
def plan_fl(
    application: Annotated[Path, typer.Argument(help="app.json: clients, data, messages, rounds")],
    clouds: Annotated[Path, typer.Argument(help="clouds.json: providers, regions, VM types, slowdowns")],
    alpha: Annotated[float, typer.Option(help="weight of cost against time, 0 to 1")] = 0.5,
    deadline: Annotated[float | None, typer.Option(help="seconds for all rounds")] = None,
    budget: Annotated[float | None, typer.Option(help="USD for all rounds")] = None,
    runners_up: Annotated[int, typer.Option(help="how many of the next best placements to show")] = 3,
    server_market: Annotated[str, typer.Option(help="on_demand or spot")] = "on_demand",
    client_market: Annotated[str, typer.Option(help="on_demand or spot")] = "on_demand",
    time_limit: Annotated[float | None, typer.Option(help="seconds to prove a placement optimal")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Place the tasks of a federated application optimally: spotweave plan fl app.json clouds.json."""
    from spotweave.agents.federated.mapping.initial import map_initially
    from spotweave.envs.documents.federations import read_application, read_clouds
    from spotweave.envs.simulation.federations.clouds import market_named
    from spotweave.envs.simulation.federations.model import Federation
    from spotweave.training.federated.plan_fl import plan_document, plan_text

    markets = market_named(server_market), market_named(client_market)
    federation = Federation(read_application(application), read_clouds(clouds), *markets)
    limits = inf if deadline is None else deadline, inf if budget is None else budget
    found = map_initially(federation, alpha, *limits, runners_up, time_limit)
    if as_json:
        print(dumps(plan_document(federation, alpha, found), indent=2, allow_nan=False))
    else:
        print(plan_text(federation, alpha, found))


@MEASURE.command("fl")
def measure_fl(
    into: Annotated[Path | None, typer.Option(help="clouds.json to merge into; else JSON is printed")] = None,
    vm_type: Annotated[str | None, typer.Option(help="VM type in it that this machine is")] = None,
    region: Annotated[str | None, typer.Option(help="region that this machine is in")] = None,
    data_region: Annotated[str | None, typer.Option(help="region of the data, if another")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="where they are read, e.g. a mounted bucket")] = None,
    peer: Annotated[str | None, typer.Option(help="HOST:PORT of a listener; default: a local one")] = None,
    peer_region: Annotated[str | None, typer.Option(help="region the listener is in, if another")] = None,
    stop_peer: Annotated[bool, typer.Option("--stop-peer", help="end the listener afterwards")] = False,
    application: Annotated[Path | None, typer.Option("--app", help="app.json with message sizes")] = None,
    only: Annotated[str | None, typer.Option(help="compute or communication; default: both")] = None,
    baseline: Annotated[bool, typer.Option("--baseline", help="this is the baseline")] = False,
    baseline_s: Annotated[float | None, typer.Option(help="seconds of a round on the baseline")] = None,
    baseline_communication_s: Annotated[float | None, typer.Option(help="the same for messages")] = None,
    samples: Annotated[int, typer.Option(help="images that the dummy trains on")] = 1024,
    batch_size: Annotated[int, typer.Option(help="images per step")] = 64,
    width: Annotated[int, typer.Option(help="channels of its first layer; more for GPUs")] = 32,
    seed: Annotated[int, typer.Option(help="of its data and weights")] = 0,
    rounds: Annotated[int, typer.Option(help="rounds in each process, the first kept apart")] = 4,
    repetitions: Annotated[int, typer.Option(help="processes, and rounds of messages")] = 3,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda")] = "auto",
    listen: Annotated[str | None, typer.Option(help="HOST:PORT: answer the measurements of others")] = None,
    idle: Annotated[float, typer.Option(help="with --listen: end after this many seconds without one")] = 600,
) -> None:
    """Measure the slowdowns of this machine and its links: spotweave measure fl --into clouds.json ..."""
    from spotweave.training.federated.measuring.link import listen_until_done

    if listen is not None:
        if into or peer or baseline or application:
            raise ValueError("--listen answers the measurements of others: leave out what is measured here")
        listen_until_done(listen, idle)
        return
    # Only measuring needs torch, whose import takes seconds.
    from spotweave.training.federated import measure_fl as measuring
    from spotweave.training.federated.measuring.dummy import Workload
    from spotweave.training.progress import still_busy

    options = measuring.Options(
        into=into,
        vm_type=vm_type,
        region=region,
        data_region=data_region,
        data_directory=data_dir,
        peer=peer,
        peer_region=peer_region,
        stop_peer=stop_peer,
        application=application,
        only=only,
        baseline=baseline,
        baseline_s=baseline_s,
        baseline_communication_s=baseline_communication_s,
        workload=Workload(samples, batch_size, width, seed),
        rounds=rounds,
        repetitions=repetitions,
        device=device,
    )
    with still_busy("spotweave measure fl"):
        document, lines, changes = measuring.measure_fl(options)
    if into is None:
        print(dumps(document, indent=2, allow_nan=False))
        return
    for line in lines:
        print(line)
    print(f"merged into {into}")
    for change in changes:
        print(f"  {change.text}")


@SIMULATE.command("async")
def simulate_async(
    scenario: Annotated[Path, typer.Argument(help="a YAML file, e.g. of examples/asynchronous")],
    methods: Annotated[str, typer.Option(help="some of its methods: syn,fed_suda_1; all if left out")] = "",
    seeds: Annotated[int, typer.Option(help="trainings of each method, with seeds 0, 1, ...")] = 5,
    data: Annotated[
        Path | None, typer.Option(help="folder with MNIST or CIFAR-10; else 2,000 digits of the package")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="directory for tables and the picture")] = None,
) -> None:
    """Train asynchronously in virtual time: spotweave simulate async scenario_b.yaml --seeds 5 --out DIR."""
    from spotweave.training.federated.asynchronous.outcomes import HEADINGS, simulate

    names = [name.strip() for name in methods.split(",") if name.strip()]
    title, rows = simulate(scenario, names, seeds, data, out)
    print(title)
    show(HEADINGS, rows)
    if out is not None:
        print(f"written: {out}")


@PLAN.command("bag")
def plan_bag(
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
    """Plan a bag of tasks on spot VMs: spotweave plan bag job.json env.json --deadline 2100 -o map.json."""
    from spotweave.training import bags

    rows, summary = bags.plan(job, environment, planner, deadline, seed, out, picture)
    show(bags.PLAN_HEADINGS, rows)
    print(summary)
    print(f"written: {out}" + (f" and {picture}" if picture else ""))


@SIMULATE.command("bag")
def simulate_bag(
    map_file: Annotated[
        Path, typer.Argument(metavar="MAP", help="map.json, as `spotweave plan bag` writes it")
    ],
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
    """Execute a map on spot VMs that hibernate: spotweave simulate bag map.json --scenario sc_4."""
    from spotweave.training import bags

    rows = bags.simulate(map_file, job, env, scenario, scheduler, seeds, picture)
    show(bags.OUTCOME_HEADINGS, rows)
    print(f"{scenario}, {seeds} executions: means, and the range over the seeds in brackets")
    if picture is not None:
        print(f"written: {picture}")


@PLAN.command("workflow")
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
    """Plan a workflow over several clusters: spotweave plan workflow gis.yaml --planner annealing."""
    from spotweave.training import workflows

    rows, summary = workflows.plan(file, planner, clusters, seed, out, picture)
    show(workflows.HEADINGS, rows)
    print(summary)
    print(f"written: {out}" + (f" and {picture}" if picture else ""))


@PLAN.command("split")
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
    """Divide steps among clusters, or combine them: spotweave plan split wordcount.yaml --clusters 3."""
    from spotweave.training import workflows

    show(workflows.SPLIT_HEADINGS, workflows.split(file, clusters, block_mb, most_blocks, out))
    print(f"written: {out}")
