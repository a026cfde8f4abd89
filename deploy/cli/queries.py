"""Output of the commands that query a service."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from deploy.cli.client import Client, ServiceError, UnreachableError
from deploy.cli.errors import EXIT_FAILED, EXIT_USER, say
from deploy.cli.tables import ago, clock, console, gpus, share, show, span, table, usd

_POLL_S = 1.0
_GIVE_UP_S = 600.0
_EVENT_WIDTH = 20


def print_json(value: object) -> None:
    """One document for scripts, in one line."""
    print(json.dumps(value), flush=True)


def submit(client: Client, files: Sequence[Path], *, wait: bool, as_json: bool) -> None:
    """Send jobs, and wait for their ends if that is asked for.

    Raises:
        ValueError: for the first that cannot be sent; those before it were.
        typer.Exit: with `EXIT_FAILED` if one that was waited for did not succeed.
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
    ended = wait_for(client, sent, quiet=as_json)
    if as_json:
        for job in ended:
            print_json(job)
    else:
        _show_ended(ended)
    if any(job["state"] != "succeeded" for job in ended):
        raise typer.Exit(EXIT_FAILED)


def wait_for(client: Client, job_ids: Sequence[str], *, quiet: bool = False) -> list[dict[str, Any]]:
    """Jobs at their ends. A service that is away for a while (a restart, say) is waited for too.

    Raises:
        ServiceError: if it stays away for ten minutes, or refuses.
    """
    ended: dict[str, dict[str, Any]] = {}
    told: dict[str, str] = {}
    away_s: float | None = None
    while True:
        try:
            for job_id in [one for one in job_ids if one not in ended]:
                job = client.job(job_id)
                away_s = None
                line = _progress(job)
                if told.get(job_id) != line and not quiet:
                    say(f"{clock(time.time())} {job_id} {line}")
                told[job_id] = line
                if job["ended_s"] is not None:
                    ended[job_id] = job
        except UnreachableError as error:
            now_s = time.monotonic()
            if away_s is None:
                away_s = now_s
                say(f"{error}; trying again")
            elif now_s - away_s > _GIVE_UP_S:
                raise
        if len(ended) == len(job_ids):
            return [ended[job_id] for job_id in job_ids]
        time.sleep(_POLL_S)


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


def state(job: Mapping[str, Any]) -> str:
    """The state of a job, and why where there is a reason."""
    return f"{job['state']}: {job['reason']}" if job["reason"] else str(job["state"])


def _show_ended(jobs: Sequence[Mapping[str, Any]]) -> None:
    rows = []
    for job in jobs:
        took_s = job["ended_s"] - job["submitted_s"]
        cost = job["cost"]
        rows.append(
            (
                job["job_id"],
                job["state"],
                span(took_s),
                deadline(job),
                usd(cost["usd"]),
                usd(cost["on_demand_usd"]),
                job["reason"],
            )
        )
    show(("JOB", "STATE", "TOOK>", "DEADLINE", "USD>", "ON DEMAND>", "REASON*"), rows, "")


def deadline(job: Mapping[str, Any]) -> str:
    """What has become, or may become, of a job's deadline."""
    within_s = job["spec"]["work"].get("deadline_s")
    if within_s is None:
        return "-"
    left_s = job["submitted_s"] + within_s - (job["ended_s"] or time.time())
    if job["ended_s"] is None:
        return f"in {span(left_s)}" if left_s >= 0 else f"missed {span(-left_s)} ago"
    if job["state"] != "succeeded":
        return "-"
    return f"met, {span(left_s)} left" if left_s >= 0 else f"missed by {span(-left_s)}"


def jobs(client: Client, states: Sequence[str], limit: int, *, as_json: bool) -> None:
    """The latest jobs."""
    found = client.get("/v1/jobs", state=list(states) or None, limit=limit)
    if as_json:
        print_json(found)
        return
    rows = [
        (
            job["job_id"],
            job["kind"],
            job["state"],
            f"{job['tasks_done']}/{job['tasks_all']}",
            clock(job["submitted_s"]),
            span((job["ended_s"] or time.time()) - job["submitted_s"]),
            job["submitter"],
            job["reason"],
        )
        for job in found
    ]
    empty = f"no job is {' or '.join(states)}" if states else "no jobs yet: spotweave submit FILE"
    show(("JOB", "KIND", "STATE", "DONE>", "SUBMITTED", "TIME>", "BY*", "REASON*"), rows, empty)


