"""Output of the commands that query a service: its lists, and one job as it is and why."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from spotweave.deploy.cli.client import Client, Job, ServiceError, UnreachableError
from spotweave.deploy.cli.tables import (
    Columns,
    ago,
    available,
    clock,
    console,
    gpus,
    line,
    share,
    show,
    span,
    table,
    usd,
)
from spotweave.mistakes import EXIT_FAILED, EXIT_USER, harmless, say

# One job on the terminal: how it is, why it is where it is, what it prints and leaves.


_SHOWN = 10  # tasks and instances on the one screen of `spotweave status`


def state(job: Mapping[str, Any]) -> str:
    """The state of a job, and why where there is a reason."""
    return f"{job['state']}: {job['reason']}" if job["reason"] else str(job["state"])


def _late_batches(number: int) -> str:
    return f"{number} batch{'' if number == 1 else 'es'} late"


def deadline(job: Mapping[str, Any]) -> str:
    """What has become, or may become, of a job's deadline, or of its batches'."""
    if job["deadline_s"] is None:
        return _late_batches(job["misses"]) if job["misses"] else "-"
    left_s = job["deadline_s"] - (job["ended_s"] or time.time())
    if job["state"] == "cancelled":
        return "-"
    if left_s < 0:
        return f"late by {span(-left_s)}"
    if job["ended_s"] is None:
        return f"in {span(left_s)}"
    return f"met, {span(left_s)} left" if job["state"] == "succeeded" else "not met"


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


def status(client: Client, job_id: str) -> None:
    """One screen about a job: state, where it runs, attempts, deadline, cost, the latest decision."""
    found = client.explain(job_id)
    job = found["job"]
    here = client.get("/v1/instances", job_id=job["job_id"])
    facts = _about(job)
    n_tasks, first = len(job["tasks"]), len(facts) - len(job["tasks"])
    if n_tasks > _SHOWN:
        facts = [*facts[: first + _SHOWN], ("", f"and {n_tasks - _SHOWN} more tasks: spotweave explain")]
    for one in here[:_SHOWN]:
        up_s = time.time() - (one["launched_s"] or one["requested_s"])
        facts.append(("where", f"{one['task']} on {one['offer_id']}, {one['state']} for {span(up_s)}"))
    if len(here) > _SHOWN:
        facts.append(("", f"and {len(here) - _SHOWN} more instances: spotweave instances --job"))
    if not here and not job["ended_s"]:
        facts.append(("where", "nowhere: no instance is rented for it"))
    if found["decisions"]:
        facts.append(("decided", _choice(found["decisions"][0])))
    _facts(console(), job, facts)


def logs(
    client: Client, job_id: str, task: str | None, attempt: int | None, tail: int | None, *, follow: bool
) -> None:
    """What a task has printed, and with `follow` what it prints."""
    shown = 0
    for part in client.logs(job_id, task=task, attempt=attempt, tail=tail, follow=follow):
        if not part.attempt and not follow and part.ended != "job":
            say(f"{part.task} has not been started yet: see spotweave status {job_id}")
        if part.attempt != shown and (shown or part.attempt > 1):
            say(f"attempt {part.attempt} of {part.task}")
        shown = part.attempt
        # The service sends nothing that a terminal obeys; another one might.
        sys.stdout.write(harmless(part.text))
        sys.stdout.flush()


def download(client: Client, job_id: str, folder: Path | None) -> None:
    """Fetch what a job has left, and say where it is."""
    target = client.download(job_id, folder)
    count = sum(path.is_file() for path in target.rglob("*"))
    print(f"{target} has {count} files of job {client.find(job_id)}")


# `spotweave explain`: why a job is where it is, as a person would tell it.


def explain(found: Mapping[str, Any]) -> None:
    """Print an explanation."""
    on = console()
    _facts(on, found["job"], _about(found["job"]))
    decisions = list(reversed(found["decisions"]))
    if not decisions:
        on.print("\nNo decision yet: it is asked about in the scheduler's next pass.")
    for decision in decisions:
        _decision(on, decision)
    on.print("\nWhat happened", style="bold")
    rows = [
        (clock(one["time_s"]), one["kind"], one["instance_id"] or one["task"] or "", particulars(one))
        for one in found["events"]
    ]
    on.print(table(("WHEN", "EVENT", "OF", "PARTICULARS*"), rows, wrap=on.is_terminal, indent=2))


def _about(job: Mapping[str, Any]) -> list[tuple[str, str]]:
    work, cost = job["spec"]["work"], job["cost"]
    return [
        ("what", f"{job['kind']}, {work.get('script') or work.get('app') or _many(job)}"),
        ("submitted", f"{ago(job['submitted_s'])} by {job['submitter']}"),
        ("deadline", deadline(job)),
        ("took" if job["ended_s"] else "so far", span((job["ended_s"] or time.time()) - job["submitted_s"])),
        ("cost", f"{usd(cost['usd'])} USD, on demand {usd(cost['on_demand_usd'])} USD"),
        *((task["task"], _task(task)) for task in job["tasks"]),
    ]


def _facts(on: Console, job: Mapping[str, Any], facts: Sequence[tuple[str, str]]) -> None:
    line(on, f"{job['job_id']}  {state(job)}", "bold")
    width = max(len(name) for name, _ in facts)
    for name, text in facts:
        line(on, f"  {name:{width}}  {text}")


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
        parts.append(_late_batches(task["misses"]))
    if task["message"]:
        parts.append(task["message"])
    return ", ".join(parts)


def _choice(decision: Mapping[str, Any]) -> str:
    chosen = decision["chosen"]
    goes = f"goes to {chosen}" if chosen else "waits: none for now"
    dry = " (a dry run: nothing was done)" if decision["mode"] == "dry-run" else ""
    return f"{clock(decision['time_s'])}  {decision['task']} {goes}{dry}"


def _decision(on: Console, decision: Mapping[str, Any]) -> None:
    chosen = decision["chosen"]
    line(on, f"\n{_choice(decision)}", "bold")
    line(
        on,
        f"  decision {decision['decision_id']} of the policy {decision['policy']}, "
        f"in {1e3 * decision['latency_s']:.0f} ms",
    )
    if decision["shadow_policy"]:
        other = decision["shadow_choice"] or "none for now"
        difference = decision["shadow_difference"]
        told = "" if difference is None else f", which it holds for {difference:+.4g} different"
        line(on, f"  {decision['shadow_policy']} would have chosen {other}{told}")
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
    on.print(table(headings, rows, wrap=on.is_terminal, indent=2))
    values = {} if not candidates else candidates[0]["values"]
    if values:
        parts = ", ".join(f"{name.replace('_', ' ')} {number:.3g}" for name, number in values.items())
        line(on, f"  values of the first: {parts}; their weighted sum is its total", "dim")


def _number(given: float | None, form: str = ".3g", factor: float = 1) -> str:
    return "-" if given is None else f"{given * factor:{form}}"


# Output of the commands that query a service.


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
