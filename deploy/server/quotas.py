"""What one submitter, and all together, may take of what a deployment has."""

from __future__ import annotations

import math
import shutil
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from deploy.server.errors import Refusal
from deploy.store.folders import Held

MIB = 1 << 20
WINDOW_S = 60.0


@dataclass(frozen=True)
class Quotas:
    """Of everyone who submits, admins too; tokens of one name are one submitter's.

    Attributes:
        live_jobs: of a submitter, that have not ended.
        jobs_a_minute: of a submitter.
        stored_mib: files that came with a submitter's jobs and are still kept.
        all_stored_mib: of all submitters together.
        free_disk_mib: of the disk with the jobs' folders; uploads leave it alone.
    """

    live_jobs: int = 1000
    jobs_a_minute: int = 60
    stored_mib: int = 4096
    all_stored_mib: int = 32_768
    free_disk_mib: int = 1024

    def refuse_beyond(self, held: Held, size: int, now_s: float) -> None:
        """Refuse one more job of a submitter.

        Args:
            held: by them, without it; their jobs of the latest `WINDOW_S`.
            size: of its files, in bytes.
            now_s: epoch seconds.

        Raises:
            Refusal: if it does not fit.
        """
        if held.live_jobs >= self.live_jobs:
            raise Refusal(
                HTTPStatus.TOO_MANY_REQUESTS,
                f"{held.live_jobs} of your jobs have not ended, which is the most here: wait, or cancel some",
            )
        if len(held.submitted_s) >= self.jobs_a_minute:
            # Then only this many are left in the window that one more fits.
            next_s = held.submitted_s[-self.jobs_a_minute] + WINDOW_S - now_s
            raise Refusal(
                HTTPStatus.TOO_MANY_REQUESTS,
                f"you have submitted {len(held.submitted_s)} jobs within a minute, which is the most here",
                {"Retry-After": str(max(1, math.ceil(next_s)))},
            )
        if held.uploaded_bytes + size > self.stored_mib * MIB:
            raise Refusal(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"the files of your jobs take {_mib(held.uploaded_bytes)}, and these {_mib(size)} more: at "
                f"most {self.stored_mib} MiB are kept; those of ended jobs are removed in time",
            )
        if held.all_uploaded_bytes + size > self.all_stored_mib * MIB:
            raise Refusal(
                HTTPStatus.INSUFFICIENT_STORAGE,
                f"the files of all jobs take {_mib(held.all_uploaded_bytes)} of at most "
                f"{self.all_stored_mib} MiB: those of ended jobs are removed in time; or ask the operator",
            )

    def refuse_full(self, jobs: Path, size: int) -> None:
        """Refuse files that would not leave enough of the disk.

        Raises:
            Refusal: if they would not.
            OSError: if the disk cannot be asked.
        """
        jobs.mkdir(mode=0o700, parents=True, exist_ok=True)
        if shutil.disk_usage(jobs).free - size < self.free_disk_mib * MIB:
            raise Refusal(
                HTTPStatus.INSUFFICIENT_STORAGE,
                f"the disk with the jobs' files would have less than {self.free_disk_mib} MiB left: ask the "
                "operator to make room",
            )


def _mib(size: int) -> str:
    return f"{size / MIB:.1f} MiB"
