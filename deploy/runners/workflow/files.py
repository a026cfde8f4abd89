"""What is known of a workflow's files: who has written them, where they are, and what they hold."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Mapping
from io import BufferedRandom
from itertools import islice
from pathlib import Path
from typing import cast

from pydantic import BaseModel, ConfigDict

from spotweave.deploy.model.jobs import TaskKey
from spotweave.deploy.model.tasks import Assignment
from spotweave.deploy.runners.base import RunnerError
from spotweave.deploy.runners.jobfolder import JobFolder, PoisonError
from spotweave.deploy.runners.workflow.application import kept_path, workflow, written_path
from spotweave.deploy.security.untrusted import UnsafePathError, open_beneath, remove_tree
from spotweave.deploy.statefile import StateFile

MOST_PARTS = 100_000
MOST_BYTES = 64 << 30  # largest file of a workflow; of a folder, all its files together


class Part(BaseModel):
    """One file on the disk."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    size: int  # in bytes
    sha256: str  # hexadecimal


Digest = Mapping[str, Part]
"""By path below the file of a workflow, which may be a folder; "" is the file itself."""


def digest_of(root: Path, name: str) -> dict[str, Part]:
    """The digest of a file or folder below a folder to which others may write; no link is followed.

    Raises FileNotFoundError; PoisonError if it is, or holds, something else than files and folders, or too
    many or too much; OSError if it cannot be read.
    """
    found: dict[str, Part] = {}
    left = MOST_BYTES
    for part in _parts(root, name):
        found[part] = part_of(root, f"{name}/{part}".rstrip("/"), left)
        left -= found[part].size
    return found


def part_of(root: Path, name: str, most_bytes: int = MOST_BYTES) -> Part:
    """The size and checksum of one file. Raises as `digest_of`."""
    with opened(root, name) as file:
        # A sparse file takes no disk space, but as long to read as a full one.
        if os.fstat(file.fileno()).st_size > most_bytes:
            raise PoisonError(
                f"{name} has more than {MOST_BYTES >> 30} GiB: write less, or to an object store"
            )
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return Part(size=file.tell(), sha256=digest)


def opened(root: Path, name: str, flags: int = os.O_RDONLY) -> BufferedRandom:
    """A plain file of one name; no link is followed.

    Raises PoisonError if something else is there, OSError.
    """
    try:
        handle = open_beneath(root, name, flags)
    except OSError as error:
        links = error.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENXIO, errno.EISDIR)
        if links or isinstance(error, UnsafePathError):
            raise PoisonError(f"{name} is a link, or something else than a file of one name") from error
        raise
    return cast(BufferedRandom, os.fdopen(handle, "rb" if flags == os.O_RDONLY else "r+b"))


def _parts(root: Path, name: str) -> list[str]:
    top = root / name
    if not stat.S_ISDIR(os.lstat(top).st_mode):
        return [""]
    found: list[str] = []
    # Names only: whoever opens one follows no link on the way.
    try:
        walked = list(islice(os.walk(top), MOST_PARTS))
    except RecursionError as error:
        raise PoisonError(f"{name} nests folders too deeply") from error
    for folder, folders, files in walked:
        linked = [one for one in folders if os.path.islink(os.path.join(folder, one))]
        found += [os.path.relpath(os.path.join(folder, one), top) for one in (*files, *linked)]
        if len(found) > MOST_PARTS:
            raise PoisonError(f"{name} holds more than {MOST_PARTS} files: write fewer, larger ones")
    return sorted(found)


# Moving a file to another cluster: checksummed, whole or not at all, resumed after a kill.

_CHUNK_BYTES = 1 << 20
_TRIES = 2  # a copy whose checksum is wrong is made again, once: then what is copied is not what was written


class Mover:
    """Copies files into a job's folder, to which its own programs may write, while `going()` holds."""

    def __init__(self, folder: JobFolder, going: Callable[[], bool]) -> None:
        self._folder, self._going = folder, going
        self.moved_bytes = 0  # that were read from elsewhere

    def bring(self, root: Path, source: str, target: str, digest: Digest) -> None:
        """Have a file, which may be a folder, in the job's folder as it was written; what is there is kept.

        Raises RunnerError if its content has changed since, or the copy is no longer needed; PoisonError if
        the job's programs have put something else in the way; OSError if the disk fails.
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
        with opened(root, source) as file, opened(self._folder.path, partial, os.O_RDWR | os.O_CREAT) as copy:
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


class Sealed(StateFile):
    """Record of the outputs of a step that has succeeded."""

    region: str  # of the cluster that has it
    attempt: int  # which wrote it
    files: dict[str, dict[str, Part]]  # digests by name


class Files:
    """The records are the scheduler's own: no program of a job can change them."""

    def __init__(self, folder: Path, data: Mapping[str, Path]) -> None:
        self._folder, self._data = folder, data

    def sealed(self, key: TaskKey) -> Sealed | None:
        """What a step wrote; None while it has not succeeded."""
        return Sealed.load_whole(self._record(key))

    def seal(self, assignment: Assignment, region: str) -> str:
        """Give what an attempt, which came to its end in a region, wrote its final place. Raises OSError.

        Returns why it has not succeeded all the same, in one line; "" if it has.
        """
        key, folder = assignment.key, JobFolder(Path(assignment.workdir))
        if self.sealed(key) is not None:
            return ""
        files: dict[str, dict[str, Part]] = {}
        for name in [file.name for file in workflow(assignment.spec).step(key.task).writes]:
            written = written_path(region, key.task, assignment.attempt, name)
            kept = kept_path(region, name)
            try:
                # An earlier try may have been killed after this.
                if (folder.path / written).exists() or not (folder.path / kept).exists():
                    folder.rename(written, kept)
                files[name] = digest_of(folder.path, kept)
            except FileNotFoundError:
                return f"step {key.task!r} ended well and did not write {name!r}: use {{{name}}} in its args"
            except PoisonError as error:
                return f"what step {key.task!r} wrote cannot be used: {error}"
        self._seal(self._record(key), Sealed(region=region, attempt=assignment.attempt, files=files))
        return ""

    def bring(self, assignment: Assignment, name: str, region: str, mover: Mover) -> None:
        """Have a file where a step reads it. Raises as `Mover.bring`."""
        work, job_id, target = workflow(assignment.spec), assignment.key.job_id, kept_path(region, name)
        writer = work.written_by().get(name)
        if writer is not None:
            sealed = self.sealed(TaskKey(job_id, writer))
            if sealed is None:
                raise RunnerError(f"what step {writer!r} wrote is not known any more: submit the job again")
            source = kept_path(sealed.region, name)
            mover.bring(Path(assignment.workdir), source, target, sealed.files[name])
            return
        file = next(one for one in work.files if one.name == name)
        if file.region is None or file.region == region:
            return  # It is read where it lies.
        root, record = self._data[file.region], self._folder / job_id / "inputs" / f"{name}.json"
        known = Sealed.load_whole(record)
        if known is None:
            known = Sealed(region=file.region, attempt=0, files={name: digest_of(root, file.path)})
            self._seal(record, known)
        mover.bring(root, file.path, target, known.files[name])

    def forget(self, job_id: str) -> None:
        """Remove the records of a job; its files stay in its folder. Raises OSError."""
        remove_tree(self._folder / job_id)

    @staticmethod
    def _seal(file: Path, sealed: Sealed) -> None:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        sealed.save(file)

    def _record(self, key: TaskKey) -> Path:
        return self._folder / key.job_id / f"{key.task}.json"
