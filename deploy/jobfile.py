"""Job files: what `spotweave submit` reads, and the files that go to the service with them."""

from __future__ import annotations

import ast
import io
import zipfile
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TypeVar

from spotweave.deploy.model.jobs import JobSpec
from spotweave.deploy.model.workflows import SparkProgram, Workflow
from spotweave.deploy.yamlfile import ConfigError, require_mapping
from spotweave.documents import checked, load

MAX_BYTES = 20 << 20
"""Most bytes of a job's files together: in base64 they must fit into the service's largest request."""

MOST_FILES = 10_000  # most files in a folder that is sent with a job
FOLDER_SUFFIX = ".folder.zip"  # suffix of the archive that a folder in `py_files` is packed into
Program = TypeVar("Program", bound=SparkProgram)


def read_job(path: Path) -> JobSpec:
    """A job file. Modules next to a Spark script that it imports are added to its `py_files`.

    Raises ConfigError if it cannot be read, or a key is unknown, missing or wrong.
    """
    spec = load(
        path, lambda content: checked(JobSpec, require_mapping(content, "name, work, resources")), ConfigError
    )
    return _with_modules(spec, path.parent.resolve())


def read_files(spec: JobSpec, folder: Path) -> dict[str, bytes]:
    """What a job names in the folder of its file: the script or app, and every argument that is a file there.

    Returns contents by path relative to the folder. Raises ConfigError if the script or app is missing,
    something lies outside, or all is too large.
    """
    root = folder.resolve()
    program = spec.work.program
    if program is not None and not _is_there(root / program, root):
        raise ConfigError(f"{program}: no such file or folder next to the job file in {folder}")
    found: dict[str, bytes] = {}
    for path in named_files([*([] if program is None else [program]), *spec.work.words], root):
        _read(path, root, found)
    for name in spec.work.words:
        place = root / name.removesuffix(FOLDER_SUFFIX)
        if name.endswith(FOLDER_SUFFIX) and _is_there(place, root) and place.is_dir():
            found[name] = _packed(place, root)
            _require_small(sum(map(len, found.values())))
    return found


def _packed(place: Path, root: Path) -> bytes:
    """Zip a folder of modules, reproducibly."""
    files: dict[str, bytes] = {}
    for path in named_files([str(place)], root):
        _read(path, root, files)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as target:
        for name, content in sorted(files.items()):
            arcname = (root / name).relative_to(place.parent).as_posix()
            target.writestr(zipfile.ZipInfo(arcname), content)
    return packed.getvalue()


def _with_modules(spec: JobSpec, root: Path) -> JobSpec:
    """Add the modules that its scripts import to `py_files`, and name folders by their archives."""
    if isinstance(spec.work, Workflow):
        steps = tuple(_completed(step, root) for step in spec.work.steps)
        return spec.model_copy(update={"work": spec.work.model_copy(update={"steps": steps})})
    if isinstance(spec.work, SparkProgram):
        return spec.model_copy(update={"work": _completed(spec.work, root)})
    return spec


def _completed(program: Program, root: Path) -> Program:
    names = [*program.py_files, *_imported(root / program.script, root)]
    packed = (name + FOLDER_SUFFIX if (root / name).is_dir() else name for name in names)
    return program.model_copy(update={"py_files": tuple(dict.fromkeys(packed))})


def _imported(script: Path, root: Path) -> list[str]:
    """Find the modules and packages next to a script that it imports, directly or through each other."""
    if script.suffix != ".py" or not _is_there(script, root):
        return []
    found: dict[str, Path] = {}
    left = [script]
    while left:
        for name in sorted(_imports(left.pop())):
            for place in (script.parent / f"{name}.py", script.parent / name):
                files = [place] if place.is_file() else sorted(place.rglob("*.py"))
                if name not in found and place != script and files and _is_there(place, root):
                    found[name] = place
                    left += files
    return [place.relative_to(root).as_posix() for place in found.values()]


def _imports(path: Path) -> set[str]:
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return set()
    names = [one.name for node in ast.walk(tree) if isinstance(node, ast.Import) for one in node.names]
    names += [
        node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and not node.level
    ]
    return {name.split(".")[0] for name in names if name}


def named_files(words: Iterable[str], root: Path) -> Iterator[Path]:
    """The files in a folder (absolute, without links) that words name, or that are in folders they name.

    Raises ConfigError if one of them holds more than `MOST_FILES`.
    """
    for place in dict.fromkeys(root / word for word in words):
        if _is_there(place, root):
            try:
                inside = [place] if place.is_file() else list(islice(place.rglob("*"), MOST_FILES + 1))
            except RecursionError as error:
                raise ConfigError(f"{place.relative_to(root)} nests folders too deeply") from error
            if len(inside) > MOST_FILES:
                raise ConfigError(f"{place.relative_to(root)} holds more than {MOST_FILES} files: pack them")
            for path in sorted(inside):
                if path.is_file() and "__pycache__" not in path.parts:
                    yield path


def _is_there(place: Path, root: Path) -> bool:
    try:
        actual = place.resolve()
    except (OSError, ValueError, RuntimeError):  # the last is a link in a circle
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
        _require_small(path.stat().st_size + sum(map(len, found.values())))
        found[path.relative_to(root).as_posix()] = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error


def _require_small(size: int) -> None:
    if size > MAX_BYTES:
        raise ConfigError(
            f"the files of the job have more than {MAX_BYTES >> 20} MiB: let it read its data elsewhere"
        )
