"""The live commands: their options and what is said of them. What they do is imported when they run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deploy.cli.errors import told

Config = Annotated[Path, typer.Option("--config", help="the deployment's YAML file")]


def mount(app: typer.Typer) -> None:
    """Add the commands to `spotweave`."""
    app.command()(serve)


@told
def serve(
    config: Config,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="decide, write it down, do nothing")] = False,
    log_format: Annotated[str, typer.Option(help="json or console")] = "json",
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error")] = "info",
) -> None:
    """Serve a deployment: the scheduler and its HTTP service, until SIGINT or SIGTERM."""
    from deploy.cli import serve as serving

    serving.run(config, dry_run=dry_run, log_format=log_format, log_level=log_level)
