"""What a ServerApp tells of its training: the user's program wrote it, so it is checked."""

from __future__ import annotations

from pydantic import ValidationError

from deploy.fl.checkpoints import LINK_LOST, Status
from deploy.runners.jobfolder import JobFolder, PoisonError

RESULTS = "flower"
"""What a ServerApp writes is in this part of its job's folder."""
STATUS = f"{RESULTS}/status.json"
CHECKPOINTS = f"{RESULTS}/checkpoints"
_STATUS_MOST_BYTES = 4 << 20


def read_status(folder: JobFolder, rounds: int) -> Status | None:
    """What the status file says; None if there is none.

    Args:
        folder: of the job.
        rounds: of the whole training.

    Raises:
        PoisonError: if it is not what a ServerApp of this job would say.
        OSError: if it cannot be read now.
    """
    content = folder.read(STATUS, _STATUS_MOST_BYTES)
    if content is None:
        return None
    try:
        status = Status.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part)[:40] for part in first["loc"][:4])
        reason = " ".join(f"{where}: {first['msg']}".removeprefix(": ").split())[:200]
        raise PoisonError(f"{STATUS} is not a ServerApp's status: {reason}") from None
    if status.completed > rounds:
        raise PoisonError(f"{STATUS} says that {status.completed} of {rounds} rounds are completed")
    return status


# Whose fault it was: the user's ServerApp, or what it ran on.

_RAISED = "ServerApp failed with exception: "
MAX_FRUITLESS = 4
"""This many runs in a row may be lost before a round ends; then it is taken for the app's own fault."""


def server_failure(details: str, status: Status | None, run: int) -> str:
    """The user's error in one line if a run that has failed did so by an exception of its own, else "".

    Args:
        details: what Flower says of the run.
        status: what the ServerApp said last, if it uses `deploy.fl`.
        run: number of the run.
    """
    if status is not None and status.run == run and status.error:
        return status.error
    text = " ".join(details.split())
    if not text.startswith(_RAISED) or LINK_LOST in text:
        return ""
    return f"the ServerApp failed: {text.removeprefix(_RAISED)}"[:300]


def last_exception(log: str) -> str:
    """The last exception of a log in one line ("ModuleNotFoundError: No module named 'x'"), "" for none."""
    found = ""
    inside = False
    for line in log.splitlines():
        if line.startswith("Traceback (most recent call last)"):
            inside = True
        elif inside and line and not line[0].isspace():
            inside = False
            kind = line.partition(":")[0]
            if kind.replace(".", "").replace("_", "").isalnum():
                found = line
    return " ".join(found.split())[:300]
