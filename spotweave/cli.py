"""The `spotweave` command: what there is, commands that train and measure, and the live ones of `deploy`.

This is the only module that imports both `training` and `deploy`. What a command needs is imported when it
runs.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from functools import partial
from importlib.metadata import version as installed_version
from importlib.util import find_spec
from typing import Annotated, Any

import click
import typer
from typer.core import TyperGroup

import spotweave.deploy.cli.commands
from spotweave.mistakes import EXIT_USER, one_line_errors, say
from spotweave.tables import show
from spotweave.training import commands as training_commands

# The extra that installs a library, where it is not `deploy`.
_EXTRAS = {"boto3": "aws", "flwr": "flower", "google": "gcp", "moto": "dev", "pyspark": "spark"}


class Commands(TyperGroup):
    """The commands, each of which tells a user's mistake in one line, with exit code 2."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was asked for."""
        with one_line_errors():
            try:
                return super().invoke(ctx)
            except click.exceptions.NoArgsIsHelpError:
                raise
            except click.UsageError as error:
                path = error.ctx.command_path if error.ctx else "spotweave"
                say(f"error: {error.format_message()} (see {path} --help)")
                sys.exit(EXIT_USER)
            except ModuleNotFoundError as error:
                missing = (error.name or "").partition(".")[0]
                if not missing or find_spec(missing) is not None:
                    raise
                extra = _EXTRAS.get(missing, "deploy")
                raise ValueError(
                    f"this command needs {missing} and more: pip install 'spotweave[{extra}]'"
                ) from error


app = typer.Typer(
    name="spotweave",
    cls=Commands,
    no_args_is_help=True,
    suggest_commands=False,  # click does
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(installed_version("spotweave"))
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """Deep-RL schedulers for multi-cluster and spot-market worlds."""


@app.command()
def envs() -> None:
    """List the environments."""
    from spotweave.envs.environments import ENVIRONMENTS

    rows = [(f"env={name}", entry.gymnasium or "", entry.title) for name, entry in ENVIRONMENTS.items()]
    show(("commands", "gymnasium.make", "what it is"), rows)


@app.command()
def policies() -> None:
    """List every rule and every agent with its source."""
    from spotweave.agents.bags.schedulers import SCHEDULER_SOURCES
    from spotweave.agents.named import QUESTION_RULES
    from spotweave.agents.registry import agents
    from spotweave.agents.rules import RULES
    from spotweave.agents.rules.registry import MARKET

    rows = [
        (rule.name, "market rule" if rule.worlds == MARKET else "rule", rule.title, rule.source)
        for rule in RULES.values()
    ]
    rows += [
        (name, f"rule of env={rule.environment}", rule.title, rule.source)
        for name, rule in QUESTION_RULES.items()
    ]
    rows += [(name, "bag scheduler", *about) for name, about in SCHEDULER_SOURCES.items()]
    rows += [(name, "agent", agent.title, agent.source) for name, agent in agents().items()]
    show(("name", "kind", "title", "source"), rows)


def run_training(command: str, words: list[str]) -> None:
    """Run training/COMMAND.py in this process, as if it had been called with `words`.

    Raises:
        SystemExit: always, with the command's own exit code.
    """
    from spotweave.training.config import run_command

    module = importlib.import_module(f"spotweave.training.{command}")
    sys.argv = [f"training/{command}.py", *words]
    run_command(command, module.main)


def traces(words: list[str]) -> None:
    """Run `envs.traces.command`. Raises SystemExit with its exit code."""
    from spotweave.envs.traces.command import main as run
    from spotweave.training.progress import still_busy

    with still_busy("spotweave traces"):
        sys.exit(run(words))


def mount(name: str, about: str, run: Callable[[list[str]], None]) -> None:
    """Add a command that reads by itself all that follows its name, --help included."""

    def command(context: typer.Context) -> None:
        run(context.args)

    settings = {"allow_extra_args": True, "ignore_unknown_options": True}
    app.command(name, help=about, context_settings=settings, add_help_option=False)(command)


for name, about in {
    "train": "Train a policy: spotweave train env=multicloud [KEY=VALUE ...].",
    "evaluate": "Measure one policy: spotweave evaluate env=multicloud checkpoint=PATH [KEY=VALUE ...].",
    "compare": "Compare policies on the same episodes: spotweave compare env=multicloud policies=[NAME,...].",
    "repeat": "Train all that a study needs: spotweave repeat experiment=liu2022/trainings.",
    "tune": "Search settings of agents: spotweave tune experiment=comparators/multicluster.",
}.items():
    mount(name, about, partial(run_training, name))
for group in training_commands.GROUPS:
    app.add_typer(group)
mount(
    "traces",
    "Import recorded markets and jobs, and show what they hold: spotweave traces show.",
    traces,
)
spotweave.deploy.cli.commands.mount(app)


def main() -> None:
    """Entry point of the installed command."""
    app()


if __name__ == "__main__":
    main()
