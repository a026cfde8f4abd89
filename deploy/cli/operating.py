"""Commands of whoever runs a deployment: their options. They work on its files, not over HTTP."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated

import typer


def _config() -> Path:
    path = Path("spotweave.yaml")
    if not path.is_file():
        raise ValueError(
            "there is no spotweave.yaml here: give the deployment's file, --config FILE or SPOTWEAVE_CONFIG"
        )
    return path


Config = Annotated[
    Path,
    typer.Option(
        "--config",
        envvar="SPOTWEAVE_CONFIG",
        default_factory=_config,
        show_default="spotweave.yaml",
        help="the deployment's YAML file",
    ),
]


TOKENS = typer.Typer(
    name="token", no_args_is_help=True, help="Access tokens of a deployment: create, list, revoke."
)
CLOUDS = typer.Typer(
    name="clouds", no_args_is_help=True, help="The accounts a deployment rents from: check, policy, sweep."
)


def mount(app: typer.Typer, panel: str) -> None:
    """Add the commands to `spotweave`."""
    for command in (serve, check, backup, restore, record, emulate):
        app.command(rich_help_panel=panel)(command)
    for group in (TOKENS, CLOUDS):
        app.add_typer(group, rich_help_panel=panel)


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
    config: Config, to: Annotated[Path, typer.Option(help="file to write; it must not exist")]
) -> None:
    """Copy a deployment's database (SQLite), also while it is served."""
    from deploy.cli import upkeep

    upkeep.backup(config, to)


def restore(
    config: Config, source: Annotated[Path, typer.Option("--from", help="file of spotweave backup")]
) -> None:
    """Put a backup in the place of a deployment's database, which must not be served meanwhile."""
    from deploy.cli import upkeep

    upkeep.restore(config, source)


def record(
    config: Config,
    out: Annotated[Path, typer.Option(help="folder to write; it must not exist")],
    since: Annotated[str | None, typer.Option(help="only from this time on, ISO 8601 (UTC)")] = None,
) -> None:
    """Write what a deployment saw of prices, refusals and interruptions as market traces to train on."""
    from deploy.cli import upkeep

    upkeep.record_market(config, out, since)


@TOKENS.command("create")
def create_token(
    config: Config,
    role: Annotated[str, typer.Option(help="viewer, submitter or admin")],
    name: Annotated[str, typer.Option(help="whom or what it is for")],
    days: Annotated[float | None, typer.Option(help="until it expires; never if left out")] = None,
) -> None:
    """Make an access token and print it, once: keep it where only its user can read it."""
    from deploy.cli import upkeep

    upkeep.create_token(config, role, name, days)


@TOKENS.command("list")
def list_tokens(
    config: Config, as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False
) -> None:
    """List all access tokens, without their secrets."""
    from deploy.cli import upkeep

    upkeep.list_tokens(config, as_json=as_json)


@TOKENS.command("revoke")
def revoke_token(
    config: Config, token_id: Annotated[str, typer.Argument(help="see spotweave token list")]
) -> None:
    """Make an access token invalid for ever."""
    from deploy.cli import upkeep

    upkeep.revoke_token(config, token_id)


@CLOUDS.command("check")
def check_clouds(config: Config) -> None:
    """See what is right and what is missing: credentials, rights, images, network, quotas. Rents nothing."""
    from deploy.cli import clouds

    clouds.check(config)


@CLOUDS.command("policy")
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


@CLOUDS.command("sweep")
def sweep_clouds(
    config: Config,
    yes: Annotated[bool, typer.Option("--yes", help="end them; without, they are only listed")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON, a line for each")] = False,
) -> None:
    """Find instances of a deployment that no job needs, while it is not served; end them with --yes."""
    from deploy.cli import clouds

    clouds.sweep(config, yes=yes, as_json=as_json)


def emulate(
    cloud: Annotated[str, typer.Argument(help="aws or gcp")],
    config: Annotated[Path, typer.Option("--config", help="the emulator's YAML file")],
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="on 127.0.0.1; 0 for a free one; else 5555, or 5556")
    ] = None,
) -> None:
    """Emulate a cloud on this machine until SIGINT or SIGTERM, for tests and rehearsals."""
    if importlib.util.find_spec("moto") is None:
        raise ValueError("the emulator needs moto: pip install 'spotweave[dev]'")
    from deploy.emulator.server import serve as serve_cloud

    serve_cloud(cloud, config, port if port is not None else 5556 if cloud == "gcp" else 5555)
