"""Checkpoints of a training: of its rounds, taken away from this machine, and within epochs of clients."""

from __future__ import annotations

import hashlib
import logging
import random
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from spotweave.deploy.fl import checkpoints
from spotweave.deploy.fl.checkpoints import Status
from spotweave.deploy.fl.epoch import SAVED, Saved
from spotweave.deploy.node.client import NodeClient, NodeRefused
from spotweave.deploy.objects.location import Objects, ObjectsError
from spotweave.deploy.runners.flower.liveness import Silence
from spotweave.deploy.runners.jobfolder import JobFolder, PoisonError
from spotweave.deploy.runners.workers import Work, file_of
from spotweave.files import write_private

_log = logging.getLogger(__name__)
# Takes a job's checkpoints away from this machine after each round, and brings them back before a run.
#
# The ServerApp is the user's program and holds no credentials: it writes to the job's folder, and the
# runner does the rest. Nothing here waits: what talks to the store does so in a thread, one at a time for
# each job. A thread that is killed with the scheduler has kept an object whole or not at all, and the next
# does it again.
#
# Each round is one object, named by the run that made it: `JOB/run-000002/round-000007.npz`. A run that
# resumes from an older round makes the later ones again, with other weights, so nothing ever has to be
# overwritten.


RESULTS = "flower"
"""What a ServerApp, which is the user's program, writes is in this part of its job's folder."""
STATUS = f"{RESULTS}/status.json"
CHECKPOINTS = f"{RESULTS}/checkpoints"
STATUS_MOST_BYTES = 4 << 20
_NAME = re.compile(r"run-(\d{6,})/round-(\d{6,})\.npz")
_KEEP = 2
_BACK_OFF_S = 5.0
_BACK_OFF_MOST_S = 300.0
FILES_MOST = 10_000
_TRIES = 4
"""This many of the newest files are read: a program that writes broken ones must not keep the thread busy."""


@dataclass(frozen=True, order=True)
class StoredRound:
    """A round that is kept; the greatest is the newest."""

    round: int  # how many rounds its weights come from
    run: int  # the run that made it

    @property
    def name(self) -> str:
        """Name of its object in the job's folder."""
        return f"run-{self.run:06d}/round-{self.round:06d}.npz"


class StoredRounds:
    """The kept rounds of one job. Methods may block and raise ObjectsError."""

    def __init__(self, objects: Objects, job_id: str) -> None:
        self._objects = objects
        self._job = f"{job_id}/"

    @property
    def uri(self) -> str:
        """URI of the checkpoints, for messages."""
        return f"{self._objects.uri}/{self._job}".rstrip("/")

    def all(self) -> list[StoredRound]:
        """The newest first; broken ones are among them."""
        found = (_NAME.fullmatch(name.removeprefix(self._job)) for name in self._objects.names(self._job))
        return sorted((StoredRound(int(one[2]), int(one[1])) for one in found if one), reverse=True)

    def newest(self, among: list[StoredRound], after: int) -> tuple[StoredRound, bytes] | None:
        """The newest whole one of a later round, and its content as it was encoded; None if there is none."""
        for one in among:
            if one.round <= after:
                return None
            content = self._objects.get(self._job + one.name)
            if content is not None and checkpoints.is_whole(content):
                return one, content
        return None

    def put(self, one: StoredRound, content: bytes, *, last: bool) -> None:
        """Keep one and let go of older ones: of the last two rounds all stay, after the last only that.

        Raises ConflictError if this run made this round before, with other weights.
        """
        self._objects.put(self._job + one.name, content)
        # What is newer is not ours to judge: it is broken, or made by another scheduler.
        older = [other for other in self.all() if other < one]
        latest = sorted({other.round for other in (one, *older)})[-_KEEP:]
        for other in older:
            if last or other.round not in latest:
                self._objects.delete(self._job + other.name)


