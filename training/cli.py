"""The `spotweave` command: what there is, commands that train and measure, and the live ones of `deploy`."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

app = typer.Typer(
    name="spotweave",
    help="Deep-RL schedulers for multi-cluster and spot-market worlds.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

# Everything after the command's name belongs to Hydra, --help included.
PASS_THROUGH = {"allow_extra_args": True, "ignore_unknown_options": True}

AGENTS = {
    "rl_lsfc": ("LSTM over occupations, shared layer, one head per value component", "Liu 2022, chapter 5"),
    "rl_fc": ("two hidden layers over the flat state, one scalarised value", "Liu 2022, chapter 4"),
    "spotweave": ("one scorer shared by all pairs of job and cluster", "Spotweave, docs/training.md"),
    "sb3_dqn": ("DQN", "Stable-Baselines3 (extra sb3)"),
    "maskable_ppo": ("PPO with action masks", "sb3-contrib (extra sb3)"),
    "rllib_dqn": ("DQN", "RLlib (extra rllib)"),
}
"""Title and source of each agent in configs/agent."""


def first_line(documented: object) -> str:
    """The first line of an object's docstring."""
    return (inspect.getdoc(documented) or "").partition("\n")[0]


def show(headings: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """Print a table; where there is no terminal, as wide as it must be, so that it can be searched."""
    console = Console()
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for heading in headings:
        table.add_column(heading, no_wrap=not console.is_terminal)
    for row in rows:
        table.add_row(*row)
    if console.is_terminal:
        console.print(table)
    else:
        Console(width=400).print(table)


@app.command()
def envs() -> None:
    """List the registered environments."""
    import gymnasium
    from gymnasium.envs.registration import load_env_creator

    from envs.registration import register
    from training.worlds import WORLDS

    register()
    rows = []
    for spec in gymnasium.registry.values():
        if spec.namespace != "spotweave" or spec.entry_point is None:
            continue
        creator = (
            load_env_creator(spec.entry_point) if isinstance(spec.entry_point, str) else spec.entry_point
        )
        option = f"+env={spec.name.lower()}" if spec.name.lower() in WORLDS else ""
        rows.append((spec.id, option, first_line(creator)))
    show(("environment", "commands", "what it is"), rows)


@app.command()
def policies() -> None:
    """List every rule and every agent with its source."""
    from agents.federated.rules import ROUND_RULE_SOURCES
    from agents.rules import RULES
    from agents.rules.registry import MARKET

    rows = [
        (rule.name, "market rule" if rule.worlds == MARKET else "rule", rule.title, rule.source)
        for rule in RULES.values()
    ]
    rows += [(name, "federated rule", *about) for name, about in ROUND_RULE_SOURCES.items()]
    rows += [(name, "agent", title, source) for name, (title, source) in AGENTS.items()]
    show(("name", "kind", "title", "source"), rows)


@app.command()
def version() -> None:
    """Print the version."""
    print(installed_version("spotweave"))


def pass_on(command: str, overrides: list[str]) -> None:
    """Run training/COMMAND.py in this process, as if it had been called with `overrides`.

    Raises:
        SystemExit: always, with the command's own exit code.
    """
    from training.config import run_command

    module = importlib.import_module(f"training.{command}")
    sys.argv = [f"training/{command}.py", *overrides]
    run_command(command, module.main)


@app.command(context_settings=PASS_THROUGH, add_help_option=False)
def train(context: typer.Context) -> None:
    """Train a policy: spotweave train +env=multicloud [KEY=VALUE ...]."""
    pass_on("train", context.args)


@app.command(context_settings=PASS_THROUGH, add_help_option=False)
def evaluate(context: typer.Context) -> None:
    """Measure one policy: spotweave evaluate +env=multicloud checkpoint=PATH [KEY=VALUE ...]."""
    pass_on("evaluate", context.args)


@app.command(context_settings=PASS_THROUGH, add_help_option=False)
def compare(context: typer.Context) -> None:
    """Compare policies on the same episodes: spotweave compare +env=multicloud policies=[NAME,...]."""
    pass_on("compare", context.args)


@app.command(name="simulate-fl")
def simulate_fl(
    scenario: Annotated[str, typer.Argument(help="a JSON file, or the name of a bundled scenario")],
    policy: Annotated[
        list[str] | None, typer.Option(help="only this policy (may be repeated); all if left out")
    ] = None,
    seed: Annotated[int, typer.Option(help="of everything random")] = 0,
    out: Annotated[Path | None, typer.Option(help="directory for tables and pictures")] = None,
) -> None:
    """Simulate a federated application: spotweave simulate-fl SCENARIO.json [--policy NAME] [--out DIR]."""
    from training.simulate_fl import simulate

    try:
        report = simulate(scenario, tuple(policy or ()), seed, out)
    except ValueError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        raise typer.Exit(2) from error
    print(report.title)
    show(report.headings, report.rows)
    for note in report.notes:
        print(note)


@app.command(name="plan-fl")
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
    beside: Annotated[
        list[str] | None,
        typer.Option(
            "--with", help="another app.json on the same quotas, e.g. 'b.json deadline=3600 budget=5'"
        ),
    ] = None,
    joint: Annotated[bool, typer.Option(help="with --with: the joint optimum as well")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Place the tasks of a federated application optimally: spotweave plan-fl app.json clouds.json."""
    from envs.simulation.federations.clouds import market_named
    from training import plan_fl as planning
    from training import plan_fleet as planning_fleets

    try:
        if beside:
            fleet = planning_fleets.plan_fleet(
                application,
                clouds,
                beside,
                alpha=alpha,
                deadline_s=deadline,
                budget_usd=budget,
                joint=joint,
                server_market=market_named(server_market),
                client_market=market_named(client_market),
                time_limit_s=time_limit,
            )
            document = planning_fleets.fleet_document(fleet)
            print(planning.dumps(document) if as_json else planning_fleets.fleet_text(fleet))
            return
        if joint:
            raise ValueError("--joint is for several applications: name the others by --with")
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
    except ValueError as error:
        if os.environ.get("SPOTWEAVE_TRACEBACK"):
            raise
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        raise typer.Exit(2) from error
    if as_json:
        print(planning.dumps(planning.plan_document(federation, alpha, found)))
    else:
        print(planning.plan_text(federation, alpha, found))


@app.command(name="measure-fl")
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
    idle: Annotated[float, typer.Option(help="with --listen: end after so many seconds without one")] = 600,
) -> None:
    """Measure the slowdowns of this machine and its links: spotweave measure-fl --into clouds.json ..."""
    from training.measuring_fl.listener import listen_until_done

    try:
        if listen is not None:
            if into or peer or baseline or application:
                raise ValueError(
                    "--listen answers the measurements of others: leave out what is measured here"
                )
            listen_until_done(listen, idle)
            return
        # Only measuring needs torch, whose import takes seconds.
        from training import measure_fl as measuring
        from training.measuring_fl.dummy import Workload

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
    except ValueError as error:
        if os.environ.get("SPOTWEAVE_TRACEBACK"):
            raise
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        raise typer.Exit(2) from error
    if into is None:
        print(measuring.dumps(report.document))
        return
    for line in report.lines:
        print(line)
    print(f"merged into {into}")
    for change in report.changes:
        print(f"  {change.text}")


# By a string: nothing imports the live side, and it loads nothing before one of its commands runs.
importlib.import_module("deploy.cli.commands").mount(app)


def main() -> None:
    """Entry point of the installed command."""
    app()


if __name__ == "__main__":
    main()
