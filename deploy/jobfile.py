"""Job files: what `spotweave submit` reads, and the files that go to the service with them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from pydantic import ValidationError

from deploy.model.jobs import JobSpec
from deploy.yamlfile import ConfigError, first_mistake, read_mapping

MAX_BYTES = 20 << 20
"""Of all files of a job together: in base64 they must fit into the service's largest request."""


def read_job(path: Path) -> JobSpec:
    """A job file.

    Raises:
        ConfigError: if it cannot be read, or a key is unknown, missing or wrong.
    """
    content = read_mapping(path, "name, work, resources")
    try:
        # Through JSON, so that strict types are judged as in a request.
        return JobSpec.model_validate_json(json.dumps(content))
    except TypeError as error:
        raise ConfigError(f"{path} holds a value that is not plain text or a number: {error}") from error
    except ValidationError as error:
        raise ConfigError(f"{path}: {first_mistake(error)}") from error


def read_files(spec: JobSpec, folder: Path) -> dict[str, bytes]:
    """What a job names in the folder of its file: the script or app, and every argument that is a file there.

    Returns:
        Content by path relative to the folder.

    Raises:
        ConfigError: if the script or app is missing, something lies outside, or all is too large.
    """
    root = folder.resolve()
    program = spec.work.program
    if program is not None and not _is_there(root / program, root):
        raise ConfigError(f"{program}: no such file or folder next to the job file in {folder}")
    found: dict[str, bytes] = {}
    for path in named_files([*([] if program is None else [program]), *spec.work.words], root):
        _read(path, root, found)
    return found


def named_files(words: Iterable[str], root: Path) -> Iterator[Path]:
    """The files in a folder (absolute, without links) that words name, or that are in folders they name."""
    for place in dict.fromkeys(root / word for word in words):
        if _is_there(place, root):
            for path in [place] if place.is_file() else sorted(place.rglob("*")):
                if path.is_file() and "__pycache__" not in path.parts:
                    yield path


def _is_there(place: Path, root: Path) -> bool:
    try:
        actual = place.resolve()
    except (OSError, ValueError):
        return False
    return actual.is_relative_to(root) and actual != root and _exists(place)


def _exists(place: Path) -> bool:
    try:
        return place.exists()
    except OSError:
        return False  # an argument may be anything, such as a very long text


def _read(path: Path, root: Path, found: dict[str, bytes]) -> None:
    actual = path.resolve()
    if not actual.is_relative_to(root):
        raise ConfigError(f"{path} leads to {actual}, outside of the job's folder: copy it there")
    try:
        size = path.stat().st_size + sum(map(len, found.values()))
        if size > MAX_BYTES:
            raise ConfigError(
                f"the files of the job have more than {MAX_BYTES >> 20} MiB: let it read its data elsewhere"
            )
        found[path.relative_to(root).as_posix()] = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