class CheckpointSync:
    """Copies one job's checkpoints to the object store, up to a size. For one thread only."""

    def __init__(self, rounds: StoredRounds, job_id: str, most_bytes: int) -> None:
        self._rounds = rounds
        self._job_id = job_id
        self._most_bytes = most_bytes
        self._task: Work | None = None
        self._fetches = False
        self._failures = 0
        self._next_s = 0.0
        self._latest_run: int | None = None
        self.kept = 0  # the latest round that is known to be kept
        self.problem = ""  # why the latest try failed, in one line; "" if it did not
        self.poison = ""  # why nothing can be fetched before the job's folder is another; "" if it can
        self.fetching = Silence()  # how long a run has been waiting for what is kept

    def keep(self, folder: JobFolder, run: int, completed: int, rounds: int) -> bool:
        """See to it that the checkpoint of `completed` rounds is kept. Returns whether it is."""
        self._collect()
        if self.kept >= completed:
            return True
        if self._task is None:
            self._begin(lambda: self._upload(folder, run, completed, rounds), fetches=False)
        return False

    def fetched(self, folder: JobFolder) -> int | None:
        """Have the job's folder hold a whole checkpoint as new as any that is kept; asked before each run.

        Returns the highest number of a run that has kept anything, 0 for none; None: not done yet, ask again.
        """
        self._collect()
        latest, self._latest_run = self._latest_run, None
        self.fetching.note(latest is not None)
        if latest is None and self._task is None:
            self._begin(lambda: self._fetch(folder), fetches=True)
        return latest

    def _collect(self) -> None:
        if self._task is None or not self._task.future.done():
            return
        task, self._task = self._task.future, None
        error = task.exception()
        if error is None:
            self._failures, self._next_s, self.problem = 0, 0.0, ""
            self.kept, latest = task.result()
            if self._fetches:
                self._latest_run = latest
            return
        wait_s = min(_BACK_OFF_MOST_S, _BACK_OFF_S * 2.0**self._failures) * random.uniform(0.5, 1.0)
        self._failures = min(self._failures + 1, 30)
        self._next_s = time.monotonic() + wait_s
        doing = "cannot be fetched" if self._fetches else "are not kept"
        self.problem = f"checkpoints {doing}: {error}"
        if self._fetches and isinstance(error, PoisonError):
            self.poison = str(error)
        unexpected = None if isinstance(error, ObjectsError | OSError | PoisonError) else error
        _log.warning("job %s: %s; again in %.0f s", self._job_id, self.problem, wait_s, exc_info=unexpected)

    def _begin(self, act: Callable[[], tuple[int, int]], *, fetches: bool) -> None:
        if time.monotonic() < self._next_s:
            return
        self._fetches = fetches
        self._task = Work(act)
        # A daemon: the scheduler's end does not wait for a store that does not answer.
        name = f"checkpoints of {self._job_id}"
        threading.Thread(target=self._task.run, name=name, daemon=True).start()

    def _upload(self, folder: JobFolder, run: int, completed: int, rounds: int) -> tuple[int, int]:
        found = newest_whole(folder, self._most_bytes)
        if found is None or found[0] < completed:
            raise ObjectsError(f"{CHECKPOINTS} has no whole checkpoint of round {completed}")
        number, content = found
        self._rounds.put(StoredRound(number, run), content, last=number >= rounds)
        return number, run

    def _fetch(self, folder: JobFolder) -> tuple[int, int]:
        among = self._rounds.all()
        own = newest_whole(folder, self._most_bytes)
        found = self._rounds.newest(among, own[0] if own else 0)
        # The next run makes rounds again. What it begins with is put once more, rather than not at all.
        kept = 0
        if found is not None:
            one, content = found
            kept = one.round
            folder.write(f"{CHECKPOINTS}/{checkpoints.file_name(one.round)}", content)
            _log.info(
                "job %s: round %d fetched from %s/%s", self._job_id, one.round, self._rounds.uri, one.name
            )
        return kept, max((one.run for one in among), default=0)


