"""What a job has left that this runner has not met since it was made."""

from __future__ import annotations

import shutil
from pathlib import Path

from deploy.node import procfs
from deploy.runners.base import RunnerError
from deploy.runners.flower.superlink import JOB_VARIABLE


def end_leftovers(folder: Path, *, remove: bool) -> None:
    """End everything of the job with this state folder, and remove that if wanted. Raises RunnerError."""
    mine = str(folder.resolve())

    def select(processes: list[procfs.Process]) -> list[procfs.Process]:
        return [process for process in processes if procfs.environment(process.pid).get(JOB_VARIABLE) == mine]

    if not procfs.kill_all(select):
        raise RunnerError(f"processes of {folder.name} cannot be killed")
    if remove:
        shutil.rmtree(folder, ignore_errors=True)