def clusters(client: Client, *, as_json: bool) -> None:
    """The offers."""
    found = client.get("/v1/offers")
    if as_json:
        print_json(found)
        return
    rows = [
        (
            one["offer_id"],
            usd(one["price_usd_hour"]),
            usd(one["on_demand_usd_hour"]),
            f"{one['used']}/{one['quota']}",
            str(one["vcpus"]),
            f"{one['memory_gib']:g}",
            gpus(one),
            "yes" if one["available"] else f"no: {one['reason'] or 'for the market alone to know'}",
        )
        for one in sorted(found, key=lambda one: one["offer_id"])
    ]
    headings = ("OFFER", "USD/H>", "ON DEMAND>", "USED>", "CPUS>", "GIB>", "GPU", "AVAILABLE*")
    show(headings, rows, "no provider has answered yet: see the service's log")


def instances(client: Client, job_id: str | None, *, ended: bool, as_json: bool) -> None:
    """Print the rented instances."""
    found = client.get("/v1/instances", job_id=job_id, ended=ended)
    if as_json:
        print_json(found)
        return
    rows = [
        (
            one["instance_id"],
            one["offer_id"],
            f"{one['job_id']} {one['task']}",
            one["state"],
            span((one["ended_s"] or time.time()) - (one["launched_s"] or one["requested_s"])),
            usd(one["price_usd_hour"]),
            _fate(one),
        )
        for one in found
    ]
    headings = ("INSTANCE", "OFFER*", "FOR*", "STATE", "UP>", "USD/H>", "NOTE*")
    show(headings, rows, "no instance is rented" if not ended else "no instance was ever rented")


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
    rows = [
        (
            name,
            usd(one["usd"]),
            usd(one["disk_usd"]),
            usd(one["egress_usd"]),
            usd(one["on_demand_usd"]),
            share(one["usd"], one["on_demand_usd"]),
            f"{one['instance_seconds'] / 3600:.2f}",
        )
        for name, one in groups.items()
    ]
    headings = (by.upper(), "USD>", "DISKS>", "EGRESS>", "ON DEMAND>", "SAVED>", "INSTANCE HOURS>")
    show(headings, rows, "nothing has been rented yet")


def events(client: Client, job_id: str | None, limit: int, *, follow: bool, as_json: bool) -> None:
    """Print events, and with `follow` stream new ones."""
    found = client.get("/v1/events", limit=limit, job_id=job_id)
    for event in found:
        _show_event(event, as_json)
    if not follow:
        if not found and not as_json:
            print("nothing has happened yet")
        return
    last = found[-1]["sequence"] if found else 0
    for event in client.follow(last, job_id):
        _show_event(event, as_json)


