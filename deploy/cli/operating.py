"""Commands of whoever runs a deployment: their options. They work on its files, not over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deploy.cli.errors import told

Config = Annotated[Path, typer.Option("--config", help="the deployment's YAML file")]


def mount(app: typer.Typer, panel: str) -> None:
    """Add the commands to `spotweave`."""
    for command in (serve, check, backup, restore):
        app.command(rich_help_panel=panel)(told(command))
    tokens = typer.Typer(no_args_is_help=True, help="Access tokens of a deployment: create, list, revoke.")
    tokens.command("create")(told(create_token))
    tokens.command("list")(told(list_tokens))
    tokens.command("revoke")(told(revoke_token))
    app.add_typer(tokens, name="token", rich_help_panel=panel)


def serve(
    config: Config,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="decide, write it down, do nothing")] = False,
    log_format: Annotated[str, typer.Option(help="of what goes to stderr: json or console")] = "json",
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error")] = "info",
) -> None:
    """Run a deployment: the scheduler and its HTTP service, until SIGINT or SIGTERM."""
    from deploy.cli import serve as serving

    serving.run(config, dry_run=dry_run, log_format=log_format, log_level=log_level)


def check(config: Config) -> None:
    """See whether a deployment can be served: configuration, policies, store, TLS, Java. Starts nothing."""
    from deploy.cli import checking

    checking.run(config)


def backup(
    config: Config,
    to: Annotated[Path, typer.Option(help="file to write; it must not exist")],
) -> None:
    """Copy a deployment's database (SQLite), also while it is served."""
    from deploy.cli import keeping

    keeping.backup(config, to)


def restore(
    config: Config,
    source: Annotated[Path, typer.Option("--from", help="file of spotweave backup")],
) -> None:
    """Put a backup in the place of a deployment's database, which must not be served meanwhile."""
    from deploy.cli import keeping

    keeping.restore(config, source)


def create_token(
    config: Config,
    role: Annotated[str, typer.Option(help="viewer, submitter or admin")],
    name: Annotated[str, typer.Option(help="whom or what it is for")],
    days: Annotated[float | None, typer.Option(help="until it expires; never if left out")] = None,
) -> None:
    """Make an access token and print it, once: keep it where only its user can read it."""
    from deploy.cli import tokens

    tokens.create(config, role, name, days)


def list_tokens(
    config: Config, as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False
) -> None:
    """List all access tokens, without their secrets."""
    from deploy.cli import tokens

    tokens.show_all(config, as_json=as_json)


def revoke_token(
    config: Config, token_id: Annotated[str, typer.Argument(help="see spotweave token list")]
) -> None:
    """Make an access token invalid for ever."""
    from deploy.cli import tokens

    tokens.revoke(config, token_id)
