"""The live commands: their options and what is said of them. What they do is imported when they run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from spotweave.deploy import cli

Server = Annotated[
    str | None, typer.Option(help="URL of the service; else SPOTWEAVE_SERVER, or http://127.0.0.1:8421")
]
TokenFile = Annotated[
    Path | None, typer.Option(help="file with an access token, permissions 0600; else SPOTWEAVE_TOKEN")
]
JobId = Annotated[str, typer.Argument(help="its id, or the beginning of it; see spotweave jobs")]
Json = Annotated[bool, typer.Option("--json", help="print JSON, for scripts")]
Limit = Annotated[int, typer.Option(min=1, max=1000, help="at most this many")]
LIVE = "Live scheduling"


def mount(app: typer.Typer) -> None:
    """Add the commands to `spotweave`."""
    own: tuple[Callable[..., None], ...] = (demo, serve, check, backup, restore, record, emulate)
    asking: tuple[Callable[..., None], ...] = (submit, jobs, status, logs, explain, cancel, retry, download)
    asking += (clusters, offers, instances, costs, events)
    for command in own:
        app.command(rich_help_panel=LIVE)(command)
    for group in (TOKENS, CLOUDS):
        app.add_typer(group, rich_help_panel=LIVE)
    for command in asking:
        app.command(rich_help_panel=LIVE)(command)


def submit(
    files: Annotated[list[Path], typer.Argument(help="job files (YAML)")],
    wait: Annotated[
        bool, typer.Option("--wait", help="until they have ended; exit code 1 if one failed")
    ] = False,
    server: Server = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Submit jobs with the files that they name: spotweave submit examples/wordcount.yaml."""
    with cli.client.connect(server, token_file) as client:
        cli.queries.submit(client, files, wait=wait, as_json=as_json)


def jobs(
    state: Annotated[
        list[str] | None,
        typer.Option(help="only these: pending, running, succeeded, failed, cancelled (may be repeated)"),
    ] = None,
    limit: Limit = 50,
    server: Server = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """List the latest jobs."""
    with cli.client.connect(server, token_file) as client:
        cli.queries.jobs(client, state or [], limit, as_json=as_json)


def clusters(server: Server = None, token_file: TokenFile = None, as_json: Json = False) -> None:
    """List what can be rented: prices, quotas, and what is not available and why."""
    with cli.client.connect(server, token_file) as client:
        cli.queries.clusters(client, as_json=as_json)


def offers(
    gpu: Annotated[str | None, typer.Option(help="only with this one, such as T4")] = None,
    max_price: Annotated[float | None, typer.Option(min=0, help="only up to this many USD per hour")] = None,
    config: Annotated[
        Path | None, typer.Option("--config", help="a deployment's YAML file: ask its clouds, not a service")
    ] = None,
    server: Server = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """List what could be rented now: prices, how often it was there, scores, what speaks against it."""
    if config is not None and server is not None:
        raise ValueError("--config asks the clouds themselves, --server a service: give one of them")
    if config is not None:
        rows = cli.clouds.offers_of_clouds(config, gpu, max_price)
    else:
        with cli.client.connect(server, token_file) as client:
            rows = client.get("/v1/offers")
    cli.clouds.offers(rows, gpu, max_price, as_json=as_json)


def instances(
    job: Annotated[str | None, typer.Option(help="only of this job")] = None,
    ended: Annotated[bool, typer.Option("--ended", help="also those that have ended")] = False,
    server: Server = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """List what is rented, and for which task."""
    with cli.client.connect(server, token_file) as client:
        cli.queries.instances(client, job, ended=ended, as_json=as_json)


def costs(
    by: Annotated[str, typer.Option(help="job, offer, market, zone or day")] = "job",
    server: Server = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Show what was paid, and what the same would have cost on demand."""
    with cli.client.connect(server, token_file) as client:
        cli.queries.costs(client, by, as_json=as_json)


def events(
    follow: Annotated[bool, typer.Option("--follow", "-f", help="go on with each that comes")] = False,
    job: Annotated[str | None, typer.Option(help="only of this job")] = None,
    limit: Limit = 50,
    server: Server = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Show what happened, the latest last; with --json a line for each."""
    with cli.client.connect(server, token_file) as client:
        cli.queries.events(client, job, limit, follow=follow, as_json=as_json)


def explain(job: JobId, server: Server = None, token_file: TokenFile = None, as_json: Json = False) -> None:
    """Tell why a job is where it is: every decision with its candidates, values and reasons."""
    with cli.client.connect(server, token_file) as client:
        found = client.explain(job)
    if as_json:
        cli.queries.print_json(found)
    else:
        cli.queries.explain(found)


def status(job: JobId, server: Server = None, token_file: TokenFile = None, as_json: Json = False) -> None:
    """Show how a job is: state, where, attempts, deadline, cost, the latest decision."""
    with cli.client.connect(server, token_file) as client:
        if as_json:
            cli.queries.print_json(client.job(job))
        else:
            cli.queries.status(client, job)


def logs(
    job: JobId,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="print what comes, until the job ends")
    ] = False,
    task: Annotated[
        str | None, typer.Option(help="of this task, client or step; of a training else its server")
    ] = None,
    attempt: Annotated[int | None, typer.Option(min=1, help="of this attempt; else the latest")] = None,
    tail: Annotated[
        int | None, typer.Option(min=0, max=10_000, help="only this many of the last lines")
    ] = None,
    server: Server = None,
    token_file: TokenFile = None,
) -> None:
    """Print what a job prints."""
    with cli.client.connect(server, token_file) as client:
        cli.queries.logs(client, job, task, attempt, tail, follow=follow)


def retry(job: JobId, server: Server = None, token_file: TokenFile = None, as_json: Json = False) -> None:
    """Submit a job that has ended once more; prints the new job's id."""
    with cli.client.connect(server, token_file) as client:
        made = client.retry(job)
    if as_json:
        cli.queries.print_json(made)
    else:
        print(made["job_id"])


def download(
    job: JobId,
    folder: Annotated[
        Path | None, typer.Argument(help="to make, or empty; else one with the job's id")
    ] = None,
    server: Server = None,
    token_file: TokenFile = None,
) -> None:
    """Fetch the files that a job has left in its folder, its logs too."""
    with cli.client.connect(server, token_file) as client:
        cli.queries.download(client, job, folder)


def cancel(
    job: Annotated[list[str], typer.Argument(help="their ids, or beginnings of them")],
    server: Server = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """End jobs that wait or run."""
    with cli.client.connect(server, token_file) as client:
        cli.queries.cancel(client, job, as_json=as_json)


# Commands of whoever runs a deployment. They work on its files, not over HTTP.


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


def demo(
    jobs: Annotated[
        list[Path] | None, typer.Argument(show_default="one of each kind, two of Spark", help="job files")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(show_default="demo.yaml", help="the deployment's file; its state is deleted first"),
    ] = None,
    within: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            show_default="600, longer on a slow machine",
            help="then it gives up; tries any machine",
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="two Spark jobs, in about two minutes")] = False,
) -> None:
    """Watch Spark and Flower jobs on instances of this machine, some of them interrupted."""
    from spotweave.deploy import demo as demonstration

    chosen = jobs or (demonstration.QUICK_JOBS if quick else demonstration.JOBS)
    raise typer.Exit(demonstration.main(config or demonstration.CONFIG, within, chosen, faster=quick))


def serve(
    config: Config,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="decide, write it down, do nothing")] = False,
    log_format: Annotated[str, typer.Option(help="of what goes to stderr: json or console")] = "json",
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error")] = "info",
) -> None:
    """Run a deployment: the scheduler and its HTTP service, until SIGINT or SIGTERM."""
    cli.serve.serve(config, dry_run=dry_run, log_format=log_format, log_level=log_level)


