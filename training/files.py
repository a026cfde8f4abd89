"""Results in files that are written whole or not at all; where that fails, one line says so."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from spotweave import files


class WriteError(ValueError):
    """A file could not be written; the message is one line that says which, why and what to do."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """As `spotweave.files.replacing`, told in one line where it fails. Raises WriteError."""
    try:
        with files.replacing(path) as temporary:
            yield temporary
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise WriteError(
            f"cannot write {path}: {reason}. Nothing was lost there; free some space or choose another "
            "directory"
        ) from error


def write_bytes(path: Path, content: bytes) -> None:
    """Write a binary file atomically. Raises WriteError."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: Path, content: str) -> None:
    """Write a UTF-8 text file atomically. Raises WriteError."""
    write_bytes(path, content.encode())


def write_json(path: Path, content: Mapping[str, object]) -> None:
    """Write an indented JSON file atomically. Raises WriteError, and ValueError for NaN or infinity."""
    write_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a CSV file atomically. Floats are written so that they read back exactly. Raises WriteError."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    write_text(path, buffer.getvalue())


def file_hash(path: Path) -> str:
    """SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


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
