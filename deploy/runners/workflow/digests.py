"""What files hold, by their checksums: found where they were written, compared wherever they are read."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Mapping
from io import BufferedRandom
from itertools import islice
from pathlib import Path
from typing import cast

from pydantic import BaseModel, ConfigDict

from deploy.runners.jobfolder import PoisonError
from deploy.security.untrusted import UnsafePathError, open_beneath

MOST_PARTS = 100_000
MOST_BYTES = 64 << 30
"""Largest file of a workflow; of a folder, all its files together."""


class Part(BaseModel):
    """One file on the disk."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    size: int  # in bytes
    sha256: str  # hexadecimal


Digest = Mapping[str, Part]
"""By path below the file of a workflow, which may be a folder; "" is the file itself."""


def digest_of(root: Path, name: str) -> dict[str, Part]:
    """The digest of a file or folder below a folder to which others may write; no link is followed.

    Raises:
        FileNotFoundError: if it is not there.
        PoisonError: if it is, or holds, something else than files and folders, or too many or too much.
        OSError: if it cannot be read.
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
