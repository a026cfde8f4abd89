"""What a ServerApp tells of its training: the user's program wrote it, so it is checked."""

from __future__ import annotations

from pydantic import ValidationError

from deploy.fl.checkpoints import Status
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
