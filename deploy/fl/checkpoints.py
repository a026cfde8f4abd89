"""Weights with the number of their round, kept so that a broken file is noticed and never chosen."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spotweave.files import write_private

_NAME = re.compile(r"round-([0-9]{6,9})\.npz")
_HASH_BYTES = 32


@dataclass(frozen=True)
class Checkpoint:
    """Aggregated weights.

    Attributes:
        round: how many rounds they come from.
        arrays: by name, in the model's order.
        source: who kept them: "server" or "client NAME".
        state: what else the server must know to go on from them; "": nothing.
    """

    round: int
    arrays: Mapping[str, NDArray[np.generic]]
    source: str = "server"
    state: str = ""


def encode(checkpoint: Checkpoint) -> bytes:
    """As bytes: SHA-256 of the rest, then a NumPy archive."""
    body = io.BytesIO()
    # Names of a model's arrays may not be keywords, so they are kept next to the arrays.
    content: dict[str, Any] = {
        f"array_{index}": array for index, array in enumerate(checkpoint.arrays.values())
    }
    content["names"] = np.array(list(checkpoint.arrays), dtype=np.str_)
    if checkpoint.state:
        content["state"] = np.array(checkpoint.state)
    np.savez(body, round=np.int64(checkpoint.round), **content)
    archive = body.getvalue()
    return hashlib.sha256(archive).digest() + archive


def is_whole(content: bytes) -> bool:
    """Whether these bytes are what `encode` gave, by their SHA-256."""
    return hashlib.sha256(content[_HASH_BYTES:]).digest() == content[:_HASH_BYTES]


def decode(content: bytes, source: str = "server") -> Checkpoint | None:
    """From bytes; None if they are not whole."""
    if not is_whole(content):
        return None
    with np.load(io.BytesIO(content[_HASH_BYTES:]), allow_pickle=False) as stored:
        names = [str(name) for name in stored["names"]]
        arrays = {name: stored[f"array_{index}"] for index, name in enumerate(names)}
        state = str(stored["state"]) if "state" in stored else ""
        return Checkpoint(int(stored["round"]), arrays, source, state)


def save(folder: Path, checkpoint: Checkpoint, keep: int = 2) -> None:
    """Keep a checkpoint, and the latest ones before it."""
    folder.mkdir(parents=True, exist_ok=True)
    write_private(folder / file_name(checkpoint.round), encode(checkpoint))
    for old in _files(folder)[keep:]:
        old.unlink(missing_ok=True)


def load(folder: Path, source: str = "server") -> Checkpoint | None:
    """The newest whole checkpoint of a folder; None if there is none."""
    for path in _files(folder):
        if (found := decode(path.read_bytes(), source)) is not None:
            return found
    return None


def file_name(number: int) -> str:
    """Of a round's checkpoint."""
    return f"round-{number:06d}.npz"


def round_of(name: str) -> int | None:
    """Whose checkpoint a file is; None if it is none."""
    found = _NAME.fullmatch(name)
    return int(found[1]) if found else None


def newest(candidates: Iterable[Checkpoint | None]) -> Checkpoint | None:
    """The one of the latest round; of equals the first."""
    found = [candidate for candidate in candidates if candidate is not None]
    return max(found, key=lambda checkpoint: checkpoint.round, default=None)


def _files(folder: Path) -> list[Path]:
    """Newest first."""
    return sorted(folder.glob("round-*.npz"), reverse=True)
