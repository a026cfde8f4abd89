"""Files that are written whole or not at all.

A result is written to a temporary file beside its place, flushed to the disk and moved over the old one in
one step. A crash, a full disk or Ctrl-C leaves the old file as it was.
"""

from __future__ import annotations

import csv
import io
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path


class WriteError(ValueError):
    """A file could not be written; the message is one line that says which, why and what to do."""


def _problem(path: Path, error: OSError) -> WriteError:
    reason = error.strerror or type(error).__name__
    return WriteError(
        f"cannot write {path}: {reason}. Nothing was lost there; free some space or choose another directory"
    )


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file, then move it to `path`.

    Args:
        path: where the file shall appear; its directory must exist.
        write: called with the temporary path (same directory, same suffix).

    Raises:
        WriteError: if the disk is full, the directory is missing or may not be written.
    """
    temporary: Path | None = None
    try:
        # No random name may be left behind, so the file is removed whatever happens, Ctrl-C included.
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=path.suffix, dir=path.parent)
        temporary = Path(name)
        mode = _new_file_mode()
        os.fchmod(handle, mode)
        os.close(handle)
        write(temporary)
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        os.replace(temporary, path)
        temporary = None
        _sync_directory(path.parent)
    except OSError as error:
        raise _problem(path, error) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _new_file_mode() -> int:
    """The permissions an ordinary new file gets (mkstemp's are private to the user)."""
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _sync_directory(directory: Path) -> None:
    """Make the move itself durable: it is an entry of the directory."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a binary file atomically. Raises WriteError."""
    write_atomically(path, lambda temporary: temporary.write_bytes(content))


def write_text(path: Path, content: str) -> None:
    """Write a UTF-8 text file atomically. Raises WriteError."""
    write_bytes(path, content.encode())


def write_json(path: Path, content: Mapping[str, object]) -> None:
    """Write an indented JSON file atomically.

    Raises:
        WriteError: if it cannot be written.
        ValueError: if it holds NaN or infinity, which JSON does not know.
    """
    write_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a CSV file atomically. Floats are written so that they read back exactly. Raises WriteError."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    write_text(path, buffer.getvalue())


def prepare_directory(path: Path) -> Path:
    """Create a directory for results and prove that it can be written, before any long work begins.

    Raises:
        WriteError: if it cannot be created or written.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path, prefix=".probe."):
            pass
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise WriteError(
            f"cannot write into {path}: {reason}. Give a directory that you may write, e.g. out=results"
        ) from error
    return path