def _show_event(event: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(event)
    else:
        console().print(event_line(event), markup=False, soft_wrap=True)


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


def particulars(event: Mapping[str, Any]) -> str:
    """What an event holds besides its kind, as name=value."""
    data = event["data"].items()
    return " ".join(f"{name}={_short(name, value)}" for name, value in data if value not in ("", None, []))


def _short(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return clock(value) if name.endswith("_s") and value > 1e9 else f"{value:g}"
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value)


def cancel(client: Client, job_ids: Sequence[str], *, as_json: bool) -> None:
    """End jobs. All are tried.

    Raises:
        typer.Exit: with `EXIT_USER` if one could not be ended; each has its line.
    """
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
            print(f"{job_id} is cancelled; what it still runs is being ended")
    if refused:
        raise typer.Exit(EXIT_USER)


# `spotweave explain`: why a job is where it is, as a person would tell it.

_WIDE = 1000


def explain(found: Mapping[str, Any]) -> None:
    """Print an explanation.

    Args:
        found: of GET /v1/jobs/ID/explain.
    """
    on = console()
    _about(on, found["job"])
    decisions = list(reversed(found["decisions"]))
    if not decisions:
        on.print("\nNo decision yet: it is asked about in the scheduler's next pass.", markup=False)
    for decision in decisions:
        _decision(on, decision)
    on.print("\nWhat happened", style="bold")
    rows = [
        (clock(one["time_s"]), one["kind"], one["instance_id"] or one["task"] or "", particulars(one))
        for one in found["events"]
    ]
    on.print(table(("WHEN", "EVENT", "OF", "PARTICULARS*"), rows, wrap=on.width < _WIDE, indent=2))


def _about(on: Console, job: Mapping[str, Any]) -> None:
    work, cost = job["spec"]["work"], job["cost"]
    on.print(f"{job['job_id']}  {state(job)}", markup=False, style="bold")
    facts = [
        ("what", f"{job['kind']}, {work.get('script') or work.get('app') or _many(job)}"),
        ("submitted", f"{ago(job['submitted_s'])} by {job['submitter']}"),
        ("deadline", deadline(job)),
        ("took" if job["ended_s"] else "so far", span((job["ended_s"] or time.time()) - job["submitted_s"])),
        ("cost", f"{usd(cost['usd'])} USD, on demand {usd(cost['on_demand_usd'])} USD"),
    ]
    for task in job["tasks"]:
        facts.append((task["task"], _task(task)))
    for name, text in facts:
        on.print(f"  {name:{max(len(one) for one, _ in facts)}}  {text}", markup=False)


def _many(job: Mapping[str, Any]) -> str:
    done = sum(task["phase"] == "succeeded" for task in job["tasks"])
    return f"{done} of {len(job['tasks'])} tasks done"


def _task(task: Mapping[str, Any]) -> str:
    if task["attempt"] == 0 and task["message"]:
        return str(task["message"])
    if task["attempt"] == 0:
        since = task["waiting_since_s"]
        return "waits for a place" + (f" since {clock(since)}" if since else "")
    parts = [f"attempt {task['attempt']}", task["phase"] or "waits for a place"]
    if task["progress"]:
        parts.append(f"{100 * task['progress']:.0f} % done")
    if task["misses"]:
        parts.append(f"{task['misses']} batch deadlines missed")
    if task["message"]:
        parts.append(task["message"])
    return ", ".join(parts)


def _decision(on: Console, decision: Mapping[str, Any]) -> None:
    chosen = decision["chosen"]
    goes = f"goes to {chosen}" if chosen else "waits: none for now"
    if decision["mode"] == "dry-run":
        goes += " (a dry run: nothing was done)"
    on.print(f"\n{clock(decision['time_s'])}  {decision['task']} {goes}", markup=False, style="bold")
    on.print(
        f"  decision {decision['decision_id']} of the policy {decision['policy']}, "
        f"in {1e3 * decision['latency_s']:.0f} ms",
        markup=False,
    )
    if decision["shadow_policy"]:
        other = decision["shadow_choice"] or "none for now"
        difference = decision["shadow_difference"]
        told = "" if difference is None else f", which it holds for {difference:+.4g} different"
        on.print(f"  {decision['shadow_policy']} would have chosen {other}{told}", markup=False)
    candidates: Sequence[Mapping[str, Any]] = decision["candidates"]
    taken = next((one["total"] for one in candidates if one["offer_id"] == chosen), None)
    weighed = any(one["total"] is not None for one in candidates)
    headings = ["", "CANDIDATE", "USD/H>", "HOURS>", "RISK %>", "EXPECTED>"]
    rows: list[list[str]] = []
    for one in candidates:
        row = [
            ">" if one["offer_id"] == chosen else "",
            one["offer_id"] or "none for now",
            usd(one["price_usd_hour"]),
            _number(one["finish_s"], ".2f", 1 / 3600),
            _number(one["risk"], ".0f", 100),
            _number(one["expected_usd"]),
        ]
        if weighed:
            margin = None if taken is None or one["total"] is None else one["total"] - taken
            row += [_number(one["total"]), _number(margin, "+.2g")]
        rows.append([*row, one["reason"]])
    headings += [*(("TOTAL>", "MARGIN>") if weighed else ()), "REASON*"]
    on.print(table(headings, rows, wrap=on.width < _WIDE, indent=2))
    values = {} if not candidates else candidates[0]["values"]
    if values:
        parts = ", ".join(f"{name.replace('_', ' ')} {number:.3g}" for name, number in values.items())
        on.print(f"  values of the first: {parts}; their weighted sum is its total", style="dim")


def _number(given: float | None, form: str = ".3g", factor: float = 1) -> str:
    return "-" if given is None else f"{given * factor:{form}}"
