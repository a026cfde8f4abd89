"""The `spotweave` command: what there is, commands that train and measure, and the live ones of `deploy`.

This is the only module that imports both `training` and `deploy`. What a command needs is imported when it
runs.
"""

from __future__ import annotations

import importlib
import sys
from importlib.metadata import version as installed_version

import typer

import deploy.cli.commands
from spotweave.tables import show
from training import commands as training_commands

app = typer.Typer(
    name="spotweave",
    help="Deep-RL schedulers for multi-cluster and spot-market worlds.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

# Everything after the command's name belongs to Hydra, --help included.
PASS_THROUGH = {"allow_extra_args": True, "ignore_unknown_options": True}


@app.command()
def envs() -> None:
    """List the environments."""
    from envs.environments import ENVIRONMENTS

    rows = [(f"+env={name}", entry.gymnasium or "", entry.title) for name, entry in ENVIRONMENTS.items()]
    show(("commands", "gymnasium.make", "what it is"), rows)


@app.command()
def policies() -> None:
    """List every rule and every agent with its source."""
    from agents.bags.schedulers import SCHEDULER_SOURCES
    from agents.federated.rules import ROUND_RULE_SOURCES
    from agents.registry import agents
    from agents.rules import RULES
    from agents.rules.registry import MARKET
    from agents.workflows.online.rules import WORKFLOW_RULE_SOURCES

    rows = [
        (rule.name, "market rule" if rule.worlds == MARKET else "rule", rule.title, rule.source)
        for rule in RULES.values()
    ]
    rows += [(name, "federated rule", *about) for name, about in ROUND_RULE_SOURCES.items()]
    rows += [(name, "bag scheduler", *about) for name, about in SCHEDULER_SOURCES.items()]
    rows += [(name, "workflow rule", *about) for name, about in WORKFLOW_RULE_SOURCES.items()]
    rows += [(name, "agent", agent.title, agent.source) for name, agent in agents().items()]
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


training_commands.mount(app)
deploy.cli.commands.mount(app)


def main() -> None:
    """Entry point of the installed command."""
    app()


if __name__ == "__main__":
    main()
