"""Commands of whoever runs a deployment: their options. They work on its files, not over HTTP."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated

import typer

from deploy.cli.errors import reporting_errors

Config = Annotated[Path, typer.Option("--config", help="the deployment's YAML file")]


def mount(app: typer.Typer, panel: str) -> None:
    """Add the commands to `spotweave`."""
    for command in (serve, check, backup, restore, record):
        app.command(rich_help_panel=panel)(reporting_errors(command))
    tokens = typer.Typer(no_args_is_help=True, help="Access tokens of a deployment: create, list, revoke.")
    tokens.command("create")(reporting_errors(create_token))
    tokens.command("list")(reporting_errors(list_tokens))
    tokens.command("revoke")(reporting_errors(revoke_token))
    app.add_typer(tokens, name="token", rich_help_panel=panel)
    clouds = typer.Typer(
        no_args_is_help=True, help="The accounts a deployment rents from: check, policy, sweep."
    )
    clouds.command("check")(reporting_errors(check_clouds))
    clouds.command("policy")(reporting_errors(print_policy))
    clouds.command("sweep")(reporting_errors(sweep_clouds))
    app.add_typer(clouds, name="clouds", rich_help_panel=panel)
    app.command("emulate-aws", rich_help_panel=panel)(reporting_errors(emulate_aws))
    app.command("emulate-gcp", rich_help_panel=panel)(reporting_errors(emulate_gcp))


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
    from deploy.cli import backups

    backups.backup(config, to)


def restore(
    config: Config,
    source: Annotated[Path, typer.Option("--from", help="file of spotweave backup")],
) -> None:
    """Put a backup in the place of a deployment's database, which must not be served meanwhile."""
    from deploy.cli import backups

    backups.restore(config, source)


def record(
    config: Config,
    out: Annotated[Path, typer.Option(help="folder to write; it must not exist")],
    since: Annotated[str | None, typer.Option(help="only from this time on, ISO 8601 (UTC)")] = None,
) -> None:
    """Write what a deployment saw of prices, refusals and interruptions as market traces to train on."""
    from deploy.cli import upkeep

    upkeep.record_market(config, out, since)


def create_token(
    config: Config,
    role: Annotated[str, typer.Option(help="viewer, submitter or admin")],
    name: Annotated[str, typer.Option(help="whom or what it is for")],
    days: Annotated[float | None, typer.Option(help="until it expires; never if left out")] = None,
) -> None:
    """Make an access token and print it, once: keep it where only its user can read it."""
    from deploy.cli import upkeep

    upkeep.create_token(config, role, name, days)


def list_tokens(
    config: Config, as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False
) -> None:
    """List all access tokens, without their secrets."""
    from deploy.cli import upkeep

    upkeep.list_tokens(config, as_json=as_json)


def revoke_token(
    config: Config, token_id: Annotated[str, typer.Argument(help="see spotweave token list")]
) -> None:
    """Make an access token invalid for ever."""
    from deploy.cli import upkeep

    upkeep.revoke_token(config, token_id)


def check_clouds(config: Config) -> None:
    """See what is right and what is missing: credentials, rights, images, network, quotas. Rents nothing."""
    from deploy.cli import clouds

    clouds.check(config)


def print_policy(
    config: Config,
    role: Annotated[str, typer.Option(help="scheduler, operator or node")] = "scheduler",
    account: Annotated[
        str | None, typer.Option(help="of AWS, 12 digits; else that of the credentials here")
    ] = None,
) -> None:
    """Print what AWS's IAM must allow a role, for this deployment's regions, types, images and tags alone."""
    from deploy.cli import clouds

    clouds.policy(config, role, account)


def sweep_clouds(
    config: Config,
    yes: Annotated[bool, typer.Option("--yes", help="end them; without, they are only listed")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON, a line for each")] = False,
) -> None:
    """Find instances of a deployment that no job needs, while it is not served; end them with --yes."""
    from deploy.cli import clouds

    clouds.sweep(config, yes=yes, as_json=as_json)


def emulate_aws(
    config: Annotated[Path, typer.Option("--config", help="the emulator's YAML file")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="on 127.0.0.1; 0 for a free one")] = 5555,
) -> None:
    """Emulate AWS on this machine until SIGINT or SIGTERM: for tests and rehearsals."""
    _emulate("aws", config, port)


def emulate_gcp(
    config: Annotated[Path, typer.Option("--config", help="the emulator's YAML file")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="on 127.0.0.1; 0 for a free one")] = 5556,
) -> None:
    """Emulate Google Cloud on this machine until SIGINT or SIGTERM: for tests and rehearsals."""
    _emulate("gcp", config, port)


def _emulate(cloud: str, config: Path, port: int) -> None:
    if importlib.util.find_spec("moto") is None:
        raise ValueError("the emulator needs moto: pip install 'spotweave[dev]'")
    from deploy.emulator import __main__ as emulator

    code = emulator.main([cloud, "--config", str(config), "--port", str(port)])
    if code:
        raise typer.Exit(code)
