"""A job's own folder as the scheduler reads and writes it: the user's programs write there too.

What is found there may be anything: a link to the scheduler's own files, a pipe that nobody writes to, a file
of any size. Nothing here follows a link, waits for a writer or reads more than it was told to. What is put
there belongs to the user whom the folder belongs to, where the scheduler may say so.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import islice
from pathlib import Path

from spotweave.deploy.model.tasks import Assignment
from spotweave.deploy.runners.base import Printed, RunnerError
from spotweave.deploy.security.untrusted import UnsafePathError, enter, open_beneath, parent_of, part
from spotweave.files import read_at_most

_CHUNK_BYTES = 1 << 20


class PoisonError(ValueError):
    """What the job's own programs left in its folder cannot be used; one line."""


class JobFolder:
    """The folder of one job; what leads to it is the scheduler's, what is in it is not.

    Every method raises PoisonError where something that only the job's programs can have put there is in the
    way, and OSError where the machine fails.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, name: str, most_bytes: int) -> bytes | None:
        """A regular file ("flower/status.json"), whole; None if there is none. Larger ones are poison."""
        try:
            with _judged(name):
                handle = open_beneath(self.path, name, os.O_RDONLY)
        except FileNotFoundError:
            return None
        with os.fdopen(handle, "rb") as file:
            size = os.fstat(handle).st_size
            # It may grow while it is read.
            if size > most_bytes or len(content := read_at_most(file.read, most_bytes + 1)) > most_bytes:
                raise PoisonError(f"{name} is larger than {most_bytes / 2**20:g} MiB")
        return content

    def names(self, folder: str, most: int) -> list[str]:
        """What is in a folder ("flower/checkpoints"), in no order; nothing if there is none.

        More is poison.
        """
        try:
            with _judged(folder), self._parent(f"{folder}/any") as (handle, _), os.scandir(handle) as entries:
                found = [entry.name for entry in islice(entries, most + 1)]
        except FileNotFoundError:
            return []
        if len(found) > most:
            raise PoisonError(f"{folder} holds more than {most} files")
        return found

    def make(self, name: str) -> None:
        """A folder, if there is none."""
        with _judged(name), self._parent(f"{name}/any", make=True):
            pass

    def rename(self, name: str, to: str) -> None:
        """Give a file or folder another name, in place of a file that has it. Raises FileNotFoundError."""
        with _judged(name), self._parent(name) as (here, last), self._parent(to, make=True) as (there, new):
            os.rename(last, new, src_dir_fd=here, dst_dir_fd=there)

    def write(self, name: str, content: bytes) -> None:
        """Put a file (mode 0600) there, whole or not at all, in place of what has its name."""
        with self._new(name) as handle, os.fdopen(handle, "wb", closefd=False) as file:
            file.write(content)
            file.flush()
            os.fsync(handle)

    def copy_tail(self, source: Path, name: str, most_bytes: int) -> None:
        """Put the end of a file of the scheduler's there."""
        with source.open("rb") as file, self._new(name) as handle:
            left = min(most_bytes, file.seek(0, os.SEEK_END))
            file.seek(-left, os.SEEK_END)
            # It may still be written to.
            while left and (piece := file.read(min(left, _CHUNK_BYTES))):
                left -= len(piece)
                while piece:
                    piece = piece[os.write(handle, piece) :]

    @contextmanager
    def _new(self, name: str) -> Iterator[int]:
        """A file under another name that gets this one if all goes well."""
        with _judged(name), self._parent(name, make=True) as (folder, last):
            part = f".{last}.{secrets.token_hex(8)}"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            handle = os.open(part, flags, 0o600, dir_fd=folder)
            try:
                _give(handle, folder)
                yield handle
                os.replace(part, last, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                os.unlink(part, dir_fd=folder)
                raise
            finally:
                os.close(handle)

    def _parent(self, name: str, *, make: bool = False) -> AbstractContextManager[tuple[int, str]]:
        return parent_of(self.path, name, _enter_or_make if make else enter)


def log_name(of: str, attempt: int) -> str:
    """What an attempt prints, below its job's folder."""
    return f"logs/{of}-{attempt}.log"


def kept_log(assignment: Assignment, name: str, offset: int, most_bytes: int) -> Printed:
    """Part of a log in the job's folder, to which its programs can write. See `Runner.log`."""
    try:
        return Printed(*part(Path(assignment.workdir), name, offset, most_bytes))
    except FileNotFoundError:
        if Path(assignment.workdir).is_dir():
            return Printed(b"", 0)
        raise RunnerError("its files are not kept any more") from None
    except OSError as error:
        raise RunnerError(f"{name} cannot be read: the job has put something else there") from error


def _enter_or_make(name: str, folder: int) -> int:
    try:
        os.mkdir(name, dir_fd=folder)
    except FileExistsError:
        return enter(name, folder)
    made = enter(name, folder)
    _give(made, folder)
    return made


def _give(handle: int, folder: int) -> None:
    """To the owner of the folder that it is in."""
    owner = os.fstat(folder)
    if os.geteuid() == 0 and owner.st_uid != 0:
        os.fchown(handle, owner.st_uid, owner.st_gid)


@contextmanager
def _judged(name: str) -> Iterator[None]:
    """An error that the job's programs caused is a PoisonError."""
    try:
        yield
    except UnsafePathError as error:
        raise PoisonError(f"{name} is not a file of one name") from error
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENOTEMPTY, errno.ENXIO):
            raise PoisonError(f"{name} is a link, or something else than a file in folders") from error
        if error.errno in (errno.EACCES, errno.EPERM):
            raise PoisonError(f"{name} may not be read") from error
        raise
