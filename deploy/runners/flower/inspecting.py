"""Reads a submitted Flower app in a process of its own, inside the sandbox, bounded in time and memory.

What an app declares and how Flower packs it is decided by files of the submitter: a `.gitignore` becomes
regular expressions, which can run for ever and hold the interpreter's lock meanwhile. So the scheduler only
copies the files, refusing links, and reads back what the process has written.
"""

from __future__ import annotations

import json
import os
import resource
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from spotweave.deploy.security.sandbox import Box, Boxed, IdentitiesError, Sandbox, SandboxError
from spotweave.deploy.security.untrusted import UnsafePathError, copy_tree, remove_tree, tail
from spotweave.files import read_at_most

Value = bool | int | float | str
FILE_BYTES = 65_536
LINE_CHARACTERS = 4096
"""Most of a pyproject.toml: the time to read a dotted key grows with the square of its length."""
_APP_BYTES, _APP_ENTRIES = 256 << 20, 20_000
_HEADER_BYTES, _BUILT_BYTES = 1 << 20, 512 << 20
_CPU_S, _WALL_S = 20, 60.0
_MEMORY_BYTES = 4 << 30
"""Address space limit: Flower's libraries alone reserve more than one GiB."""
_OUT_OF_MEMORY = 3
_AT_ONCE = threading.BoundedSemaphore(2)


@dataclass(frozen=True)
class App:
    """A Flower app."""

    declared: dict[str, Value]  # its settings with their defaults, flat ("a.b")
    content: bytes  # the app as Flower ships it, a FAB


