"""Giving a task a place, and a running one another: what is written down, and how the switch is made.

A task that runs stays where it is until the instances of the other place are ready; then it is taken off, and
goes on there from what was saved. If its own place is lost meanwhile it goes to the new one at once. The
intent to move says which instances are kept for that; if it comes to nothing they are ended.
"""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Mapping, Sequence

from spotweave.deploy.billing import CHARGES_PER_USD, Transfers
from spotweave.deploy.model.instances import InstanceState, Offer
from spotweave.deploy.model.jobs import Flower, JobSpec, JobState, TaskKey
from spotweave.deploy.model.workflows import Workflow
from spotweave.deploy.scheduler.retries import about, attempt_id, key_of, requeue
from spotweave.deploy.store.intents import Intent, IntentKind
from spotweave.deploy.store.schema import Json
from spotweave.deploy.store.store import Store
from spotweave.deploy.store.tasks import Task


def place(
    store: Store, key: TaskKey, instances: int, offer: Offer, now_s: float, decision_id: int | None
) -> None:
    """Intend to rent instances for a task without a place and to start it there. Needs a transaction."""
    _begin(store, key, _rent(store, key, instances, offer, now_s, decision_id), now_s, decision_id)


def intend_move(
    store: Store,
    task: Task,
    instances: int,
    offer: Offer,
    now_s: float,
    decision_id: int | None,
    why: Mapping[str, Json],
) -> None:
    """Intend to move a task that has a place to another offer. Needs a transaction.

    `why` is more for the event `task.moved`: "reason", "gain_usd", "cost_usd".
    """
    names = _rent(store, task.key, instances, offer, now_s, decision_id)
    payload = {**why, **about(task, names), "offer": offer.offer_id, "market": offer.market}
    store.intents.add(IntentKind.MOVE, attempt_id(task), payload, now_s, decision_id=decision_id)


def cancel_move(store: Store, task: Task, reason: str, now_s: float) -> None:
    """Give up a move of the task that is under way, if there is one. Needs a transaction."""
    intent = moves(store).get(task.key)
    if intent is not None:
        store.intents.failed(intent.intent_id, reason, now_s)


def moves(store: Store) -> dict[TaskKey, Intent]:
    """The moves that are under way, by task."""
    return {key_of(intent): intent for intent in store.intents.pending(IntentKind.MOVE)}


def kept_for_moves(store: Store) -> set[str]:
    """Ids of instances that a move under way waits for."""
    return {str(name) for one in moves(store).values() for name in one.payload["instances"]}


def move(store: Store, intent: Intent, now_s: float, ready_within_s: float) -> None:
    """Do a move if it can be done now; give it up if it never can.

    The new instances have `ready_within_s` to get ready.
    """
    key = key_of(intent)
    job, task = store.jobs.get(key.job_id), store.tasks.get(key)
    if not job.state.live or task.attempt != intent.payload["attempt"]:
        _give_up(store, intent, "the task has ended, or has another place", now_s)
        return
    names = [str(name) for name in intent.payload["instances"]]
    states = [store.instances.get(name).state for name in names]
    lost = (InstanceState.STOPPED, InstanceState.STOPPING, InstanceState.TERMINATED)
    if any(state in lost for state in states):
        _give_up(store, intent, "the new instances were not to be had", now_s)
        return
    homeless = task.phase is None
    ready = all(state is InstanceState.RUNNING for state in states)
    if not (task.not_before_s <= now_s if homeless else ready):
        if now_s - intent.created_s > ready_within_s:
            _give_up(store, intent, f"the new instances were not ready within {ready_within_s:.0f} s", now_s)
        return
    left = [store.instances.get(name).offer.offer_id for name in task.instances[:1]]
    offer_id = str(intent.payload["offer"])
    with store.transaction():
        if not homeless:
            requeue(store, task, now_s, reason=f"it moves to {offer_id}")
        _begin(store, key, names, now_s, intent.decision_id)
        store.intents.done(intent.intent_id, now_s)
        data: dict[str, Json] = {"from": left[0] if left else None, "to": offer_id}
        data |= {name: intent.payload.get(name) for name in ("reason", "gain_usd", "cost_usd")}
        store.events.add("task.moved", now_s, data, key=key, decision_id=intent.decision_id)


def _give_up(store: Store, intent: Intent, reason: str, now_s: float) -> None:
    with store.transaction():
        store.intents.failed(intent.intent_id, reason, now_s)
        data = {"to": str(intent.payload["offer"]), "reason": reason}
        store.events.add("task.stayed", now_s, data, key=key_of(intent), decision_id=intent.decision_id)


def _rent(
    store: Store, key: TaskKey, instances: int, offer: Offer, now_s: float, decision_id: int | None
) -> Sequence[str]:
    names = [f"i-{secrets.token_hex(8)}" for _ in range(instances)]
    for name in names:
        store.instances.request(
            name,
            offer,
            key,
            client_token=f"{store.deployment_id}-{name}",
            node_token=secrets.token_urlsafe(32),
            now_s=now_s,
        )
        store.intents.add(IntentKind.LAUNCH, name, {}, now_s, decision_id=decision_id)
    return names


def _begin(store: Store, key: TaskKey, names: Sequence[str], now_s: float, decision_id: int | None) -> None:
    attempt = store.tasks.begin(key, names, now_s)
    store.jobs.set_state(key.job_id, JobState.RUNNING, now_s)
    payload: dict[str, Json] = {"job_id": key.job_id, "task": key.task, "attempt": attempt}
    task = store.tasks.get(key)
    store.intents.add(IntentKind.START, attempt_id(task), payload, now_s, decision_id=decision_id)


# What moving data to where tasks start costs: an estimate, from the volumes that their jobs declare.
#
# No cloud says what a job moved; its bill does, days later, and not by job.


def loads(
    spec: JobSpec, task: str, saved_in: str, written_in: Mapping[str, str]
) -> tuple[tuple[str, float], ...]:
    """(region, GB) of what must be where a task starts: its input, and its checkpoint if there is one.

    `saved_in` is the region of its checkpoint, "" without; `written_in` see `regions_of`.
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
        moving = moves(store)
        tasks = {task.key: task for task in store.tasks.placed()} if starting or moving else {}
        places = {task.key: task.instances[0] for task in tasks.values() if attempt_id(task) in starting}
        tasks |= store.tasks.named(moving.keys() - tasks.keys())
        ways = [
            *places.items(),
            *((key, str(intent.payload["instances"][0])) for key, intent in moving.items()),
        ]
        jobs = store.jobs.named({key.job_id for key, _ in ways})
        instances = store.instances.named({name for _, name in ways})
    for key, name in ways:
        region = instances[name].offer.region
        spec = jobs[key.job_id].spec
        written_in = regions_of(store, key.job_id, spec)
        found[key.job_id] += of_start(spec, tasks[key], region, transfers, written_in)
    return found
