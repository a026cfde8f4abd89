"""Bodies of requests: bounded before they are parsed, and parsed strictly."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
import re
import shutil
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

import anyio
from fastapi import Request
from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.requests import ClientDisconnect

from spotweave.deploy.model.jobs import Flower, JobSpec
from spotweave.deploy.model.workflows import SparkProgram
from spotweave.deploy.security.untrusted import is_plain_path, part
from spotweave.deploy.server.errors import Refusal, explain
from spotweave.files import sync
from spotweave.mistakes import some_of

REFERENCE = "#/components/schemas/{model}"
_GRACE_S = 10.0
_LEAST_BYTES_S = 64 << 10  # a body that comes more slowly would hold what others wait for
_DIGITS = 300  # any whole number with this many digits is a float as well
_MANY_DIGITS = re.compile(rb"[0-9]{%d}" % (_DIGITS + 1))
# Possessive, and an end that may be missing: nothing that is sent makes it go back and try again.
_TOKENS = re.compile(
    rb'(?P<text>"[^"\\]*+(?:\\.[^"\\]*+)*+"?)|(?P<number>[0-9]{%d})' % (_DIGITS + 1), re.DOTALL
)
_ZERO = re.compile(rb"(?<!\\)(?:\\\\)*+\\u0000")
_Model = TypeVar("_Model", bound=BaseModel)


def expected_size(request: Request, limit: int) -> int:
    """How large a body will be, in bytes; `limit` where its client does not say or it will be refused."""
    said = request.headers.get("content-length", "")
    return min(int(said[:19]), limit) if said.isdecimal() else limit


async def read_body(request: Request, limit: int, within_s: float) -> bytes:
    """The whole body, of `limit` bytes at most, which must arrive `within_s`, and before that at some speed.

    Raises Refusal if it is too large, as soon as that is known, too slow, or not JSON by its content type.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        # A form of a page in a browser cannot say this without asking first.
        raise Refusal(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "expected JSON: send the header Content-Type: application/json"
        )
    too_large = Refusal(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body is larger than {limit} bytes: send less at once"
    )
    said = request.headers.get("content-length", "")
    if said.isdecimal() and int(said[:19]) > limit:
        raise too_large
    found = bytearray()
    try:
        began_s = anyio.current_time()
        with anyio.fail_after(min(within_s, _GRACE_S)) as scope:
            async for chunk in request.stream():
                found += chunk
                if len(found) > limit:
                    raise too_large
                scope.deadline = began_s + min(within_s, _GRACE_S + len(found) / _LEAST_BYTES_S)
    except TimeoutError as error:
        raise Refusal(
            HTTPStatus.REQUEST_TIMEOUT, "the body came too slowly: send it faster, or send less at once"
        ) from error
    except ClientDisconnect as error:
        raise Refusal(HTTPStatus.BAD_REQUEST, "the connection was closed before the body had come") from error
    return bytes(found)


def parse(model: type[_Model], body: bytes) -> _Model:
    """A model from JSON, strictly.

    Raises Refusal if it does not fit; the first things that are wrong, in one line.
    """
    _refuse_what_breaks_things(body)
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, explain(error)) from error


def _refuse_what_breaks_things(body: bytes) -> None:
    """Refuse JSON that no model needs and that code behind it may not expect.

    Raises Refusal for a number that no float can hold, or a zero character, which no database and no process
    takes. Nesting is bounded by the parser.
    """
    # Nearly all bodies have neither, which is quickly seen; only others are looked through in earnest.
    if _MANY_DIGITS.search(body) is None and b"\\u0000" not in body:
        return
    for token in _TOKENS.finditer(body):
        if token["text"] is None:
            raise Refusal(
                HTTPStatus.UNPROCESSABLE_ENTITY,
                f"a number of more than {_DIGITS} digits: expected numbers of a usual size",
            )
        if _ZERO.search(token["text"]) is not None:
            raise Refusal(
                HTTPStatus.UNPROCESSABLE_ENTITY, "a text holds a zero character (\\u0000): leave it out"
            )


