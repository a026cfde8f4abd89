"""Files in folders that a job's code can write to: no link of its making leads anywhere else."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from spotweave.files import read_at_most


class UnsafePathError(OSError):
    """A pipe, a device or a file of several names where a plain file was expected; one line."""


def open_beneath(folder: Path, path: str, flags: int) -> int:
    """Open a plain file below a folder, without following any link on the way; closed on exec.

    The folder is trusted, up to and with its own name; the path is relative, without "..". Raises
    UnsafePathError if it is no plain file, or one of several names; OSError if it cannot be opened, or
    something on the way is a link.
    """
    with parent_of(folder, path) as (at, name):
        return _open_plain(name, flags, at, folder / path)


def anonymous_file(content: str) -> int:
    """A file descriptor, closed on exec, from which a new process can read `content`; no disk holds it."""
    handle = os.memfd_create("given", os.MFD_CLOEXEC)
    with open(handle, "w", encoding="utf-8", errors="surrogateescape", closefd=False) as file:
        file.write(content)
    os.lseek(handle, 0, os.SEEK_SET)
    return handle


def unlink_beneath(folder: Path, path: str) -> None:
    """Remove a file, if it is there, without following any link on the way. Raises OSError."""
    with parent_of(folder, path) as (at, name), suppress(FileNotFoundError):
        os.unlink(name, dir_fd=at)


def enter(name: str, at: int) -> int:
    """Open a folder that is in an open one. Raises OSError if it is a link, or no folder."""
    return _open(name, os.O_RDONLY | os.O_DIRECTORY, at)


@contextmanager
def parent_of(folder: Path, path: str, way: Callable[[str, int], int] = enter) -> Iterator[tuple[int, str]]:
    """An open folder and the name in it of a path below a trusted folder; each on the way is opened so."""
    *folders, name = Path(path).parts
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in folders:
            below = way(part, at)
            os.close(at)
            at = below
        yield at, name
    finally:
        os.close(at)


def _open(name: str, flags: int, at: int) -> int:
    return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=at)


def _open_plain(name: str, flags: int, at: int, shown: Path) -> int:
    # A pipe without a writer would be waited for.
    handle = _open(name, flags | os.O_NONBLOCK, at)
    found = os.fstat(handle)
    # A second name may be that of somebody else's file.
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
        os.close(handle)
        raise UnsafePathError(f"{shown} is not a plain file")
    return handle


def copy_tree(folder: Path, path: str, to: Path, most_bytes: int, most_entries: int) -> None:
    """Copy a folder of plain files that is below another one, which is trusted up to and with its own name.

    Raises UnsafePathError: at a link, a pipe, a device or a file of several names, or where there is too
    much; OSError if something cannot be read or written.
    """
    if os.path.isabs(path) or ".." in Path(path).parts:
        raise UnsafePathError(f"{path} leads elsewhere")
    to.mkdir(mode=0o700, parents=True)
    left, entries = most_bytes, 0
    try:
        with parent_of(folder, f"{path}/any") as (top, _):
            for place, folders, files, at in os.fwalk(".", dir_fd=top, follow_symlinks=False):
                entries += len(folders) + len(files)
                if entries > most_entries:
                    raise UnsafePathError(f"it has more than {most_entries} files")
                for name in folders:
                    if not stat.S_ISDIR(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
                        raise UnsafePathError(f"{Path(place, name)} is a link")
                    (to / place / name).mkdir(mode=0o700)
                for name in files:
                    content = _plain(name, at, Path(place, name), left)
                    left -= len(content)
                    (to / place / name).write_bytes(content)
    except RecursionError as error:
        raise UnsafePathError("its folders are too deep") from error
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENAMETOOLONG):
            raise UnsafePathError("a link is in the way") from error
        raise


def _plain(name: str, at: int, shown: Path, most_bytes: int) -> bytes:
    try:
        handle = _open_plain(name, os.O_RDONLY, at, shown)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise UnsafePathError(f"{shown} is a link, or no file") from error
        raise
    with os.fdopen(handle, "rb") as file:
        content = read_at_most(file.read, most_bytes + 1)
    if len(content) > most_bytes:
        raise UnsafePathError("its files are too large together")
    return content


def part(folder: Path, path: str, offset: int, most_bytes: int) -> tuple[bytes, int]:
    """Part of a file below a folder.

    A negative offset counts from the end; beyond the end there is nothing. The folder is trusted, as in
    `open_beneath`. Returns the bytes, and the offset of the byte after them. Raises OSError: as
    `open_beneath`.
    """
    handle = open_beneath(folder, path, os.O_RDONLY)
    with os.fdopen(handle, "rb") as file:
        size = os.fstat(handle).st_size
        begin = min(offset, size) if offset >= 0 else max(0, size + offset)
        file.seek(begin)
        content = file.read(most_bytes)
    return content, begin + len(content)


def tail(folder: Path, path: str, size: int = 1 << 18) -> str:
    """The end of a text file below a folder; "" if there is none, or none that may be read."""
    try:
        return part(folder, path, -size, size)[0].decode(errors="replace")
    except OSError:
        return ""


def plain_files(folder: Path, most_entries: int) -> Iterator[tuple[str, int]]:
    """Path and size in bytes of every plain file below a folder, which is trusted up to its own name.

    Left out are links, pipes, files of several names, folders that may not be read or are deeper than
    `MOST_PARTS`, and names that are not plain (`is_plain_path`). Raises UnsafePathError where there are more
    than `most_entries` names; OSError if the folder itself cannot be read.
    """
    entries, waiting = 0, ["."]
    while waiting:
        at = waiting.pop()
        try:
            # Unlike os.fwalk it holds one descriptor however deep the folders are.
            with parent_of(folder, f"{at}/any") as (handle, _), os.scandir(handle) as found:
                for entry in found:
                    entries += 1
                    if entries > most_entries:
                        raise UnsafePathError(f"there are more than {most_entries} files")
                    path = entry.name if at == "." else f"{at}/{entry.name}"
                    if not is_plain_path(path):
                        continue
                    about = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(about.st_mode):
                        waiting.append(path)
                    elif stat.S_ISREG(about.st_mode) and about.st_nlink == 1:
                        yield path, about.st_size
        except UnsafePathError:
            raise
        except OSError:
            if at == ".":
                raise
            # It was changed or made unreadable meanwhile.


MOST_PARTS = 32  # most folders of a path, its file's name included
_MOST_NAME_BYTES = 255


def is_plain_path(path: str) -> bool:
    """Whether a path of a stranger is relative, leads downwards only, and can be shown as it is."""
    parts = path.split("/")
    return len(parts) <= MOST_PARTS and all(
        part not in ("", ".", "..")
        and part.isprintable()
        and "\\" not in part
        and len(part.encode()) <= _MOST_NAME_BYTES
        for part in parts
    )


def by_coreutils(program: str, *words: str | Path) -> None:
    """Run `rm` or `chown`, which handle any depth of folders; shutil and os.fwalk do not. Raises OSError."""
    done = subprocess.run([f"/bin/{program}", *words], env={}, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"{program}: {' '.join(done.stderr.split())[:300]}")


def remove_tree(folder: Path) -> None:
    """Remove a folder with all that is in it, also what its writer made unreadable. Raises OSError.

    Nothing may write to it meanwhile.
    """
    if folder.is_symlink():
        folder.unlink()
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except RecursionError:  # about a thousand nested folders
        by_coreutils("rm", "-rf", folder)
    except PermissionError:
        os.chmod(folder, 0o700)
        for at, names, _ in os.walk(folder):
            for name in names:
                if not os.path.islink(path := os.path.join(at, name)):
                    os.chmod(path, 0o700)
        shutil.rmtree(folder)


def size_bytes(folder: Path, most: int, most_entries: int) -> int:
    """What a folder takes on the disk, other file systems and links not followed.

    Returns at most a bit more than `most`: then, or after `most_entries` names, counting stops, and the
    latter counts as too much as well. So do folders that lie deeper than a path may be long.
    """
    total, entries, waiting = 0, 0, [str(folder)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as found:
                for entry in found:
                    entries += 1
                    try:
                        total += entry.stat(follow_symlinks=False).st_blocks * 512
                        if entry.is_dir(follow_symlinks=False):
                            waiting.append(entry.path)
                    except OSError as error:
                        if error.errno == errno.ENAMETOOLONG:
                            return most + 1
                        continue
                    if total > most or entries > most_entries:
                        return most + 1
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                return most + 1
    return total


def give(folder: Path, uid: int, gid: int) -> None:
    """Let a folder, with all that is in it, belong to someone; links are not followed. Raises OSError."""
    # os.fwalk keeps a descriptor per level, and a job may nest folders deeper than that allows.
    by_coreutils("chown", "-RhP", f"{uid}:{gid}", folder)
