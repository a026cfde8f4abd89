"""Batches of a streaming job, counted from the progress that Spark itself writes into its event log.

Every finished micro-batch leaves a QueryProgressEvent there, flushed at once; so none is missed while nobody
looks, and all can be read after the driver died. Spark's REST endpoints do not report Structured Streaming.

The job's own code can write there too. So a look reads a bounded part, follows no link, and what cannot be
understood counts as no batch.
"""

from __future__ import annotations

import json
import logging
import os
import re
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Annotated

from pydantic import AwareDatetime, BaseModel, Field, FiniteFloat, ValidationError

from spotweave.deploy.security.untrusted import open_beneath, plain_files, remove_tree, unlink_beneath
from spotweave.deploy.statefile import StateFile

_log = logging.getLogger(__name__)
_PROGRESS = "org.apache.spark.sql.streaming.StreamingQueryListener$QueryProgressEvent"
_LOOK_BYTES = 16 << 20  # read in one look, of all logs together; Spark writes some kB in a batch
_LINE_BYTES = 4 << 20  # a longer line is none of Spark's progress: it is skipped
_MOST_FILES = 100_000  # in the folder; logs beyond them are ignored
_MOST_NAMES = 1000  # most logs in one look, and queries; what exceeds it is ignored
_LOG = re.compile("([0-9]+)/(eventlog_v2_[^/]+)/events_([0-9]+)[^/]*")


class _Durations(BaseModel):
    """Milliseconds."""

    add_batch: Annotated[FiniteFloat | None, Field(alias="addBatch")] = None
    trigger: Annotated[FiniteFloat, Field(alias="triggerExecution", ge=0, le=1e12)] = 0.0


class _Progress(BaseModel):
    id: Annotated[str, Field(max_length=200)]
    batch: Annotated[int, Field(alias="batchId", ge=0, lt=1 << 53)]
    timestamp: AwareDatetime  # of its trigger
    durations: Annotated[_Durations, Field(alias="durationMs")]


class _Event(BaseModel):
    kind: Annotated[str, Field(alias="Event")]
    progress: _Progress


class Batches(StateFile):
    """What is known of a job's batches, over all its attempts."""

    done: int = 0  # of all its queries. A batch that a new attempt had to repeat counts once.
    misses: int = 0  # those that took longer than the deadline
    latest_s: float | None = None  # from the trigger of the latest to its end; None before one
    triggered_s: float | None = None  # epoch seconds of that trigger
    # number of the newest batch of each query, by the query's id, which its checkpoint keeps
    newest: dict[str, int] = Field(default_factory=dict)
    # bytes read of each event log, by its path below the folder
    read: dict[str, int] = Field(default_factory=dict)


class BatchLog:
    """The event logs of one job: `folder/ATTEMPT/eventlog_v2_APPLICATION/events_N_APPLICATION`."""

    def __init__(self, folder: Path, state: Path, deadline_s: float) -> None:
        self._folder, self._state, self._deadline_s = folder, state, deadline_s

    def read(self) -> Batches:
        """Count what has come since the last time. What is counted is on disk before it is told.

        Raises OSError.
        """
        known = self._known()
        batches = known.model_copy(deep=True)
        logs = self._logs()
        left = _LOOK_BYTES
        for log in logs:
            left -= self._read_log(log, batches, left)
        if batches != known:
            batches.save(self._state)
        if left > 0:
            self._remove_old(logs, batches)
        return batches

    def _known(self) -> Batches:
        try:
            return Batches.load(self._state) or Batches()
        except ValidationError:
            _log.error("%s is damaged: batches are counted again from the logs that are left", self._state)
            return Batches()

    def _logs(self) -> list[str]:
        """Paths below the folder, from the oldest to the newest."""
        found: list[tuple[int, str, int, str]] = []
        # There is no folder yet, or it is crowded.
        with suppress(OSError):
            for path, _ in plain_files(self._folder, _MOST_FILES):
                if name := _LOG.fullmatch(path):
                    found.append((int(name[1]), name[2], int(name[3]), path))
        return [path for *_, path in sorted(found)[:_MOST_NAMES]]

    def _read_log(self, log: str, batches: Batches, most: int) -> int:
        """Returns the number of bytes that were read."""
        at = batches.read.get(log, 0)
        try:
            handle = open_beneath(self._folder, log, os.O_RDONLY)
        except OSError:
            return 0
        with os.fdopen(handle, "rb") as file:
            file.seek(at)
            content = file.read(most)
        end = content.rfind(b"\n") + 1
        if not end and len(content) >= _LINE_BYTES:
            end = len(content)
        for line in content[:end].split(b"\n"):
            if _PROGRESS.encode() in line and len(line) < _LINE_BYTES:
                self._count(line, batches)
        if end:
            batches.read[log] = at + end
        return len(content)

    def _count(self, line: bytes, batches: Batches) -> None:
        try:
            event = _Event.model_validate(json.loads(line))
        except (ValueError, RecursionError):
            return
        progress, query = event.progress, event.progress.id
        # Spark also reports from time to time that there was nothing to do.
        if (
            event.kind != _PROGRESS
            or progress.durations.add_batch is None
            or progress.batch <= batches.newest.get(query, -1)
            or (query not in batches.newest and len(batches.newest) >= _MOST_NAMES)
        ):
            return
        batches.newest[query] = progress.batch
        batches.done += 1
        batches.latest_s = progress.durations.trigger / 1000
        batches.triggered_s = progress.timestamp.timestamp()
        batches.misses += batches.latest_s > self._deadline_s

    def _remove_old(self, logs: list[str], batches: Batches) -> None:
        """Without this a job that runs for months fills the disk. The newest is still written."""
        for log in logs[:-1]:
            with suppress(OSError):
                unlink_beneath(self._folder, log)
        newest = int(logs[-1].partition("/")[0]) if logs else 0
        with suppress(FileNotFoundError), os.scandir(self._folder) as found:
            attempts = [entry.name for entry in islice(found, _MOST_NAMES) if entry.name.isdecimal()]
            for attempt in attempts:
                if int(attempt) < newest:
                    remove_tree(self._folder / attempt)
        gone = [log for log in batches.read if not (self._folder / log).exists()]
        if gone:
            for log in gone:
                del batches.read[log]
            batches.save(self._state)
