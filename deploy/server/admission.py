"""Refusing jobs that can never run, before anything is rented for them."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path

from spotweave.deploy.config import QuotasConfig
from spotweave.deploy.model.instances import Offer
from spotweave.deploy.model.jobs import Bag, JobSpec, SparkBatch, SparkStreaming, TaskKey
from spotweave.deploy.model.workflows import Workflow
from spotweave.deploy.scheduler.needs import Need
from spotweave.deploy.server.errors import Refusal
from spotweave.deploy.store.jobs import Held


class AdmissionError(ValueError):
    """No offer of this deployment can run the job as it was asked for; one line (HTTP 422)."""


def admit(spec: JobSpec, offers: Sequence[Offer]) -> None:
    """Refuse a job for which there is no offer, or whose deadline none can meet.

    What is full or unavailable now does not count: it may change. Nothing is refused while no offers are
    known (no provider has answered yet). Raises AdmissionError: what is missing.
    """
    # A thousand clients of a training are one case.
    for task in {
        (spec.resources_of(task), spec.places_of(task), _promise(spec, task)): task for task in spec.tasks
    }.values():
        _admit_task(spec, task, offers)


def _admit_task(spec: JobSpec, task: str, offers: Sequence[Offer]) -> None:
    need = Need(TaskKey("", task), "general", spec.resources_of(task), spec.places_of(task), standard_s=0.0)
    refusals = {offer.offer_id: need.refusal(offer) for offer in offers}
    fitting = [offer for offer in offers if refusals[offer.offer_id] is None]
    which = f"task {task!r} of this job" if spec.work.asks(task) else "this job"
    if region := spec.work.region_of(task):
        which += f", which must run in {region},"
    if offers and not fitting:
        shown = "; ".join(f"{offer_id} {refusal}" for offer_id, refusal in sorted(refusals.items())[:3])
        more = f" (and {len(offers) - 3} more)" if len(offers) > 3 else ""
        raise AdmissionError(f"no offer can run {which}: {shown}{more}; ask for less, or allow more places")
    limit_s, starts, work_s, what = _promise(spec, task)
    if limit_s is None or work_s is None or not fitting:
        return
    fastest_s, offer_id = min(
        ((offer.launch_s if starts else 0.0) + work_s / offer.speed, offer.offer_id) for offer in fitting
    )
    if fastest_s > limit_s:
        raise AdmissionError(
            f"{what} of {limit_s:g} s cannot be met: the fastest offer, {offer_id}, needs about "
            f"{fastest_s:.0f} s; give it more time, or correct the expected time"
        )


def _promise(spec: JobSpec, task: str) -> tuple[float | None, bool, float | None, str]:
    """The time that is allowed, whether starting is part of it, the expected work, and its name."""
    work = spec.work
    if isinstance(work, SparkBatch | Bag):
        return work.deadline_s, True, work.standard_s_of(task), "the deadline"
    if isinstance(work, Workflow):
        return work.deadline_s, True, work.standard_s, "the deadline"
    if isinstance(work, SparkStreaming):
        return work.batch_deadline_s, False, work.standard_s, "the batch deadline"
    rounds_s = None if work.epoch_s is None else work.rounds * work.epoch_s
    return work.deadline_s, True, rounds_s, "the deadline"


# What one submitter, and all together, may take of what a deployment has.

MIB = 1 << 20
WINDOW_S = 60.0


class Quotas(QuotasConfig):
    """Refuses what would be more."""

    def refuse_beyond(self, held: Held, size: int, now_s: float) -> None:
        """Refuse one more job of a submitter, with `size` bytes of files. Raises Refusal.

        `held` is what they have without it, their jobs of the latest `WINDOW_S` among it.
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

        Raises Refusal if they would not; OSError if the disk cannot be asked.
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