def newest_whole(folder: JobFolder, most_bytes: int) -> tuple[int, bytes] | None:
    """The round of a job's newest whole checkpoint here, and its bytes. Raises PoisonError, OSError."""
    for number in checkpoints.rounds_of(folder.names(CHECKPOINTS, FILES_MOST))[:_TRIES]:
        content = folder.read(f"{CHECKPOINTS}/{checkpoints.file_name(number)}", most_bytes)
        if content is not None and checkpoints.is_whole(content):
            return number, content
    return None


def read_status(folder: JobFolder, rounds: int) -> Status | None:
    """Read what a ServerApp tells of its training; None if it says nothing yet.

    Raises PoisonError if no ServerApp of this job could have written it; OSError if it cannot be read now.
    """
    content = folder.read(STATUS, STATUS_MOST_BYTES)
    return None if content is None else parsed_status(content, rounds)


def parsed_status(content: bytes, rounds: int) -> Status:
    """What a ServerApp tells of its training; raises PoisonError if no ServerApp of this job could."""
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


# Checkpoints within epochs, copied from a client's node to its next one.


_EVERY_S = 5.0
_SAVED_BYTES = 1024


class Epochs:
    """Those of one job, in a folder of its own. Clients may write anything: it is copied, never decoded."""

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self._folder, self._most_bytes = folder, most_bytes
        self._kept: dict[str, Saved | None] = {}
        self._refused: dict[str, str] = {}
        """By client: SHA-256 of the latest one that was too large."""
        self._asked_s: dict[str, float] = {}

    def share(self, name: str, number: int) -> float:
        """Share of a client's epoch in round `number` that its next instance need not repeat."""
        kept = self._of(name)
        return kept.share if kept is not None and kept.round == number else 0.0

    def take(self, agent: NodeClient, name: str, below: str, *, last: bool) -> None:
        """Copy a client's new checkpoint from its state folder `below`, at most every 5 s.

        `last`: its process has ended, so copy now. Raises NodeUnreachable.
        """
        if not last and time.monotonic() - self._asked_s.get(name, -_EVERY_S) < _EVERY_S:
            return
        self._asked_s[name] = time.monotonic()
        try:
            self._take(agent, name, below)
        # ValueError: `Epoch` has not written what is there.
        except (NodeRefused, OSError, ValueError) as error:
            line = " ".join(str(error).split())[:200]
            _log.warning("the checkpoint of client %s is not kept: %s", name, line)

    def give(self, agent: NodeClient, name: str, below: str) -> None:
        """Put a client's checkpoint into the state folder of its new process. Raises NodeError, OSError."""
        if (kept := self._of(name)) is not None:
            agent.put_file(f"{below}/{kept.weights}", (self._folder / f"{name}.npz").read_bytes())
            agent.put_file(f"{below}/{SAVED}", kept.model_dump_json().encode())

    def _take(self, agent: NodeClient, name: str, below: str) -> None:
        told = file_of(agent, f"{below}/{SAVED}", _SAVED_BYTES)
        saved = None if told is None else Saved.model_validate_json(told)
        if saved is None or saved == self._of(name) or saved.sha256 == self._refused.get(name):
            return
        content = file_of(agent, f"{below}/{saved.weights}", self._most_bytes + 1)
        if content is not None and len(content) > self._most_bytes:
            self._refused[name] = saved.sha256
            raise ValueError(f"it has more than {self._most_bytes} bytes")
        # Otherwise a newer one has just replaced it; the next look takes that.
        if content is not None and hashlib.sha256(content).hexdigest() == saved.sha256:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            write_private(self._folder / f"{name}.npz", content)
            saved.save(self._folder / f"{name}.json")
            self._kept[name] = saved

    def _of(self, name: str) -> Saved | None:
        if name not in self._kept:
            self._kept[name] = Saved.load_whole(self._folder / f"{name}.json")
        return self._kept[name]
