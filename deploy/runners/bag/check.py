"""Bags that can never run, refused before anything is rented."""

from __future__ import annotations

from deploy.model.jobs import JobSpec
from deploy.runners.bag.task import bag
from deploy.runners.detached import require_startable

_OWN = "SPOTWEAVE_"


def check(spec: JobSpec) -> None:
    """Refuse a job that cannot run.

    Raises:
        ValueError: one line.
    """
    work = bag(spec)
    for task in work.tasks:
        require_startable({}, (*task.command, *(work.checkpoint or ())), spec.env, {})
    if spec.resources.instances != 1:
        raise ValueError(
            f"resources.instances is {spec.resources.instances}: each task of a bag runs on one (1)"
        )
    for key in spec.env:
        if key.startswith(_OWN):
            raise ValueError(f"env has {key!r}: names that begin so are set by spotweave: leave it out")
    interval_s = spec.profile.checkpoint_interval_s
    if interval_s > 0 and work.checkpoint is None:
        raise ValueError(
            f"profile.checkpoint_interval_s is {interval_s:g}, and work.checkpoint names no command: give "
            "one, or leave the interval out"
        )
