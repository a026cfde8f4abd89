"""What was played is kept by the version of the code and its settings, so that a killed command goes on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from training.files import prepare_directory, write_json

ROOT = Path(__file__).resolve().parents[2]
SOURCES = (
    "envs",
    "agents",
    "training/checkpoint.py",
    "training/evaluation/clairvoyant.py",
    "training/evaluation/episodes.py",
    "training/federated/multi_fedls_tables.py",
    "training/studies/federated/cheapest.py",
    "training/studies/federated/playing.py",
)
"""What a played episode depends on besides its scenario, its policy and its number."""
SUFFIXES = (".py", ".json", ".parquet")


def code_hash(root: Path = ROOT) -> str:
    """SHA-256 of every source and data file that decides how an episode goes."""
    digest = hashlib.sha256()
    for name in SOURCES:
        path = root / name
        files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.suffix in SUFFIXES)
        if not files:
            raise FileNotFoundError(f"{path} does not exist: the list of sources is not up to date")
        for file in files:
            digest.update(f"{file.relative_to(root)}\n".encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()


class Keeper:
    """Results by (version of the code, what they depend on).

    Args:
        directory: where they are kept; it may be deleted at any time.
        code: the version; `code_hash()` if left out.
    """

    def __init__(self, directory: Path, code: str | None = None) -> None:
        self.directory = prepare_directory(directory)
        self.code = code_hash() if code is None else code

    def keep(self, identity: Mapping[str, Any], make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What `make` gives, made now or before; `identity` is everything else that it depends on."""
        key = hashlib.sha256(json.dumps({"code": self.code, **identity}, sort_keys=True).encode()).hexdigest()
        file = self.directory / f"{key}.json"
        if file.is_file():
            held: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))["result"]
            return held
        result = make()
        write_json(file, {"identity": dict(identity), "result": result})
        return result
