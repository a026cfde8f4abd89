"""The node's working folder, as far as it may be reached from outside."""

from __future__ import annotations

from io import BufferedIOBase
from pathlib import Path

from deploy.node.config import STATE_FOLDER
from spotweave.files import replacing

_PIECE = 1 << 20


class PathError(ValueError):
    """The path leads out of the working folder, or into the agent's own; one line."""


def inside(workdir: Path, path: str) -> Path:
    """The file that a relative path names.

    Raises:
        PathError: if it is absolute, climbs, follows a link out of the folder or is the agent's own.
    """
    parts = path.split("/")
    if any(part in ("", ".", "..") or "\0" in part or len(part) > 255 for part in parts) or len(parts) > 32:
        raise PathError(f"path {path[:100]!r}: expected names separated by single slashes, without . and ..")
    if parts[0] == STATE_FOLDER:
        raise PathError(f"{STATE_FOLDER} belongs to the agent")
    root = workdir.resolve()
    place = root.joinpath(*parts)
    if not place.resolve().is_relative_to(root):
        raise PathError(f"path {path[:100]!r} follows a link out of the working folder")
    return place


def receive(place: Path, body: BufferedIOBase, length: int) -> None:
    """Write a request's body to a file of mode 0600, whole or not at all.

    Raises:
        EOFError: if the body ends early.
        OSError: if it cannot be written.
    """
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with replacing(place, mode=0o600) as temporary, temporary.open("wb") as file:
        left = length
        while left:
            piece = body.read(min(left, _PIECE))
            if not piece:
                raise EOFError
            file.write(piece)
            left -= len(piece)