def described(model: type[BaseModel], examples: dict[str, Any]) -> dict[str, Any]:
    """What OpenAPI says of a request with such a body (for `openapi_extra`)."""
    shown = {name: {"value": value} for name, value in examples.items()}
    schema = {"$ref": REFERENCE.format(model=model.__name__)}
    return {
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": schema, "examples": shown}},
        }
    }


# Memory for bodies of requests: so much for all that are read and handled at once.

_LOOK_S = 0.05


class Room:
    """Bytes of bodies. For the thread of an event loop only.

    A body for which there is no room `within_s` is refused.
    """

    def __init__(self, most: int, most_each: int, within_s: float) -> None:
        self._most, self._most_each, self._within_s = most, most_each, within_s
        self._taken: Counter[str] = Counter()

    @asynccontextmanager
    async def take(self, name: str, size: int) -> AsyncIterator[None]:
        """Have room for a caller's body of at most `most_each`, once there is some. Raises Refusal if not."""
        end_s = time.monotonic() + self._within_s
        while self._taken[name] + size > self._most_each or self._taken.total() + size > self._most:
            if time.monotonic() >= end_s:
                raise Refusal(
                    HTTPStatus.TOO_MANY_REQUESTS,
                    "other large requests are being handled just now: try again soon",
                    {"Retry-After": "5"},
                )
            await anyio.sleep(_LOOK_S)
        self._taken[name] += size
        try:
            yield
        finally:
            self._taken -= Counter({name: size})


# Files that come with a job: names checked, written whole or not at all, never executed here.

MANIFEST = ".spotweave-upload.json"
"""Digests of the files as they were sent; runners may change the files themselves."""
_MANIFEST_BYTES = 16 << 20
_DIGESTS = TypeAdapter(dict[str, str])
_STAGED = ".incoming-"
_RESERVED = ("logs", "checkpoint", "flower", "workspace")  # folders of a job's folder that runners write to
_MAX_PARTS = 16
_MAX_PART_BYTES = 200


class UploadError(ValueError):
    """Files that cannot be taken; one line (HTTP 422)."""


def check_names(files: Mapping[str, str]) -> None:
    """Refuse names that would leave the job's folder, hide in it, or get in each other's way.

    Raises UploadError for the first of them.
    """
    for name in files:
        _check_name(name)
    folders = {parent.as_posix() for name in files for parent in PurePosixPath(name).parents}
    both = sorted(folders & set(files))
    if both:
        raise UploadError(f"{both[0]!r} is a file and a folder: give one of them another name")


def _check_name(name: str) -> None:
    parts = name.split("/")
    if (
        not is_plain_path(name)
        or len(parts) > _MAX_PARTS
        or any(part != part.strip() or len(part.encode()) > _MAX_PART_BYTES for part in parts)
    ):
        raise UploadError(
            f"a file is called {name[:100]!r}: expected a relative path such as jobs/count.py, of at most "
            f"{_MAX_PARTS} printable parts"
        )
    if parts[0] in _RESERVED or parts[0].startswith(".spotweave"):
        raise UploadError(
            f"a file is called {name[:100]!r}: {parts[0]} is a name that the service uses itself; rename it"
        )


def require_program(spec: JobSpec, files: Mapping[str, str]) -> None:
    """Refuse a job whose program is not among its files. Raises UploadError if it is missing."""
    if isinstance(spec.work, Flower):
        app = PurePosixPath(spec.work.app)
        wanted = (app / "pyproject.toml").as_posix()
        what = f"the Flower app {spec.work.app!r} needs {wanted!r}"
    elif spec.work.program is None:
        return
    else:
        wanted = spec.work.program
        what = f"the script {wanted!r} is missing"
    came = some_of(sorted(files), 3) or "no files"
    if wanted not in files:
        raise UploadError(f"{what}, and the job came with {came}: send it as one of the files")
    for name in spec.work.named_files if isinstance(spec.work, SparkProgram) else ():
        if PurePosixPath(name).as_posix() not in files:
            raise UploadError(
                f"py_files or conf names {name!r}, and the job came with {came}: send it as one of the files"
            )


