"""Removes the folders of jobs that ended long ago, next to the scheduler's loop: no pass waits for a disk."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path

import structlog

from spotweave.deploy.model.clock import Clock
from spotweave.deploy.store.jobs import FOLDERS_DAYS
from spotweave.deploy.store.store import Store

_EVERY_S = 60.0
_MOST = 20  # folders of one round
_WITHIN_S = 600.0
_REMOVED = ".removed-"
_DAY_S = 86_400.0
log = structlog.get_logger("service")


class Pruning:
    """A thread that removes little at a time."""

    def __init__(self, store: Store, jobs: Path, clock: Clock) -> None:
        self._store, self._jobs, self._clock = store, jobs, clock
        self._stuck: set[str] = set()
        """Jobs whose folders could not be removed: they are tried again after the next start."""
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin; `close` ends it."""
        self._thread = threading.Thread(target=self._run, name="pruning", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End after the folder that is being removed just now."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()

    def prune(self) -> int:
        """One round. Returns how many folders are gone. Raises StoreError if the store cannot be used."""
        for left in sorted(self._jobs.glob(f"{_REMOVED}*"))[:_MOST]:
            self._remove(left)
        gone = 0
        before_s = self._clock.now() - FOLDERS_DAYS * _DAY_S
        due = self._store.folders.due(before_s, _MOST + len(self._stuck))
        for job_id in [one for one in due if one not in self._stuck][:_MOST]:
            if self._closed.is_set():
                break
            if self._take_away(job_id):
                with self._store.transaction():
                    self._store.folders.removed(job_id)
                gone += 1
            else:
                self._stuck.add(job_id)
        return gone

    def _take_away(self, job_id: str) -> bool:
        """Remove a job's folder. Returns whether it is gone."""
        away = self._jobs / f"{_REMOVED}{job_id}"
        try:
            # Under this name nothing finds it half removed.
            (self._jobs / job_id).rename(away)
        except FileNotFoundError:
            return not away.exists()
        except OSError as error:
            log.warning("a job's folder cannot be removed", job_id=job_id, error=error.strerror)
            return False
        return self._remove(away)

    def _remove(self, folder: Path) -> bool:
        """Remove what a job's program left: any depth, any permissions, and links but not what they name."""
        if folder.is_symlink():
            folder.unlink()
            return True
        for command in (["chmod", "-R", "u+rwX"], ["rm", "-rf", "--one-file-system"]):
            try:
                done = subprocess.run(
                    [*command, "--", str(folder)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    timeout=_WITHIN_S,
                    check=False,
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                log.warning("a job's folder cannot be removed", folder=folder.name, error=str(error)[:200])
                return False
        if done.returncode:
            told = done.stderr.decode(errors="replace")[:200]
            log.warning("a job's folder cannot be removed", folder=folder.name, error=told)
        return not done.returncode

    def _run(self) -> None:
        while not self._closed.wait(_EVERY_S):
            try:
                self.prune()
            except Exception:
                # Whatever it was, the next round goes on.
                log.exception("folders of jobs could not be removed")
