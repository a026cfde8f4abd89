"""The steps of a workflow as Spark applications, and the files between them."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from io import BufferedRandom
from itertools import islice
from pathlib import Path
from typing import cast
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict

from spotweave.deploy.model.jobs import JobSpec, Profile, SparkBatch, TaskKey
from spotweave.deploy.model.tasks import Assignment
from spotweave.deploy.model.workflows import InputFile, Step, Workflow
from spotweave.deploy.runners.base import RunnerError
from spotweave.deploy.runners.jobfolder import JobFolder, PoisonError
from spotweave.deploy.runners.spark.driver import check_job
from spotweave.deploy.runners.spark.settings import SparkSettings
from spotweave.deploy.security.untrusted import UnsafePathError, open_beneath, remove_tree
from spotweave.deploy.statefile import StateFile

# What is known of a workflow's files: who has written them, where they are, and what they hold.


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


# A step as the Spark application that it is, and where its files are.


NAMED = re.compile(r"\{([a-z0-9-]+)\}")  # a file in an argument


def workflow(spec: JobSpec) -> Workflow:
    """The workflow of a job. Raises ValueError for another kind."""
    if isinstance(spec.work, Workflow):
        return spec.work
    raise ValueError(f"kind {spec.work.kind} is not a workflow")


def place(region: str) -> str:
    """The name of a region as that of a folder."""
    return f"at-{quote(region, safe='')}"


# The files of a job on the cluster of a region; paths are below the job's folder.


def kept_path(region: str, name: str) -> str:
    """Path of a complete file."""
    return f"workspace/{place(region)}/files/{name}"


def written_path(region: str, step: str, attempt: int, name: str) -> str:
    """Path of a file in one attempt at a step, which other attempts do not see."""
    return f"workspace/{place(region)}/attempts/{step}.{attempt}/{name}"


def application(spec: JobSpec, step: Step, files: Mapping[str, Path]) -> JobSpec:
    """The Spark job of a step; `files` says by name what stands for it in arguments."""

    def filled(word: str) -> str:
        return NAMED.sub(lambda found: str(files.get(found[1], found[0])), word)

    return JobSpec(
        name=spec.name,
        work=SparkBatch(
            script=step.script, args=tuple(map(filled, step.args)), conf=step.conf, py_files=step.py_files
        ),
        resources=spec.resources_of(step.name),
        env=spec.env,
    )


def assigned(assignment: Assignment, data: Mapping[str, Path]) -> Assignment:
    """The attempt at a step as one at the Spark job that it is; `data`: folders of clusters by region."""
    work, region = workflow(assignment.spec), assignment.nodes[0].region
    step, folder = work.step(assignment.key.task), Path(assignment.workdir).resolve()
    files = {name: folder / kept_path(region, name) for name in step.reads}
    for file in work.files:
        if file.name in files and file.region is None:
            files[file.name] = folder / file.path
        elif file.name in files and file.region == region:
            files[file.name] = data[region] / file.path
    for output in step.writes:
        files[output.name] = folder / written_path(region, step.name, assignment.attempt, output.name)
    return replace(assignment, spec=application(assignment.spec, step, files))


# Workflows that can never run, refused before anything is rented.

_OF_A_PROFILE = {"reference_speed", "sensitivity"}


def check(spec: JobSpec, folder: Path, data: Mapping[str, Path]) -> None:
    """Refuse a job that cannot run; `data`: clusters' folders, by region. Raises ValueError: one line."""
    work = workflow(spec)
    if spec.resources.instances != 1:
        raise ValueError(
            f"resources.instances is {spec.resources.instances}: leave it out, each step says its executors"
        )
    # What is set to its default says nothing.
    said = {name for name, value in spec.profile if value != getattr(Profile(), name)}
    for name in sorted(said - _OF_A_PROFILE):
        raise ValueError(f"profile.{name} says nothing of a workflow, whose files have sizes: leave it out")
    for file in work.files:
        _check_file(file, folder, data)
    known = {file.name for file in work.files} | set(work.written_by())
    for step in work.steps:
        try:
            check_job(application(spec, step, {}), folder)
        except ValueError as error:
            raise ValueError(f"step {step.name!r}: {error}") from error
        own = {*step.reads, *(file.name for file in step.writes)}
        for name in NAMED.findall(" ".join(step.args)):
            if name in known - own:
                raise ValueError(
                    f"step {step.name!r} names {{{name}}} in its arguments, and neither reads nor writes it: "
                    "name it under reads"
                )


def _check_file(file: InputFile, folder: Path, data: Mapping[str, Path]) -> None:
    root, where = folder, "next to the job file"
    if file.region is not None:
        if file.region not in data:
            known = f"of {', '.join(sorted(data))}" if data else "of no region"
            raise ValueError(
                f"file {file.name!r} is kept in {file.region}, and this deployment knows the data {known}: "
                "set runners.data"
            )
        root, where = data[file.region], f"in the data of {file.region}"
    found = (root / file.path).resolve()
    if Path(file.path).is_absolute() or not found.is_relative_to(root.resolve()):
        raise ValueError(f"file {file.name!r}: {file.path} leads elsewhere: give a path {where}")
    if not found.exists():
        raise ValueError(f"file {file.name!r}: there is no {file.path} {where}")


# How the runner of workflows works.


@dataclass(frozen=True)
class WorkflowSettings:
    """Settings of the runner."""

    # folder of the runner's own; made with mode 0700. The same folder finds the same clusters again.
    state: Path
    spark: SparkSettings  # of every cluster; each has a state folder of its own in `state` instead of that
    # by region: the folder in which its cluster keeps data, as this machine and its nodes see it
    data: Mapping[str, Path] = field(default_factory=dict)
