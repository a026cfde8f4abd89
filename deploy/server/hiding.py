"""What of a job only its submitter and admins see: what it was given, and what its own code says.

Arguments and the environment often hold what was not meant for others, and so do messages of programs that
failed with them. Names stay: of environment variables and settings, of the script or app.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deploy.model.bags import Bag
from deploy.model.jobs import Flower, JobSpec
from deploy.model.workflows import Workflow

HIDDEN = "(hidden)"
_TOLD = frozenset({"message", "reason", "error"})
"""Where an event says something in words."""
_OUR_WORDS = frozenset(
    {"task.decided", "task.caught", "task.moved", "task.stayed", "task.hopeless", "task.left"}
)
"""Events of jobs whose words are the scheduler's own. Those of all others may be of the job's program."""


def hidden_spec(spec: JobSpec) -> JobSpec:
    """Without the values that the job was given."""
    work = spec.work
    shown: Flower | Any
    if isinstance(work, Flower):
        clients = tuple(one.model_copy(update={"config": _values(one.config)}) for one in work.clients)
        shown = work.model_copy(update={"run_config": _values(work.run_config), "clients": clients})
    elif isinstance(work, Bag):
        tasks = tuple(one.model_copy(update={"command": _words(one.command)}) for one in work.tasks)
        checkpoint = None if work.checkpoint is None else _words(work.checkpoint)
        shown = work.model_copy(update={"tasks": tasks, "checkpoint": checkpoint})
    elif isinstance(work, Workflow):
        steps = tuple(
            one.model_copy(update={"args": _words(one.args), "conf": _values(one.conf)}) for one in work.steps
        )
        shown = work.model_copy(update={"steps": steps})
    else:
        shown = work.model_copy(update={"args": _words(work.args), "conf": _values(work.conf)})
    return spec.model_copy(update={"work": shown, "env": _values(spec.env)})


def hidden_data(kind: str, data: Mapping[str, Any]) -> Mapping[str, Any]:
    """An event of a job, without what the job's program may have said."""
    if not kind.startswith(("task.", "job.")) or kind in _OUR_WORDS:
        return data
    return {name: hidden_text(value) if name in _TOLD else value for name, value in data.items()}


def hidden_text(text: object) -> str:
    """That there is a message, and not which."""
    return HIDDEN if text else ""


def _words(given: Sequence[str]) -> tuple[str, ...]:
    return (HIDDEN,) * len(given)


def _values(given: Mapping[str, str]) -> dict[str, str]:
    return dict.fromkeys(given, HIDDEN)