def sent_files(folder: Path, most_bytes: int) -> dict[str, str]:
    """The files that came with a job, in base64 by name, from its folder, to which its programs can write.

    Raises UploadError if they are not there any more as they were sent.
    """
    found, left = {}, most_bytes
    for name, digest in sent_names(folder).items():
        content = _read(folder, name, left)
        if hashlib.sha256(content).hexdigest() != digest:
            raise UploadError(f"{name!r} is not what was submitted any more: submit it from its file")
        left -= len(content)
        found[name] = base64.b64encode(content).decode()
    return found


def sent_names(folder: Path) -> dict[str, str]:
    """Digests of the files that came with a job, by name. Raises UploadError if they are not known."""
    try:
        return _DIGESTS.validate_json(_read(folder, MANIFEST, _MANIFEST_BYTES))
    except ValidationError as error:
        raise UploadError("what it was submitted with is not known any more") from error


def _read(folder: Path, name: str, most_bytes: int) -> bytes:
    try:
        content, end = part(folder, name, 0, most_bytes + 1)
    except FileNotFoundError as error:
        raise UploadError("its files are not kept any more: submit it from its file") from error
    except OSError as error:
        raise UploadError(f"{name!r} is not what was submitted any more: submit it from its file") from error
    if end > most_bytes:
        raise UploadError("its files are too large now: submit it from its file")
    return content


def size_of(files: Mapping[str, str]) -> int:
    """About how large files in base64 are, in bytes."""
    return sum(len(text) for text in files.values()) * 3 // 4


class Staged:
    """A job's folder under a name that no job has, until it is accepted."""

    def __init__(self, jobs: Path, job_id: str, files: Mapping[str, str]) -> None:
        """Write files (base64 by checked name) through to the disk, below the folder of all jobs' folders.

        Raises UploadError if one is not base64; OSError if they cannot be written.
        """
        self._jobs = jobs
        self.folder = jobs / f"{_STAGED}{job_id}"
        self._final = jobs / job_id
        jobs.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder.mkdir(mode=0o700)
        self.size = 0
        """Size of all files in bytes."""
        try:
            self.digests = {name: self._write(name, text) for name, text in sorted(files.items())}
            _write(self.folder / MANIFEST, json.dumps(self.digests).encode())
            for folder, _, _ in os.walk(self.folder):
                sync(Path(folder))
        except BaseException:
            self.discard()
            raise

    @property
    def workdir(self) -> str:
        """Path of the job's folder once it is moved there."""
        return str(self._final.absolute())

    def accept(self) -> None:
        """Give the folder its final name."""
        self.folder.rename(self._final)
        sync(self._jobs)

    def discard(self) -> None:
        """Remove it, accepted or not."""
        for folder in (self.folder, self._final):
            shutil.rmtree(folder, ignore_errors=True)

    def same_as(self, workdir: str) -> bool:
        """Whether another job's folder came with the same files."""
        try:
            return sent_names(Path(workdir)) == self.digests
        except UploadError:
            return False

    def _write(self, name: str, text: str) -> str:
        try:
            content = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError) as error:
            raise UploadError(f"the content of {name!r} is not base64: encode it") from error
        place = self.folder / name
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(place, content)
        self.size += len(content)
        return hashlib.sha256(content).hexdigest()


def sweep(jobs: Path) -> None:
    """Remove what submissions left that ended half-way (by a crash)."""
    for folder in jobs.glob(f"{_STAGED}*"):
        shutil.rmtree(folder, ignore_errors=True)


def _write(path: Path, content: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
