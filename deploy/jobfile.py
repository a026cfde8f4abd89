"""Job files: what `spotweave submit` reads, and how their files get into the job's own folder."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from deploy.model.jobs import Flower, JobSpec

MAX_BYTES = 256 * 1024 * 1024
"""Of all files of a job together."""


class JobFileError(ValueError):
    """A job file cannot be used; one line."""


def read_job(path: Path) -> JobSpec:
    """A job file.

    Raises:
        JobFileError: if it cannot be read, or a key is unknown, missing or wrong.
    """
    try:
        content: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise JobFileError(f"cannot read {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise JobFileError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise JobFileError(f"{path}: expected a mapping with name, work, resources")
    try:
        return JobSpec.model_validate_json(_as_json(content))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        given = "" if first["type"] == "missing" else f", got {first['input']!r}"
        raise JobFileError(f"{path}: {where}: {first['msg'].lower()}{given}") from error


def copy_files(spec: JobSpec, source: Path, workdir: Path) -> None:
    """Copy what a job names from the folder of its file into its own folder.

    The script or app, and every argument that names a file beside it; nothing outside that folder.

    Raises:
        JobFileError: if the script or app is missing, lies outside, or all is too large.
    """
    root = source.resolve()
    work = spec.work
    names = [work.app] if isinstance(work, Flower) else [work.script, *work.args]
    copied = 0
    for position, name in enumerate(names):
        path = (root / name).resolve()
        inside = path.is_relative_to(root) and path != root
        if not (inside and path.exists()):
            if position == 0:
                raise JobFileError(f"{name}: no such file or folder beside the job file in {source}")
            continue
        copied += _size(path)
        if copied > MAX_BYTES:
            raise JobFileError(
                f"the files of the job have more than {MAX_BYTES >> 20} MiB: read data elsewhere"
            )
        target = workdir / path.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            shutil.copytree(path, target, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
        else:
            shutil.copy2(path, target)


def _size(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    return sum(item.stat().st_size for item in path.rglob("*") if item.is_file())


def _as_json(content: dict[str, Any]) -> str:
    """Through JSON, so that strict types are judged as in a request."""
    import json

    try:
        return json.dumps(content)
    except TypeError as error:
        raise JobFileError(f"a job file holds a value that is not plain text or a number: {error}") from error
