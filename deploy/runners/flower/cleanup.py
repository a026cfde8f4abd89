"""The end of a job: its processes and secrets go at once, its state once its last checkpoint is kept."""

from __future__ import annotations

import logging
import shutil
import time
from pathlib import Path

from deploy.runners.base import RunnerError
from deploy.runners.flower.brokers import end_brokers
from deploy.runners.flower.checkpoint_sync import CheckpointSync
from deploy.runners.flower.record import JobRecord
from deploy.runners.flower.status import RESULTS, read_status
from deploy.runners.flower.superlink import log_of, process_of
from deploy.runners.jobfolder import JobFolder, PoisonError

_log = logging.getLogger(__name__)
_LOG_MOST_BYTES = 64 << 20
_RECORD = "job.json"


def end_job(folder: Path, job_id: str, keeper: CheckpointSync | None, keep_within_s: float) -> None:
    """Take the next step to the end of a job; may be repeated, also by another process.

    Args:
        folder: state of the job.
        job_id: whose.
        keeper: of its checkpoints away from this machine; None: they are here only.
        keep_within_s: so long its last checkpoint may take to be kept.

    Raises:
        RunnerError: while its processes or its last checkpoint are not done with.
    """
    process_of(folder).end(grace_s=0.0)
    end_brokers(folder)
    record = _record(folder)
    if record is not None and record.workdir:
        _keep_log(folder, JobFolder(Path(record.workdir)))
    for path in folder.iterdir() if folder.exists() else ():
        if path.name == _RECORD:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    problem = _not_kept(record, keeper) if record is not None and keeper is not None else ""
    if problem and record is not None:
        if not record.forgotten_s:
            record.forgotten_s = time.time()
            record.save(folder / _RECORD)
        if time.time() - record.forgotten_s < keep_within_s:
            raise RunnerError(f"job {job_id}: {problem}")
        _log.warning("job %s: given up after %.0f s: %s", job_id, keep_within_s, problem)
    if folder.exists():
        shutil.rmtree(folder)


def _record(folder: Path) -> JobRecord | None:
    try:
        return JobRecord.load(folder / _RECORD)
    except (OSError, ValueError) as error:
        _log.warning("%s cannot be read: %s", folder / _RECORD, error)
        return None


def _keep_log(folder: Path, results: JobFolder) -> None:
    try:
        results.copy_tail(log_of(folder), f"{RESULTS}/superlink.log", _LOG_MOST_BYTES)
    except FileNotFoundError:
        return
    except (OSError, PoisonError) as error:
        _log.warning("the SuperLink's log is not kept in %s: %s", results.path, error)


def _not_kept(record: JobRecord, keeper: CheckpointSync) -> str:
    """Why the last checkpoint of a job that succeeded is not kept yet, "" if there is nothing left to do."""
    if record.outcome != "succeeded":
        return ""
    folder = JobFolder(Path(record.workdir))
    try:
        status = read_status(folder, record.rounds)
    except (OSError, PoisonError) as error:
        _log.warning("there is no last checkpoint to keep: %s", error)
        return ""
    if status is None or keeper.keep(folder, record.runs, status.completed, record.rounds):
        return ""
    return keeper.problem or "its last checkpoint is being kept"