class Inspector:
    """Inspects apps, in a sandbox; may be used from several threads."""

    def __init__(self, state: Path, sandbox: Sandbox) -> None:
        self._state = state
        self._sandbox = sandbox

    def look(self, folder: Path, name: str) -> App:
        """Inspect the app in a subfolder of a job's folder.

        Raises ValueError: what is wrong; OSError: not now.
        """
        if not _AT_ONCE.acquire(timeout=_WALL_S):
            raise TimeoutError("too many apps are being inspected: try again")
        self._state.mkdir(mode=0o700, parents=True, exist_ok=True)
        place = Path(tempfile.mkdtemp(prefix="inspected-", dir=self._state))
        try:
            try:
                copy_tree(folder, name, place / "own" / "app", _APP_BYTES, _APP_ENTRIES)
            except UnsafePathError as error:
                raise ValueError(f"app {name!r}: {error.strerror or error}") from error
            except FileNotFoundError as error:
                raise ValueError(f"app {name!r}: there is no such folder in the job's folder") from error
            return _decoded(self._run(place, name), name)
        finally:
            _AT_ONCE.release()
            remove_tree(place)

    def _run(self, place: Path, name: str) -> bytes:
        own = place / "own"
        argv = [sys.executable, "-m", __name__, str(own / "app"), name, str(_CPU_S)]
        env = {"PATH": os.defpath, "LANG": "C.UTF-8", "HOME": str(own), "FLWR_HOME": str(own)}
        env |= {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
        box_name = f"inspection {secrets.token_hex(8)}"
        try:
            boxed = self._sandbox.wrap(argv, env, own, Box(box_name, box_name, (own,), place / "tmp"))
            return self._answer(boxed, place, name)
        except (SandboxError, IdentitiesError) as error:
            raise OSError(str(error)) from error
        finally:
            self._sandbox.over(box_name)
            self._sandbox.forget(box_name)

    def _answer(self, boxed: Boxed, place: Path, name: str) -> bytes:
        """What the process writes, within the bounds. Raises ValueError, OSError."""
        stdin = boxed.stdin()
        try:
            with (place / "answer").open("w+b") as answer, (place / "errors").open("w+b") as errors:
                process = subprocess.Popen(
                    boxed.argv,
                    env=boxed.env,
                    cwd=place / "own",
                    stdin=stdin,
                    stdout=answer,
                    stderr=errors,
                    start_new_session=True,
                )
                try:
                    code = process.wait(_WALL_S)
                except subprocess.TimeoutExpired:
                    code = -signal.SIGXCPU
                finally:
                    if process.poll() is None:
                        os.killpg(process.pid, signal.SIGKILL)
                        process.wait()
                if code in (-signal.SIGXCPU, 128 + signal.SIGXCPU):
                    raise ValueError(
                        f"app {name!r}: reading it takes longer than {_CPU_S} s: simplify its pyproject.toml "
                        "and .gitignore"
                    )
                if code == _OUT_OF_MEMORY:
                    raise ValueError(f"app {name!r}: it cannot be read within {_MEMORY_BYTES >> 30} GiB")
                if code != 0:
                    said = tail(place, "errors", 4096).split("\n")
                    last = next((line for line in reversed(said) if line.strip()), f"exit code {code}")
                    raise OSError(f"an app cannot be inspected here: {last[:300]}")
                answer.seek(0)
                return read_at_most(answer.read, _HEADER_BYTES + _BUILT_BYTES)
        finally:
            os.close(stdin)


def _decoded(answer: bytes, name: str) -> App:
    header, _, content = answer.partition(b"\n")
    if len(header) > _HEADER_BYTES:
        raise ValueError(f"app {name!r}: its settings take more than {_HEADER_BYTES >> 20} MiB")
    found: dict[str, Any] = json.loads(header)
    if "error" in found:
        raise ValueError(f"app {name!r}: {found['error']}")
    return App(found["declared"], content)


def inspect(app: Path, name: str) -> App:
    """What an app is. Only for files that are trusted, or in a process that is bounded and kept apart.

    Raises ValueError: one line.
    """
    project = _project(app, name)
    section = project.get("tool", {}).get("flwr", {}).get("app", {})
    declared = _flat(section.get("config", {}))
    content = _build(app, name)
    for part, where in section["components"].items():
        module = str(where).partition(":")[0].replace(".", "/")
        if not any((app / f"{module}{end}").exists() for end in (".py", "/__init__.py")):
            raise ValueError(f"app {name!r}: {part} is {where!r}, but there is no {module}.py")
    return App(declared, content)


def _build(app: Path, name: str) -> bytes:
    # Imported where it is needed: it takes two seconds.
    from flwr.cli.build import build_fab_from_disk

    try:
        return build_fab_from_disk(app)
    # Flower has no common kind of error for what is wrong with an app.
    except Exception as error:
        raise ValueError(f"app {name!r}: {' '.join(str(error).split())}"[:500]) from error


def _project(app: Path, name: str) -> dict[str, Any]:
    file = app / "pyproject.toml"
    try:
        size = file.stat().st_size
        text = file.read_text(encoding="utf-8") if size <= FILE_BYTES else ""
        longest = max(map(len, text.split("\n")))  # not splitlines: only \n ends a line of TOML
        if size > FILE_BYTES or longest > LINE_CHARACTERS:
            raise ValueError(
                f"app {name!r}: pyproject.toml has {size} bytes and a line of {longest} "
                f"characters: expected at most {FILE_BYTES} and {LINE_CHARACTERS}"
            )
        return tomllib.loads(text)
    except OSError as error:
        raise ValueError(
            f"app {name!r}: cannot read pyproject.toml ({error.strerror}): expected a Flower app's folder"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"app {name!r}: pyproject.toml: {error}") from error


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Value]:
    flat: dict[str, Value] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def main(folder: str, name: str, cpu_s: str, out: BinaryIO) -> None:
    """Inspect one app and write what it is: a line of JSON, then its FAB."""
    resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_s), int(cpu_s) + 1))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_BUILT_BYTES, _BUILT_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answer: dict[str, object]
    content = b""
    try:
        found = inspect(Path(folder), name)
        answer, content = {"declared": found.declared}, found.content
    except ValueError as error:
        answer = {"error": str(error).removeprefix(f"app {name!r}: ")[:500]}
    except MemoryError:
        raise SystemExit(_OUT_OF_MEMORY) from None
    except Exception as error:
        answer = {"error": f"it cannot be read ({type(error).__name__}): correct its pyproject.toml"}
    out.write(json.dumps(answer, default=str).encode() + b"\n" + content)


if __name__ == "__main__":
    # Flower prints too.
    with os.fdopen(os.dup(1), "wb") as answer_file, open(os.devnull, "w") as silent:
        sys.stdout = silent
        main(sys.argv[1], sys.argv[2], sys.argv[3], answer_file)
