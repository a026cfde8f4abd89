"""The live commands: their options and what is said of them. What they do is imported when they run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deploy.cli import operating
from deploy.cli.errors import reporting_errors

if TYPE_CHECKING:
    from deploy.cli.client import Client

Server = Annotated[
    str | None, typer.Option(help="URL of the service; else SPOTWEAVE_SERVER, or http://127.0.0.1:8421")
]
TokenFile = Annotated[
    Path | None, typer.Option(help="file with an access token, permissions 0600; else SPOTWEAVE_TOKEN")
]
Json = Annotated[bool, typer.Option("--json", help="print JSON, for scripts")]
Limit = Annotated[int, typer.Option(min=1, max=1000, help="at most this many")]
LIVE = "Live scheduling"


def mount(app: typer.Typer) -> None:
    """Add the commands to `spotweave`."""
    operating.mount(app, LIVE)
    for command in (submit, jobs, clusters, offers, instances, costs, events, explain, cancel):
        app.command(rich_help_panel=LIVE)(reporting_errors(command))


def _client(server: str | None, token_file: Path | None) -> Client:
    from deploy.cli.client import Client

    return Client(server, token_file)


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
    from deploy.cli import queries

    with _client(server, token_file) as client:
        queries.submit(client, files, wait=wait, as_json=as_json)


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
    from deploy.cli import queries

    with _client(server, token_file) as client:
        queries.jobs(client, state or [], limit, as_json=as_json)


def clusters(server: Server = None, token_file: TokenFile = None, as_json: Json = False) -> None:
    """List what can be rented: prices, quotas, and what is not available and why."""
    from deploy.cli import queries

    with _client(server, token_file) as client:
        queries.clusters(client, as_json=as_json)


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
    from deploy.cli import offering

    if config is not None and server is not None:
        raise ValueError("--config asks the clouds themselves, --server a service: give one of them")
    if config is not None:
        rows = offering.offers_of_clouds(config, gpu, max_price)
    else:
        with _client(server, token_file) as client:
            rows = offering.offers_of_service(client)
    offering.offers(rows, gpu, max_price, as_json=as_json)


def instances(
    job: Annotated[str | None, typer.Option(help="only of this job")] = None,
    ended: Annotated[bool, typer.Option("--ended", help="also those that have ended")] = False,
    server: Server = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """List what is rented, and for which task."""
    from deploy.cli import queries

    with _client(server, token_file) as client:
        queries.instances(client, job, ended=ended, as_json=as_json)


def costs(
    by: Annotated[str, typer.Option(help="job, offer, market, zone or day")] = "job",
    server: Server = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Show what was paid, and what the same would have cost on demand."""
    from deploy.cli import queries

    with _client(server, token_file) as client:
        queries.costs(client, by, as_json=as_json)


def events(
    follow: Annotated[bool, typer.Option("--follow", "-f", help="go on with each that comes")] = False,
    job: Annotated[str | None, typer.Option(help="only of this job")] = None,
    limit: Limit = 50,
    server: Server = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Show what happened, the latest last; with --json a line for each."""
    from deploy.cli import queries

    with _client(server, token_file) as client:
        queries.events(client, job, limit, follow=follow, as_json=as_json)


def explain(
    job: Annotated[str, typer.Argument(help="its id, see spotweave jobs")],
    server: Server = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Tell why a job is where it is: every decision with its candidates, values and reasons."""
    from deploy.cli import queries

    with _client(server, token_file) as client:
        found = client.explain(job)
    if as_json:
        queries.print_json(found)
    else:
        queries.explain(found)


def cancel(
    job: Annotated[list[str], typer.Argument(help="their ids, see spotweave jobs")],
    server: Server = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """End jobs that wait or run."""
    from deploy.cli import queries

    with _client(server, token_file) as client:
        queries.cancel(client, job, as_json=as_json)
