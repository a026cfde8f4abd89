"""Files that come with a job: names checked, written whole or not at all, never executed here."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from deploy.model.jobs import Flower, JobSpec
from deploy.model.spark import SparkProgram

MANIFEST = ".spotweave-upload.json"
"""Digests of the files as they were sent; runners may change the files themselves."""
_STAGED = ".incoming-"
_RESERVED = ("logs", "checkpoint", "flower", "workspace")
"""Folders of a job's folder that runners write to."""
_MAX_PARTS = 16
_MAX_PART_BYTES = 200


class UploadError(ValueError):
    """Files that cannot be taken; one line (HTTP 422)."""


def check_names(files: Mapping[str, str]) -> None:
    """Refuse names that would leave the job's folder, hide in it, or get in each other's way.

    Raises:
        UploadError: for the first of them.
    """
    for name in files:
        _check_name(name)
    folders = {parent.as_posix() for name in files for parent in PurePosixPath(name).parents}
    both = sorted(folders & set(files))
    if both:
        raise UploadError(f"{both[0]!r} is a file and a folder: give one of them another name")


def _check_name(name: str) -> None:
    parts = name.split("/")
    wrong = len(parts) > _MAX_PARTS or any(
        part in ("", ".", "..")
        or not part.isprintable()
        or "\\" in part
        or part != part.strip()
        or len(part.encode()) > _MAX_PART_BYTES
        for part in parts
    )
    if wrong:
        raise UploadError(
            f"a file is called {name[:100]!r}: expected a relative path such as jobs/count.py, of at most "
            f"{_MAX_PARTS} printable parts"
        )
    if parts[0] in _RESERVED or parts[0].startswith(".spotweave"):
        raise UploadError(
            f"a file is called {name[:100]!r}: {parts[0]} is a name that the service uses itself; rename it"
        )


def require_program(spec: JobSpec, files: Mapping[str, str]) -> None:
    """Refuse a job whose program is not among its files.

    Raises:
        UploadError: if it is missing.
    """
    if isinstance(spec.work, Flower):
        app = PurePosixPath(spec.work.app)
        wanted = (app / "pyproject.toml").as_posix()
        what = f"the Flower app {spec.work.app!r} needs {wanted!r}"
    elif spec.work.program is None:
        return
    else:
        wanted = spec.work.program
        what = f"the script {wanted!r} is missing"
    if wanted not in files:
        raise UploadError(f"{what}, and the job came with {_shown(files)}: send it as one of the files")
    for name in spec.work.named_files if isinstance(spec.work, SparkProgram) else ():
        if PurePosixPath(name).as_posix() not in files:
            raise UploadError(
                f"py_files or conf names {name!r}, and the job came with {_shown(files)}: "
                "send it as one of the files"
            )


def _shown(files: Mapping[str, str]) -> str:
    if not files:
        return "no files"
    names = sorted(files)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def size_of(files: Mapping[str, str]) -> int:
    """About how large files in base64 are, in bytes."""
    return sum(len(text) for text in files.values()) * 3 // 4


class Staged:
    """A job's folder under a name that no job has, until it is accepted."""

    def __init__(self, jobs: Path, job_id: str, files: Mapping[str, str]) -> None:
        """Write the files, through to the disk.

        Args:
            jobs: folder of all jobs' folders.
            job_id: whose they will be.
            files: base64 by checked name.

        Raises:
            UploadError: if one is not base64.
            OSError: if they cannot be written.
        """
        self._jobs = jobs
        self.folder = jobs / f"{_STAGED}{job_id}"
        self._final = jobs / job_id
        jobs.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder.mkdir(mode=0o700)
        self.size = 0
        """Of all files, in bytes."""
        try:
            self.digests = {name: self._write(name, text) for name, text in sorted(files.items())}
            _write(self.folder / MANIFEST, json.dumps(self.digests).encode())
            for folder, _, _ in os.walk(self.folder):
                _sync(Path(folder))
        except BaseException:
            self.discard()
            raise

    @property
    def workdir(self) -> str:
        """Where the folder will be."""
        return str(self._final.absolute())

    def accept(self) -> None:
        """Give the folder its final name."""
        self.folder.rename(self._final)
        _sync(self._jobs)

    def discard(self) -> None:
        """Remove it, accepted or not."""
        for folder in (self.folder, self._final):
            shutil.rmtree(folder, ignore_errors=True)

    def same_as(self, workdir: str) -> bool:
        """Whether another job's folder came with the same files."""
        try:
            found: object = json.loads((Path(workdir) / MANIFEST).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return False
        return found == self.digests

    def _write(self, name: str, text: str) -> str:
        try:
            content = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError) as error:
            raise UploadError(f"the content of {name!r} is not base64: encode it") from error
        place = self.folder / name
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(place, content)
        self.size += len(content)
        return hashlib.sha256(content).hexdigest()


def sweep(jobs: Path) -> int:
    """Remove what submissions left that ended half-way (by a crash). Returns how many."""
    left = sorted(jobs.glob(f"{_STAGED}*")) if jobs.is_dir() else []
    for folder in left:
        shutil.rmtree(folder, ignore_errors=True)
    return len(left)


def _write(path: Path, content: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
