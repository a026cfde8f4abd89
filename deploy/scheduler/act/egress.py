"""What moving data to where tasks start costs: an estimate, from the volumes that their jobs declare.

No cloud says what a job moved; its bill does, days later, and not by job.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from deploy.billing import CHARGES_PER_USD
from deploy.model.jobs import Flower, JobSpec, Profile, TaskKey
from deploy.model.transfers import Transfers
from deploy.scheduler.retries.retries import attempt_id
from deploy.store.intents import IntentKind
from deploy.store.store import Store
from deploy.store.tasks import Task


def loads(profile: Profile, saved_in: str) -> tuple[tuple[str, float], ...]:
    """(region, GB) of what must be where a task starts: its input, and its checkpoint if there is one."""
    found = []
    if profile.data_region is not None and profile.data_gb > 0:
        found.append((profile.data_region, profile.data_gb))
    if saved_in and profile.checkpoint_gb > 0:
        found.append((saved_in, profile.checkpoint_gb))
    return tuple(found)


def of_start(spec: JobSpec, task: Task, region: str, transfers: Transfers) -> int:
    """Charges for a start of a task in a region. Data of federated clients stay where they are."""
    if isinstance(spec.work, Flower):
        return 0
    move = transfers.moves(loads(spec.profile, task.saved_region)).get(region)
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
        found[key.job_id] += of_start(jobs[key.job_id].spec, tasks[key], region, transfers)
    return found
