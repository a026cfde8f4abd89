"""The federated commands of `spotweave`: their options. What they do is imported when they run."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, ParamSpec

import typer

from spotweave.tables import show

Options = ParamSpec("Options")


def mount(app: typer.Typer) -> None:
    """Add the commands to `spotweave`."""
    for command in (simulate_fl, plan_fl, measure_fl):
        app.command(command.__name__.replace("_", "-"))(one_line_errors(command))


def one_line_errors(command: Callable[Options, None]) -> Callable[Options, None]:
    """The command, with a user's mistake as one line on standard error and exit code 2."""

    @functools.wraps(command)
    def run(*args: Options.args, **kwargs: Options.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except ValueError as error:
            if os.environ.get("SPOTWEAVE_TRACEBACK"):
                raise
            print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
            raise typer.Exit(2) from error

    return run


def simulate_fl(
    scenario: Annotated[str, typer.Argument(help="a JSON file, or the name of a bundled scenario")],
    policy: Annotated[
        list[str] | None, typer.Option(help="only this policy (may be repeated); all if left out")
    ] = None,
    seed: Annotated[int, typer.Option(help="of everything random")] = 0,
    out: Annotated[Path | None, typer.Option(help="directory for tables and pictures")] = None,
) -> None:
    """Simulate a federated application: spotweave simulate-fl SCENARIO.json [--policy NAME] [--out DIR]."""
    from training.federated.simulate_fl import simulate

    report = simulate(scenario, tuple(policy or ()), seed, out)
    print(report.title)
    show(report.headings, report.rows)
    for note in report.notes:
        print(note)


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
    """Place the tasks of a federated application optimally: spotweave plan-fl app.json clouds.json."""
    from envs.simulation.federations.clouds import market_named
    from training.federated import plan_fl as planning

    federation, found = planning.plan_fl(
        application,
        clouds,
        alpha=alpha,
        deadline_s=deadline,
        budget_usd=budget,
        runners_up=runners_up,
        server_market=market_named(server_market),
        client_market=market_named(client_market),
        time_limit_s=time_limit,
    )
    if as_json:
        print(planning.dumps(planning.plan_document(federation, alpha, found)))
    else:
        print(planning.plan_text(federation, alpha, found))


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
    """Measure the slowdowns of this machine and its links: spotweave measure-fl --into clouds.json ..."""
    from training.federated.measuring.listener import listen_until_done

    if listen is not None:
        if into or peer or baseline or application:
            raise ValueError("--listen answers the measurements of others: leave out what is measured here")
        listen_until_done(listen, idle)
        return
    # Only measuring needs torch, whose import takes seconds.
    from training.federated import measure_fl as measuring
    from training.federated.measuring.dummy import Workload

    report = measuring.measure_fl(
        measuring.Options(
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
    )
    if into is None:
        print(measuring.dumps(report.document))
        return
    for line in report.lines:
        print(line)
    print(f"merged into {into}")
    for change in report.changes:
        print(f"  {change.text}")
