"""Moving a file to another cluster: checksummed, whole or not at all, resumed after a kill."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from deploy.runners.base import RunnerError
from deploy.runners.jobfolder import JobFolder
from deploy.runners.workflow.digests import Digest, Part, opened, part_of

_CHUNK_BYTES = 1 << 20
_TRIES = 2
"""A copy whose checksum is wrong is made again, once: then what is copied is not what was written."""


class Mover:
    """Copies files into a job's folder.

    Args:
        folder: of the job, to which its own programs may write.
        going: False as soon as nobody wants the copy any more.

    Attributes:
        moved_bytes: that were read from elsewhere.
    """

    def __init__(self, folder: JobFolder, going: Callable[[], bool]) -> None:
        self._folder = folder
        self._going = going
        self.moved_bytes = 0

    def bring(self, root: Path, source: str, target: str, digest: Digest) -> None:
        """Have a file, which may be a folder, in the job's folder as it was written; what is there is kept.

        Args:
            root: folder where it lies.
            source: its path below that.
            target: its path below the job's folder.
            digest: of what was written.

        Raises:
            RunnerError: if it is not what was written any more, or nobody wants it.
            PoisonError: if the job's programs have put something else in the way.
            OSError: if the disk fails.
        """
        for name, part in digest.items():
            there = f"{target}/{name}".rstrip("/")
            if not self._holds(there, part):
                self._copy(root, f"{source}/{name}".rstrip("/"), there, part)

    def _holds(self, name: str, part: Part) -> bool:
        try:
            return part_of(self._folder.path, name) == part
        except FileNotFoundError:
            return False

    def _copy(self, root: Path, source: str, target: str, part: Part) -> None:
        # Under the name of its content: a file that is written anew is never continued with another one.
        partial = f"workspace/moving/{part.sha256}.{hashlib.sha256(target.encode()).hexdigest()[:16]}"
        self._folder.make(partial.rpartition("/")[0])
        for _ in range(_TRIES):
            if self._append(root, source, partial, part):
                self._folder.rename(partial, target)
                return
        raise RunnerError(f"{source} is not what was written: its SHA-256 is not {part.sha256[:12]}...")

    def _append(self, root: Path, source: str, partial: str, part: Part) -> bool:
        """Go on where an earlier copy ended. Returns whether the whole is what was written."""
        digest = hashlib.sha256()
        with (
            opened(root, source) as file,
            opened(self._folder.path, partial, os.O_RDWR | os.O_CREAT) as copy,
        ):
            while chunk := copy.read(_CHUNK_BYTES):
                digest.update(chunk)
            file.seek(copy.tell())
            while chunk := file.read(_CHUNK_BYTES):
                if not self._going():
                    raise RunnerError("its files are not wanted any more")
                digest.update(chunk)
                copy.write(chunk)
                self.moved_bytes += len(chunk)
            copy.flush()
            os.fsync(copy.fileno())
            good = copy.tell() == part.size and digest.hexdigest() == part.sha256
            if not good:
                copy.truncate(0)
        return good
