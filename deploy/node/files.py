"""The node's working folder, as far as it may be reached from outside."""

from __future__ import annotations

import os
from io import BufferedIOBase
from pathlib import Path

from spotweave.deploy.node.api import RefusalError
from spotweave.deploy.node.config import STATE_FOLDER
from spotweave.files import replacing

_PIECE = 1 << 20


def inside(workdir: Path, path: str) -> Path:
    """The file that a relative path names. Raises RefusalError if that is elsewhere, or the agent's own."""
    parts = path.split("/")
    if any(part in ("", ".", "..") or "\0" in part or len(part) > 255 for part in parts) or len(parts) > 32:
        raise RefusalError(
            400, f"path {path[:100]!r}: expected names separated by single slashes, without . and .."
        )
    if parts[0] == STATE_FOLDER:
        raise RefusalError(400, f"{STATE_FOLDER} belongs to the agent")
    root = workdir.resolve()
    place = root.joinpath(*parts)
    if not place.resolve().is_relative_to(root):
        raise RefusalError(400, f"path {path[:100]!r} follows a link out of the working folder")
    return place


def receive(place: Path, body: BufferedIOBase, length: int) -> None:
    """Write a body to a file of mode 0600, whole or not at all. Raises EOFError, OSError."""
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with replacing(place, mode=0o600) as temporary, temporary.open("wb") as file:
        left = length
        while left:
            piece = body.read(min(left, _PIECE))
            if not piece:
                raise EOFError
            file.write(piece)
            left -= len(piece)


# What the processes of a node print: a file each, as long as it may become and no longer.

MOST_LOG_BYTES = 1 << 26  # on the disk. What is longer is shortened to its end.
_TAIL_BYTES = 1 << 18


class Logs:
    """A folder with one file for each process.

    Processes write into their files themselves, and so need no agent to go on. Files are looked at now and
    then, and may be longer for a moment.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, exist_ok=True)

    def path(self, process_id: str) -> Path:
        """Path of a process's output."""
        return self._folder / f"{process_id}.log"

    def open(self, process_id: str) -> int:
        """A file descriptor that appends. Raises OSError."""
        return os.open(
            self.path(process_id),
            os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW,
            0o600,
        )

    def shorten(self, process_id: str) -> bool:
        """Keep only the end of what is too long, with a line that says so. Returns whether it was.

        What is printed in this very moment may be lost.
        """
        try:
            handle = os.open(self.path(process_id), os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return False
        try:
            about = os.fstat(handle)
            # Not its length: who opens it again without appending leaves a hole after it was shortened.
            if about.st_blocks * 512 <= MOST_LOG_BYTES:
                return False
            tail = os.pread(handle, _TAIL_BYTES, max(0, about.st_size - _TAIL_BYTES))
            os.ftruncate(handle, 0)
            note = f"[the node agent dropped {about.st_size - len(tail)} bytes of output here]\n"
            os.write(handle, note.encode() + tail)
            return True
        finally:
            os.close(handle)
