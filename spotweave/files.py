"""Files written whole or not at all, and read within a bound."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_PIECE_BYTES = 1 << 20
_NAME_LIMIT = 100
"""Characters of the name that the temporary file repeats; names of files are limited to 255 bytes."""


@contextmanager
def replacing(path: Path, *, mode: int | None = None, overwrite: bool = True) -> Iterator[Path]:
    """A temporary file to be filled, which takes the place of `path` when the block ends.

    It is flushed to the disk before it is moved, and so is the folder's entry after. A crash, a full disk, an
    exception or Ctrl-C leaves what was at `path` as it was.

    Args:
        path: where the file shall appear; its folder must exist.
        mode: permissions; None: those of an ordinary new file.
        overwrite: False leaves a file that is already there; of several writers the first wins.

    Yields:
        An empty file in the same folder, with the same suffix.

    Raises:
        FileExistsError: if there is a file and `overwrite` is False.
        OSError: if it cannot be written.
    """
    handle, name = tempfile.mkstemp(
        prefix=f".{path.name[:_NAME_LIMIT]}.", suffix=path.suffix, dir=path.parent
    )
    temporary = Path(name)
    try:
        try:
            os.fchmod(handle, _default_mode() if mode is None else mode)
        finally:
            os.close(handle)
        yield temporary
        sync(temporary)
        if overwrite:
            os.replace(temporary, path)
        else:
            os.link(temporary, path)
        sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes, *, mode: int | None = None, overwrite: bool = True) -> None:
    """Write a file as `replacing` does. Raises OSError."""
    with replacing(path, mode=mode, overwrite=overwrite) as temporary:
        temporary.write_bytes(content)


def write_private(path: Path, content: str | bytes) -> None:
    """Write a file as `replacing` does, that only its owner may read. Raises OSError."""
    write_bytes(path, content.encode() if isinstance(content, str) else content, mode=0o600)


def read_at_most(read: Callable[[int], bytes], most_bytes: int) -> bytes:
    """Read the rest of a file, up to `most_bytes`, by its method `read`.

    In pieces, because `read(most_bytes)` allocates `most_bytes` however small the file is.
    """
    pieces: list[bytes] = []
    while most_bytes > 0 and (piece := read(min(most_bytes, _PIECE_BYTES))):
        pieces.append(piece)
        most_bytes -= len(piece)
    return b"".join(pieces)


def _default_mode() -> int:
    """The permissions an ordinary new file gets; those of mkstemp are private to the user."""
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def sync(path: Path) -> None:
    """Flush a file, or the entries of a folder, to the disk. Raises OSError."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
