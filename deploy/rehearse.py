"""A rehearsal: run job files on a deployment to their end and say what happened.

python -m deploy.rehearse --config configs/deploy/local.yaml examples/wordcount.yaml examples/streaming.yaml
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.table import Table

from deploy.config import load_deployment
from deploy.model.jobs import JobState
from deploy.service import Service

EXIT_USER = 2
EXIT_FAILED = 1
EXIT_INTERRUPTED = 130


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit code: 0 if every job succeeded."""
    parser = argparse.ArgumentParser(prog="python -m deploy.rehearse", description=__doc__.splitlines()[0])
    parser.add_argument("--config", type=Path, required=True, help="the deployment's YAML file")
    parser.add_argument("--within", type=float, default=600.0, help="seconds after which it gives up")
    parser.add_argument("jobs", type=Path, nargs="+", help="job files")
    given = parser.parse_args(arguments)
    try:
        service = Service(load_deployment(given.config))
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_USER
    try:
        names = [service.submit(path, "rehearsal") for path in given.jobs]
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        service.close()
        return EXIT_USER
    loop = threading.Thread(target=service.run, name="scheduler", daemon=True)
    previous = signal.signal(signal.SIGTERM, lambda *_: service.stopping.set())
    loop.start()
    try:
        return _watch(service, names, given.within)
    except KeyboardInterrupt:
        print("interrupted: what runs goes on; the same command takes it up again", file=sys.stderr)
        return EXIT_INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, previous)
        service.stopping.set()
        loop.join(timeout=60)
        for runner in service.runners:
            runner.shutdown()
        service.close()


def _watch(service: Service, names: list[str], within_s: float) -> int:
    """Print events as they come, until all jobs have ended and everything is given back."""
    console, seen, until = Console(), 0, time.monotonic() + within_s
    while time.monotonic() < until:
        for event in service.store.events.after(seen, 1000):
            seen = event.sequence
            where = " ".join(part for part in (event.job_id, event.task, event.instance_id) if part)
            said = " ".join(
                f"{name}={value}" for name, value in event.data.items() if value not in ("", None)
            )
            console.print(f"{time.strftime('%H:%M:%S')} {event.kind:22} {where} {said}", highlight=False)
        ended = all(not service.store.jobs.get(name).state.live for name in names)
        if ended and not service.store.instances.live() and not service.store.intents.pending():
            break
        time.sleep(0.5)
    console.print(_report(service, names))
    states = [service.store.jobs.get(name).state for name in names]
    return 0 if all(state is JobState.SUCCEEDED for state in states) else EXIT_FAILED


def _report(service: Service, names: list[str]) -> Table:
    """What became of the jobs, and what they cost."""
    table = Table(title="What happened")
    for heading in (
        "job",
        "state",
        "took (s)",
        "deadline (s)",
        "interruptions",
        "cost (USD)",
        "on demand (USD)",
    ):
        table.add_column(heading)
    now_s = service.clock.now()
    for name in names:
        job = service.store.jobs.get(name)
        bill = service.store.costs.of_job(name, now_s)
        events = Counter(event.kind for event in service.store.events.after(0, 100_000, job_id=name))
        taken = sum(one.by_provider for one in service.store.instances.of_job(name))
        deadline = getattr(job.spec.work, "deadline_s", None)
        took = (job.ended_s or now_s) - job.submitted_s
        table.add_row(
            name,
            f"{job.state}{': ' + job.reason if job.reason else ''}",
            f"{took:.0f}",
            "-" if deadline is None else f"{deadline:.0f}",
            f"{taken} (of {events['instance.launched']} instances)",
            f"{bill.usd:.4f}",
            f"{bill.on_demand_usd:.4f}",
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
