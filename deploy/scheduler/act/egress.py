"""What moving data to where tasks start costs: an estimate, from the volumes that their jobs declare.

No cloud says what a job moved; its bill does, days later, and not by job.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from deploy.billing import CHARGES_PER_USD
from deploy.model.jobs import Flower, JobSpec, TaskKey
from deploy.model.transfers import Transfers
from deploy.model.workflows import Workflow
from deploy.scheduler.retries.retries import attempt_id
from deploy.store.intents import IntentKind
from deploy.store.store import Store
from deploy.store.tasks import Task


def loads(
    spec: JobSpec, task: str, saved_in: str, written_in: Mapping[str, str]
) -> tuple[tuple[str, float], ...]:
    """(region, GB) of what must be where a task starts: its input, and its checkpoint if there is one.

    Args:
        spec: of the job.
        task: of it.
        saved_in: region of its checkpoint; "" where there is none.
        written_in: of a workflow: by step, the region where its files are (see `regions_of`).
    """
    if isinstance(spec.work, Workflow):
        return _read(spec.work, task, written_in)
    profile, found = spec.profile, []
    if profile.data_region is not None and profile.data_gb > 0:
        found.append((profile.data_region, profile.data_gb))
    if saved_in and profile.checkpoint_gb > 0:
        found.append((saved_in, profile.checkpoint_gb))
    return tuple(found)


def _read(work: Workflow, step: str, written_in: Mapping[str, str]) -> tuple[tuple[str, float], ...]:
    kept_in = {file.name: file.region for file in work.files}
    kept_in |= {file: written_in.get(writer) for file, writer in work.written_by().items()}
    sizes_gb = work.sizes_gb()
    there = ((kept_in[name], sizes_gb[name]) for name in work.step(step).reads)
    return tuple((region, size_gb) for region, size_gb in there if region and size_gb > 0)


def regions_of(store: Store, job_id: str, spec: JobSpec) -> Mapping[str, str]:
    """By step of a workflow that has succeeded: the region where its files are. Nothing for other jobs."""
    if not isinstance(spec.work, Workflow):
        return {}
    return {task.key.task: task.saved_region for task in store.tasks.of_job(job_id) if task.saved_region}


def of_start(
    spec: JobSpec, task: Task, region: str, transfers: Transfers, written_in: Mapping[str, str]
) -> int:
    """Charges for a start of a task in a region. Data of federated clients stay where they are."""
    if isinstance(spec.work, Flower):
        return 0
    move = transfers.moves(loads(spec, task.key.task, task.saved_region, written_in)).get(region)
    return 0 if move is None else round(move.usd * CHARGES_PER_USD)


def to_come(store: Store, transfers: Transfers) -> Mapping[str, int]:
    """By job: charges for starts that are intended, and for those of moves under way."""
    found: defaultdict[str, int] = defaultdict(int)
    if not transfers.usd_gb:
        return found
    with store.snapshot():
        starting = store.intents.pending_targets(IntentKind.START)
        moving = store.intents.pending(IntentKind.MOVE)
        tasks = {task.key: task for task in store.tasks.placed()} if starting or moving else {}
        places = {task.key: task.instances[0] for task in tasks.values() if attempt_id(task) in starting}
        keys = [TaskKey(str(one.payload["job_id"]), str(one.payload["task"])) for one in moving]
        tasks |= store.tasks.named([key for key in keys if key not in tasks])
        ways = [
            *places.items(),
            *zip(keys, (str(one.payload["instances"][0]) for one in moving), strict=True),
        ]
        jobs = store.jobs.named({key.job_id for key, _ in ways})
        instances = store.instances.named({name for _, name in ways})
    for key, name in ways:
        region = instances[name].offer.region
        spec = jobs[key.job_id].spec
        written_in = regions_of(store, key.job_id, spec)
        found[key.job_id] += of_start(spec, tasks[key], region, transfers, written_in)
    return found