def check(config: Config) -> None:
    """See whether a deployment can be served: configuration, policies, store, TLS, Java. Starts nothing."""
    cli.serve.check(config)


def backup(
    config: Config, to: Annotated[Path, typer.Option(help="file to write; it must not exist")]
) -> None:
    """Copy a deployment's database (SQLite), also while it is served."""
    cli.upkeep.backup(config, to)


def restore(
    config: Config, source: Annotated[Path, typer.Option("--from", help="file of spotweave backup")]
) -> None:
    """Put a backup in the place of a deployment's database, which must not be served meanwhile."""
    cli.upkeep.restore(config, source)


def record(
    config: Config,
    out: Annotated[Path, typer.Option(help="folder to write; it must not exist")],
    since: Annotated[str | None, typer.Option(help="only from this time on, ISO 8601 (UTC)")] = None,
) -> None:
    """Write what a deployment saw of prices, refusals and interruptions as market traces to train on."""
    cli.upkeep.record_market(config, out, since)


@TOKENS.command("create")
def create_token(
    config: Config,
    role: Annotated[str, typer.Option(help="viewer, submitter or admin")],
    name: Annotated[str, typer.Option(help="whom or what it is for")],
    days: Annotated[float | None, typer.Option(help="until it expires; never if left out")] = None,
) -> None:
    """Make an access token and print it, once: keep it where only its user can read it."""
    cli.upkeep.create_token(config, role, name, days)


@TOKENS.command("list")
def list_tokens(
    config: Config, as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False
) -> None:
    """List all access tokens, without their secrets."""
    cli.upkeep.list_tokens(config, as_json=as_json)


@TOKENS.command("revoke")
def revoke_token(
    config: Config, token_id: Annotated[str, typer.Argument(help="see spotweave token list")]
) -> None:
    """Make an access token invalid for ever."""
    cli.upkeep.revoke_token(config, token_id)


@CLOUDS.command("check")
def check_clouds(config: Config) -> None:
    """See what is right and what is missing: credentials, rights, images, network, quotas. Rents nothing."""
    cli.clouds.check(config)


@CLOUDS.command("policy")
def print_policy(
    config: Config,
    role: Annotated[str, typer.Option(help="scheduler, operator or node")] = "scheduler",
    account: Annotated[
        str | None, typer.Option(help="of AWS, 12 digits; else that of the credentials here")
    ] = None,
) -> None:
    """Print what AWS's IAM must allow a role, for this deployment's regions, types, images and tags alone."""
    cli.clouds.policy(config, role, account)


@CLOUDS.command("sweep")
def sweep_clouds(
    config: Config,
    yes: Annotated[bool, typer.Option("--yes", help="end them; without, they are only listed")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON, a line for each")] = False,
) -> None:
    """Find instances of a deployment that no job needs, while it is not served; end them with --yes."""
    cli.clouds.sweep(config, yes=yes, as_json=as_json)


def emulate(
    cloud: Annotated[str, typer.Argument(help="aws or gcp")],
    config: Annotated[Path, typer.Option("--config", help="the emulator's YAML file")],
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="on 127.0.0.1; 0 for a free one; else 5555, or 5556")
    ] = None,
) -> None:
    """Emulate a cloud on this machine until SIGINT or SIGTERM, for tests and rehearsals."""
    from spotweave.deploy.emulator.server import serve as serve_cloud

    serve_cloud(cloud, config, port if port is not None else 5556 if cloud == "gcp" else 5555)
