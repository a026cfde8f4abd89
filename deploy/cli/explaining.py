"""`spotweave explain`: why a job is where it is, as a person would tell it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from deploy.cli.queries import deadline, particulars, state
from deploy.cli.tables import ago, clock, console, span, table, usd

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
