"""Output of the commands that query a service."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from spotweave.deploy.cli.client import Client, Job, ServiceError, UnreachableError
from spotweave.deploy.cli.explaining import deadline, particulars, state
from spotweave.deploy.cli.tables import Columns, available, clock, console, gpus, line, share, show, span, usd
from spotweave.mistakes import EXIT_FAILED, EXIT_USER, say

_EVENT_WIDTH = 20


def print_json(value: object) -> None:
    """One document for scripts, in one line."""
    print(json.dumps(value), flush=True)


def print_list(found: Sequence[object], columns: Columns, empty: str, *, as_json: bool) -> None:
    """For scripts one document, for people a table. See `show`."""
    if as_json:
        print_json(found)
    else:
        show(found, columns, empty)


def submit(client: Client, files: Sequence[Path], *, wait: bool, as_json: bool) -> None:
    """Send jobs, and wait for their ends if that is asked for.

    Raises ValueError for the first that cannot be sent: those before it were; typer.Exit with `EXIT_FAILED`
    if one that was waited for did not succeed.
    """
    sent = []
    for file in files:
        try:
            job = client.submit(file)
        except UnreachableError:
            raise
        except ServiceError as error:
            raise ServiceError(f"{file}: {error}") from error
        sent.append(job["job_id"])
        if not wait and as_json:
            print_json(job)
        elif not as_json:
            print(job["job_id"], flush=True)
    if not wait:
        return
    if as_json:
        ended = client.wait_all(sent)
        for job in ended:
            print_json(job)
    else:
        ended = wait_for(client, sent)
        show(ended, _ENDED, "")
    if any(job["state"] != "succeeded" for job in ended):
        raise typer.Exit(EXIT_FAILED)


def wait_for(client: Client, job_ids: Sequence[str]) -> list[Job]:
    """Jobs at their ends, and a line to a person whenever one of them changes. See `Client.wait_all`."""
    told: dict[str, str] = {}

    def see(job: Job) -> None:
        line = _progress(job)
        if told.get(job["job_id"]) != line:
            say(f"{clock(time.time())} {job['job_id']} {line}")
        told[job["job_id"]] = line

    return client.wait_all(job_ids, see)


def _progress(job: Mapping[str, Any]) -> str:
    if job["ended_s"] is not None:
        return state(job)
    phases = [task["phase"] or _without_place(task) for task in job["tasks"]]
    counted = ", ".join(
        phase if len(phases) == 1 else f"{phases.count(phase)} {phase}" for phase in dict.fromkeys(phases)
    )
    return f"{job['state']}: {counted}" if phases else str(job["state"])


def _without_place(task: Mapping[str, Any]) -> str:
    # A step whose files are not written yet asks for no place.
    return "waiting for other steps" if task["waiting_since_s"] is None else "waiting for a place"


_ENDED: Columns = {
    "JOB": lambda job: job["job_id"],
    "STATE": lambda job: job["state"],
    "TOOK>": lambda job: span(job["ended_s"] - job["submitted_s"]),
    "DEADLINE": deadline,
    "USD>": lambda job: usd(job["cost"]["usd"]),
    "ON DEMAND>": lambda job: usd(job["cost"]["on_demand_usd"]),
    "REASON*": lambda job: job["reason"],
}


def jobs(client: Client, states: Sequence[str], limit: int, *, as_json: bool) -> None:
    """The latest jobs."""
    columns: Columns = {
        "JOB": lambda job: job["job_id"],
        "KIND": lambda job: job["kind"],
        "STATE": lambda job: job["state"],
        "DONE>": lambda job: f"{job['tasks_done']}/{job['tasks_all']}",
        "SUBMITTED": lambda job: clock(job["submitted_s"]),
        "TIME>": lambda job: span((job["ended_s"] or time.time()) - job["submitted_s"]),
        "DEADLINE": deadline,
        "BY*": lambda job: job["submitter"],
        "REASON*": lambda job: job["reason"],
    }
    empty = f"no job is {' or '.join(states)}" if states else "no jobs yet: spotweave submit FILE"
    print_list(client.jobs(states, limit=limit), columns, empty, as_json=as_json)


def clusters(client: Client, *, as_json: bool) -> None:
    """The offers."""
    columns: Columns = {
        "OFFER": lambda one: one["offer_id"],
        "USD/H>": lambda one: usd(one["price_usd_hour"]),
        "ON DEMAND>": lambda one: usd(one["on_demand_usd_hour"]),
        "USED>": lambda one: f"{one['used']}/{one['quota']}",
        "CPUS>": lambda one: str(one["vcpus"]),
        "GIB>": lambda one: f"{one['memory_gib']:g}",
        "GPU": gpus,
        "AVAILABLE*": available,
    }
    found = client.get("/v1/offers")
    if not as_json:
        found = sorted(found, key=lambda one: one["offer_id"])
    print_list(found, columns, "no provider has answered yet: see the service's log", as_json=as_json)


def instances(client: Client, job_id: str | None, *, ended: bool, as_json: bool) -> None:
    """Print the rented instances."""
    columns: Columns = {
        "INSTANCE": lambda one: one["instance_id"],
        "OFFER*": lambda one: one["offer_id"],
        "FOR*": lambda one: f"{one['job_id']} {one['task']}",
        "STATE": lambda one: one["state"],
        "UP>": lambda one: span((one["ended_s"] or time.time()) - (one["launched_s"] or one["requested_s"])),
        "USD/H>": lambda one: usd(one["price_usd_hour"]),
        "NOTE*": _fate,
    }
    whole = None if job_id is None else client.find(job_id)
    found = client.get("/v1/instances", job_id=whole, ended=ended)
    empty = "no instance is rented" if not ended else "no instance was ever rented"
    print_list(found, columns, empty, as_json=as_json)


def _fate(one: Mapping[str, Any]) -> str:
    if one["ended_s"] is not None:
        return "interrupted by its provider" if one["by_provider"] else ""
    if one["notice_s"] is not None:
        return f"will be interrupted in {span(max(0.0, one['notice_s'] - time.time()))}"
    return "at risk" if one["rebalance"] else ""


def costs(client: Client, by: str, *, as_json: bool) -> None:
    """Print the costs."""
    found = client.get("/v1/costs", by=by)
    if as_json:
        print_json(found)
        return
    others = {} if found["others"] is None else {"others": found["others"]}
    groups = {**found["groups"], **others, "total": found["total"]} if found["groups"] else {}
    columns: Columns = {
        by.upper(): lambda one: one["name"],
        "USD>": lambda one: usd(one["usd"]),
        "DISKS>": lambda one: usd(one["disk_usd"]),
        "EGRESS>": lambda one: usd(one["egress_usd"]),
        "ON DEMAND>": lambda one: usd(one["on_demand_usd"]),
        "SAVED>": lambda one: share(one["usd"], one["on_demand_usd"]),
        "INSTANCE HOURS>": lambda one: f"{one['instance_seconds'] / 3600:.2f}",
    }
    rows = [{"name": name, **one} for name, one in groups.items()]
    show(rows, columns, "nothing has been rented yet")


def events(client: Client, job_id: str | None, limit: int, *, follow: bool, as_json: bool) -> None:
    """Print events, and with `follow` stream new ones."""
    whole = None if job_id is None else client.find(job_id)
    found = client.get("/v1/events", limit=limit, job_id=whole)
    for event in found:
        _show_event(event, as_json)
    if not follow:
        if not found and not as_json:
            print("nothing has happened yet")
        return
    last = found[-1]["sequence"] if found else 0
    for event in client.follow(last, whole):
        _show_event(event, as_json)


def _show_event(event: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(event)
    else:
        line(console(), event_line(event))


def event_line(event: Mapping[str, Any]) -> str:
    """One event for people."""
    what = "/".join(part for part in (event["job_id"], event["task"]) if part)
    parts = [
        f"{clock(event['time_s'])}  {event['kind']:{_EVENT_WIDTH}}",
        what,
        event["instance_id"] or "",
        particulars(event),
    ]
    return "  ".join(part for part in parts if part).rstrip()


def cancel(client: Client, job_ids: Sequence[str], *, as_json: bool) -> None:
    """End jobs. All are tried. Raises typer.Exit (`EXIT_USER`) if one could not be; each has its line."""
    refused = False
    for job_id in job_ids:
        try:
            job = client.cancel(job_id)
        except UnreachableError:
            raise
        except ServiceError as error:
            say(f"error: {error}")
            refused = True
            continue
        if as_json:
            print_json(job)
        else:
            print(f"{job['job_id']} is cancelled; what it still runs is being ended")
    if refused:
        raise typer.Exit(EXIT_USER)
