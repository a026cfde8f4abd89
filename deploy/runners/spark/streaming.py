"""Batches of a streaming job, counted from the progress that Spark itself writes into its event log.

Every finished micro-batch leaves a QueryProgressEvent there, flushed at once; so none is missed while nobody
looks, and all can be read after the driver died. Spark's REST endpoints do not report Structured Streaming.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from deploy.node.config import write_private

_PROGRESS = "org.apache.spark.sql.streaming.StreamingQueryListener$QueryProgressEvent"


class Batches(BaseModel):
    """What is known of a job's batches, over all its attempts.

    Attributes:
        done: of all its queries. A batch that a new attempt had to repeat counts once.
        misses: those that took longer than the deadline.
        latest_s: from the trigger of the latest to its end; None before one.
        newest: number of the newest batch of each query, by the query's id, which its checkpoint keeps.
        read: bytes read of each event log, by its path below the folder.
    """

    model_config = ConfigDict(extra="forbid")

    done: int = 0
    misses: int = 0
    latest_s: float | None = None
    newest: dict[str, int] = {}
    read: dict[str, int] = {}


class BatchLog:
    """The event logs of one job: `folder/ATTEMPT/eventlog_v2_APPLICATION/events_N_APPLICATION`."""

    def __init__(self, folder: Path, state: Path, deadline_s: float) -> None:
        self._folder = folder
        self._state = state
        self._deadline_s = deadline_s

    def attempt_folder(self, attempt: int) -> Path:
        """Where an attempt's driver writes its event log."""
        return self._folder / str(attempt)

    def read(self) -> Batches:
        """Count what has come since the last time. What is counted is on disk before it is told."""
        known = self._known()
        batches = known.model_copy(deep=True)
        logs = list(self._logs())
        for log in logs:
            self._read_log(log, batches)
        if batches != known:
            write_private(self._state, batches.model_dump_json())
        self._remove_old(logs, batches)
        return batches

    def remove(self) -> None:
        """Remove the logs; what was counted stays."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _known(self) -> Batches:
        try:
            return Batches.model_validate_json(self._state.read_bytes())
        except FileNotFoundError:
            return Batches()

    def _logs(self) -> Iterator[Path]:
        """From the oldest to the newest."""
        attempts = sorted((folder for folder in self._folder.glob("*") if folder.name.isdigit()), key=_number)
        for attempt in attempts:
            for application in sorted(attempt.glob("eventlog_v2_*")):
                yield from sorted(application.glob("events_*"), key=_number)

    def _read_log(self, log: Path, batches: Batches) -> None:
        name = str(log.relative_to(self._folder))
        with log.open("rb") as file:
            file.seek(batches.read.get(name, 0))
            for line in file:
                if not line.endswith(b"\n"):
                    break
                batches.read[name] = batches.read.get(name, 0) + len(line)
                if _PROGRESS.encode() in line:
                    self._count(line, batches)

    def _count(self, line: bytes, batches: Batches) -> None:
        event: dict[str, Any] = json.loads(line)
        if event["Event"] != _PROGRESS:
            return
        progress = event["progress"]
        durations: dict[str, int] = progress["durationMs"]
        query, batch = str(progress["id"]), int(progress["batchId"])
        # Spark also reports from time to time that there was nothing to do.
        if "addBatch" not in durations or batch <= batches.newest.get(query, -1):
            return
        batches.newest[query] = batch
        batches.done += 1
        batches.latest_s = durations["triggerExecution"] / 1000
        batches.misses += batches.latest_s > self._deadline_s

    def _remove_old(self, logs: list[Path], batches: Batches) -> None:
        """Without this a job that runs for months fills the disk. The newest is still written."""
        for log in logs[:-1]:
            log.unlink(missing_ok=True)
        gone = [name for name in batches.read if not (self._folder / name).exists()]
        if gone:
            for name in gone:
                del batches.read[name]
            write_private(self._state, batches.model_dump_json())


def _number(path: Path) -> int:
    found = re.search(r"\d+", path.name)
    return int(found[0]) if found else 0
