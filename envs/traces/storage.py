"""Reads and writes the files of a trace: strict JSON and CSV in, all or nothing out."""

from __future__ import annotations

import csv
import gzip
import json
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from spotweave.documents import DocumentError, checked
from spotweave.envs.simulation.world import WorldError
from spotweave.files import read_at_most, replacing

M = TypeVar("M", bound=BaseModel)


class TraceError(WorldError):
    """A mistake in recorded data that its user can mend; the message is one line."""


MOST_BYTES = 1 << 30


def read_text(path: Path) -> str:
    """A UTF-8 file as text, which may be packed by gzip.

    Raises:
        TraceError: if it cannot be read, is not text, is empty, or unpacks to more than 1 GiB.
    """
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            content = read_at_most((gzip.GzipFile(fileobj=file) if packed else file).read, MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise TraceError(f"{path} has more than {MOST_BYTES >> 30} GiB: cut it")
        text = content.decode("utf-8-sig")
    except (OSError, EOFError, zlib.error) as error:
        raise TraceError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    except UnicodeDecodeError as error:
        raise TraceError(f"{path} is not UTF-8 text (byte {error.start}): is it compressed?") from error
    if not text.strip():
        raise TraceError(f"{path} is empty")
    return text


def read_json(path: Path) -> Any:
    """A JSON file. Raises TraceError if it cannot be read or is not JSON."""
    try:
        return json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise TraceError(f"{path} is not JSON: line {error.lineno}: {error.msg}") from error


def conform(path: Path, model: type[M], document: object) -> M:
    """What the parsed document of a file holds. Raises TraceError if it is not as the model says."""
    try:
        return checked(model, document)
    except DocumentError as error:
        raise TraceError(f"{path}: {error}") from error


def read_csv(
    path: Path, required: Iterable[str], optional: Iterable[str]
) -> list[tuple[int, dict[str, str]]]:
    """The rows of a CSV file with a header, each with its line number in the file.

    Raises:
        TraceError: for an empty file, a missing or unknown column, or a row of another width.
    """
    reader = csv.reader(read_text(path).splitlines())
    try:
        lines = [(reader.line_num, cells) for cells in reader]
    except csv.Error as error:
        raise TraceError(f"{path} line {reader.line_num}: {error}") from error
    header = [name.strip() for name in lines[0][1]]
    required, known = list(required), [*required, *optional]
    for name in required:
        if name not in header:
            raise TraceError(
                f"{path} has no column {name!r}: expected {','.join(known)}, got {','.join(header)}"
            )
    for name in header:
        if name not in known or header.count(name) > 1:
            what = "twice the" if header.count(name) > 1 else "an unknown"
            raise TraceError(f"{path} has {what} column {name!r}: expected {','.join(known)}")
    rows = []
    for number, cells in lines[1:]:
        if not cells:
            continue
        if len(cells) != len(header):
            raise TraceError(f"{path} line {number}: {len(cells)} values for {len(header)} columns")
        rows.append((number, {name: cell.strip() for name, cell in zip(header, cells, strict=True)}))
    if not rows:
        raise TraceError(f"{path} is empty: it has a header and no row")
    return rows


def write_directory(out: Path, files: Mapping[str, str]) -> None:
    """Create folder `out` with these files (names may hold "/"), or leave nothing behind.

    Raises:
        TraceError: if `out` exists and is not an empty folder, or cannot be written.
    """
    staged: Path | None = None
    try:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise TraceError(f"{out} exists already: choose another --out or remove it")
        out.parent.mkdir(parents=True, exist_ok=True)
        staged = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
        for name, text in files.items():
            path = staged / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        staged.chmod(0o755)
        staged.replace(out)
    except OSError as error:
        raise TraceError(f"{out} cannot be written: {error.strerror or error}") from error
    finally:
        if staged is not None and staged.exists():
            shutil.rmtree(staged, ignore_errors=True)


def write_file(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a file that takes the place of `path`; on an error `path` stays as it was.

    Raises:
        TraceError: if it cannot be written.
    """
    try:
        with replacing(path) as temporary:
            write(temporary)
    except OSError as error:
        raise TraceError(f"{path} cannot be written: {error.strerror or error}") from error
